"""The URL of a context's ledger. Does not load the database client, which is slow to import."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

from playhead.config.contexts import Context
from playhead.errors import Invalid

_PASSWORD_REFERENCE = re.compile(r":\$\{env:[^}]+\}@")
_FILE = "sqlite:///"
SINKS_SCHEME = "ledger+"  # prefix of a ledger URL that selects the store of its sinks


def default_ledger_url() -> str:
    """An SQLite file in the user's state folder."""
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    except RuntimeError:
        raise Invalid("there is no home folder for the ledger", "set one with --ledger sqlite:////path") from None
    return f"{_FILE}{state / 'playhead' / 'ledger.db'}"


def ledger_url(context: Context) -> str:
    """The ledger set by flag, environment or context, else the default file."""
    setting = context.settings.get("ledger")
    if setting is None:
        return default_ledger_url()
    # A password reference is resolved when the client is created: its value need not be valid in a URL.
    return setting.text if _PASSWORD_REFERENCE.search(setting.text) else context.get("ledger") or default_ledger_url()


def may_hold_something(context: Context) -> bool:
    """False if the ledger is a file that does not exist yet. A server is not queried."""
    url = ledger_url(context)
    if not url.startswith(_FILE):
        return True
    try:
        return Path(unquote(url.removeprefix(_FILE).partition("?")[0])).exists()
    except OSError:
        return True  # opening it reports the reason
