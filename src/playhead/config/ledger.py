"""Where the ledger of a context is. Told without the database client, which takes its time to load."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

from playhead.config.contexts import Context
from playhead.errors import Invalid

_PASSWORD_REFERENCE = re.compile(r":\$\{env:[^}]+\}@")
_FILE = "sqlite:///"
SINKS_SCHEME = "ledger+"  # before the URL of a ledger: the store of the sinks in it


def default_ledger_url() -> str:
    """An SQLite file in the user's state folder."""
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    except RuntimeError:
        raise Invalid("there is no home folder for the ledger", "name one with --ledger sqlite:////path") from None
    return f"{_FILE}{state / 'playhead' / 'ledger.db'}"


def ledger_url(context: Context) -> str:
    """What flag, environment or context name, else the user's own file."""
    setting = context.settings.get("ledger")
    if setting is None:
        return default_ledger_url()
    # A password that is a reference stays one until the client is made: what it stands for need not be fit for a URL.
    return setting.text if _PASSWORD_REFERENCE.search(setting.text) else context.get("ledger") or default_ledger_url()


def may_hold_something(context: Context) -> bool:
    """False for a file that nobody made yet. A server is not asked."""
    url = ledger_url(context)
    if not url.startswith(_FILE):
        return True
    try:
        return Path(unquote(url.removeprefix(_FILE).partition("?")[0])).exists()
    except OSError:
        return True  # whoever opens it says why it cannot be
