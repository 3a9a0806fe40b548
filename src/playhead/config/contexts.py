"""Contexts: which Kafka, which Connect, which settings, and the file, flag or variable that set each.

    current = "shop"

    [contexts.shop]
    bootstrap-servers = "kafka:9092"
    connect = "https://connect:8083"
    connect-password = "${env:CONNECT_PASSWORD}"
    worker-config = "worker.properties"      # a Java file, used unchanged

    [contexts.shop.kafka]                    # Java or librdkafka names
    "client.id" = "playhead"

`playhead.toml` is searched for from the working directory upwards, then in the user's config folder. Both are read; for each
context the nearer file wins, and a note says so if both have it. A file found on the way up that another user can have written
is ignored (`trust.py`). Relative paths are relative to the file that contains them.
"""

import os
import re
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from playhead.config.references import PLAIN_PROVIDERS, has_reference, resolve
from playhead.config.secrets import is_sensitive, token_spans
from playhead.config.toml_lines import KeyPath, key_lines, leaves, line_of
from playhead.config.trust import distrust
from playhead.errors import ConfigInvalid, Fault, Invalid, NotFound, near_names
from playhead.model.secret import Secret

FILE_NAME = "playhead.toml"
PATH_KEYS = ("worker-config", "command-config", "connect-ca", "connect-cert", "connect-key", "journal")
KEYS = (
    "bootstrap-servers",
    "connect",
    "connect-username",
    "connect-password",
    "connect-token",
    "timeout",
    "ledger",
    "plugin-path",
    *PATH_KEYS,
)
TABLES = ("kafka", "spark")
ADDRESS_KEYS = ("bootstrap-servers", "connect", "worker-config", "command-config")
DEFAULTS = {"timeout": "30s"}
ENVIRONMENT = {
    "bootstrap-servers": "PLAYHEAD_BOOTSTRAP_SERVERS",
    "connect": "PLAYHEAD_CONNECT",
    "connect-username": "PLAYHEAD_CONNECT_USERNAME",
    "connect-password": "PLAYHEAD_CONNECT_PASSWORD",
    "connect-token": "PLAYHEAD_CONNECT_TOKEN",
    "worker-config": "PLAYHEAD_WORKER_CONFIG",
    "command-config": "PLAYHEAD_COMMAND_CONFIG",
    "timeout": "PLAYHEAD_TIMEOUT",
    "journal": "PLAYHEAD_JOURNAL",
    "ledger": "PLAYHEAD_LEDGER",
    "plugin-path": "PLAYHEAD_PLUGIN_PATH",
}
_ONE_REFERENCE = re.compile(rf"\$\{{({'|'.join(PLAIN_PROVIDERS)}):[^}}]+\}}")
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)\s*(ms|s|m|h)?$")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
_LEDGER = re.compile(r"(?:sql\+)?(?:sqlite:///(?P<file>.+)|postgresql(?:\+psycopg)?://.+)", re.DOTALL)
_USERINFO = re.compile(r"(://)[^\s,]*@")


class Level(IntEnum):
    """Where a value can come from; the higher one wins."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and its origin: `--flag`, `$VARIABLE`, `file:line` or `default`."""

    value: str | Secret
    origin: str

    @property
    def text(self) -> str:
        return self.value.reveal() if isinstance(self.value, Secret) else self.value

    @property
    def level(self) -> "Level":
        if self.origin.startswith("-"):
            return Level.FLAG
        if self.origin.startswith("$"):
            return Level.ENVIRONMENT
        return Level.DEFAULT if self.origin == "default" else Level.FILE

    @property
    def shown(self) -> str:
        if isinstance(self.value, Secret):
            return "***"
        return masked(self.value)

    def __repr__(self) -> str:
        return f"Setting(value={self.shown!r}, origin={self.origin!r})"


@dataclass(frozen=True, slots=True)
class Context:
    """The addresses and settings a command works with. Keys of tables are dotted: `kafka.client.id`.

    `notes`: what the user should know of how it was chosen: files that were ignored, a context that hides another.
    """

    name: str | None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def get(self, key: str) -> str | None:
        """The value with its references resolved; call it only where the value is needed."""
        setting = self.settings.get(key)
        return None if setting is None else resolve(setting.text)

    def path(self, key: str) -> Path | None:
        value = self.get(key)
        return None if value is None else Path(value).expanduser()

    def table(self, name: str) -> dict[str, Setting]:
        start = name + "."
        return {key.removeprefix(start): value for key, value in self.settings.items() if key.startswith(start)}

    @property
    def connect_urls(self) -> list[str]:
        return [url.strip() for url in (self.get("connect") or "").split(",") if url.strip()]

    @property
    def timeout_seconds(self) -> float:
        return parse_duration(self.get("timeout") or DEFAULTS["timeout"])


@dataclass(frozen=True, slots=True)
class ConfigFile:
    path: Path
    current: str | None
    contexts: Mapping[str, Mapping[str, Setting]]
    faults: tuple[Fault, ...] = ()


def masked(text: str) -> str:
    """URLs without the credentials they may hold."""
    return _USERINFO.sub(r"\1***@", text)


def parse_duration(text: str) -> float:
    """Seconds of `500ms`, `30s`, `2m`, `1h` or a bare number of seconds."""
    match = _DURATION.match(text.strip())
    if not match or float(match.group(1)) <= 0:
        raise Invalid(f"{text!r} is not a duration", "write it like 500ms, 30s, 2m or 1h")
    return float(match.group(1)) * _UNIT_SECONDS[match.group(2)]


def user_file() -> Path:
    try:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    except RuntimeError:  # a user without a home folder
        base = Path("/nonexistent")
    return base / "playhead" / FILE_NAME


@dataclass(frozen=True, slots=True)
class Search:
    """`paths`: the config files in force, the nearest first. `ignored`: a sentence for each file that must not be used."""

    paths: tuple[Path, ...]
    ignored: tuple[str, ...] = ()


def search_files() -> Search:
    """`PLAYHEAD_CONFIG` names one file and disables the others. A file that is named is used, whoever wrote it."""
    if only := os.environ.get("PLAYHEAD_CONFIG"):
        return Search((Path(only),))
    own = user_file()
    ignored: list[str] = []
    nearest: Path | None = None
    for path in _files_above():
        reason = None if path == own else distrust(path)
        if reason is None:
            nearest = path
            break
        ignored.append(f"{path} is ignored: {reason}; if you trust it, name it in PLAYHEAD_CONFIG")
    paths = [path for path in (nearest, own) if path is not None and path.is_file()]
    return Search(tuple(dict.fromkeys(paths)), tuple(ignored))


def _files_above() -> list[Path]:
    """Every `playhead.toml` in the working directory and the folders above it, the nearest first."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the working directory was deleted
        return []
    return [folder / FILE_NAME for folder in (here, *here.parents) if _is_file(folder / FILE_NAME)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:  # a folder that may not be searched
        return False


def load_files(search: Search | None = None) -> list[ConfigFile]:
    """The config files in force, the nearest first."""
    return [load_file(path) for path in (search or search_files()).paths]


def load_file(path: Path) -> ConfigFile:
    try:
        text = path.read_text("utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid([Fault(str(path), None, str(error))]) from None
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        raise ConfigInvalid([Fault(str(path), int(at.group(1)) if at else None, str(error))]) from None
    reader = _FileReader(path, key_lines(text))
    return reader.read(document)


class _FileReader:
    """Turns one parsed document into settings, collecting every fault."""

    def __init__(self, path: Path, lines: Mapping[KeyPath, int]) -> None:
        self.path = path
        self.lines = lines
        self.faults: list[Fault] = []

    def read(self, document: Mapping[str, object]) -> ConfigFile:
        for key in document:
            if key not in ("current", "contexts"):
                self.fault((key,), f"unknown key {key!r}", near_names(key, ["current", "contexts"]))
        contexts = document.get("contexts", {})
        if not isinstance(contexts, Mapping):
            self.fault(("contexts",), "'contexts' must be a table of contexts")
            contexts = {}
        read = {str(name): self.context(str(name), body) for name, body in contexts.items()}
        current = document.get("current")
        if current is not None and not isinstance(current, str):
            self.fault(("current",), "'current' must be the name of a context")
            current = None
        return ConfigFile(self.path, current, read, tuple(self.faults))

    def context(self, name: str, body: object) -> dict[str, Setting]:
        if not isinstance(body, Mapping):
            self.fault(("contexts", name), f"context {name!r} must be a table")
            return {}
        settings: dict[str, Setting] = {}
        for path, value in leaves(body).items():
            at = ("contexts", name, *path)
            key = ".".join(path)
            if path[0] not in (*KEYS, *TABLES):
                self.fault(at, f"unknown key {path[0]!r}", near_names(path[0], [*KEYS, *TABLES]))
            elif (path[0] in TABLES) != (len(path) > 1):
                self.fault(at, f"{path[0]!r} must be " + ("a table" if path[0] in TABLES else "a value, not a table"))
            elif (text := _as_text(value)) is None:
                self.fault(at, f"{key!r} must be a string, a number, true or false, or a list of strings")
            else:
                self.check(at, key, text)
                settings[key] = Setting(self.value_of(key, text), self.where(at))
        return settings

    def check(self, at: KeyPath, key: str, text: str) -> None:
        try:
            check_value(key, text)
        except Invalid as error:
            self.fault(at, error.what, error.hint)

    def value_of(self, key: str, text: str) -> str | Secret:
        if key in PATH_KEYS and not text.startswith("${"):
            return str(self.path.parent / Path(text).expanduser())
        if key == "plugin-path":
            return ",".join(str(self.path.parent / Path(one.strip()).expanduser()) for one in text.split(","))
        if key == "ledger" and (found := _LEDGER.fullmatch(text)) and found["file"]:
            return text[: found.start("file")] + str(self.path.parent / Path(found["file"]).expanduser())
        return as_value(key, text)

    def where(self, at: KeyPath) -> str:
        return f"{self.path}:{line_of(self.lines, at)}"

    def fault(self, at: KeyPath, what: str, hint: str | None = None) -> None:
        self.faults.append(Fault(str(self.path), line_of(self.lines, at), f"{what}; {hint}" if hint else what))


def as_value(key: str, text: str) -> str | Secret:
    """Wraps a literal secret, found by its key or by its form. A reference to a secret reveals nothing and may be shown."""
    is_secret = is_sensitive(key) or (key not in PATH_KEYS and bool(token_spans(text)))
    return Secret(text) if is_secret and not _ONE_REFERENCE.fullmatch(text) else text


def check_value(key: str, text: str) -> None:
    """Checks a value as far as possible before references are resolved."""
    if has_reference(text):
        return
    if key == "timeout":
        parse_duration(text)
    if key == "connect":
        check_connect(text)
    if key == "ledger" and not _LEDGER.fullmatch(text):
        raise Invalid(
            f"{masked(text)!r} is not the URL of a ledger",
            "write it like sqlite:///ledger.db or postgresql://user@host/db",
        )


def check_connect(text: str) -> None:
    for url in text.split(","):
        if not re.match(r"^https?://[^/\s]+", url.strip(), re.IGNORECASE):
            shown = re.sub(r"\S*@", "***@", url.strip())  # a user name and password may precede the @
            raise Invalid(f"{shown!r} is not a Connect URL", "write it like http://host:8083")


def _as_text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return None


def open_context(name: str | None = None, flags: Mapping[str, str] | None = None) -> Context:
    """The context in force: flags over environment over files over defaults.

    `name` (or `PLAYHEAD_CONTEXT`, or `current` of the nearest file) selects the context; without any file there is none,
    and flags and environment must set everything. Keys of `flags` are those of the file; `kafka.X` is `-X X=...`.
    `name` counts as a flag: addresses in the environment do not override those of the named context.
    """
    search = search_files()
    files = load_files(search)
    faults = [fault for file in files for fault in file.faults]
    if faults:
        raise ConfigInvalid(faults)
    chosen = name or os.environ.get("PLAYHEAD_CONTEXT") or next((f.current for f in files if f.current), None)
    settings = {key: Setting(value, "default") for key, value in DEFAULTS.items()}
    settings |= _context_of(files, chosen, search.ignored)
    for key, variable in ENVIRONMENT.items():
        overridden = name is not None and (key in settings or key in ADDRESS_KEYS)
        if (value := os.environ.get(variable)) and not overridden:
            settings[key] = Setting(as_value(key, value), f"${variable}")
    for key, value in (flags or {}).items():
        settings[key] = Setting(as_value(key, value), FLAGS.get(key, "-X"))
    for key, setting in settings.items():
        check_value(key, setting.text)
    return Context(chosen, _of_one_cluster(settings), (*search.ignored, *_hidden(files, chosen)))


def context_for_code(context: str | Context | None, flags: Mapping[str, str] | None = None) -> Context:
    """For callers in Python, who have no command line: the notes become warnings."""
    if isinstance(context, Context):
        return context
    opened = open_context(context, flags)
    for note in opened.notes:
        warnings.warn(note, stacklevel=2)
    return opened


def _of_one_cluster(settings: dict[str, Setting]) -> dict[str, Setting]:
    """Drops `connect` if `worker-config` comes from a higher level: the file may belong to another cluster."""
    file, workers = settings.get("worker-config"), settings.get("connect")
    if file is None or workers is None or file.level <= workers.level:
        return settings
    return {key: setting for key, setting in settings.items() if key != "connect"}


FLAGS = {
    "bootstrap-servers": "--bootstrap-server",
    "connect": "--connect",
    "worker-config": "--worker-config",
    "command-config": "--command-config",
    "timeout": "--timeout",
    "ledger": "--ledger",
}


def _context_of(files: list[ConfigFile], chosen: str | None, ignored: Sequence[str]) -> Mapping[str, Setting]:
    if chosen is None:
        return {}
    for file in files:
        if chosen in file.contexts:
            return file.contexts[chosen]
    known = [name for file in files for name in file.contexts]
    raise unknown_context(chosen, known, ignored)


def _hidden(files: list[ConfigFile], chosen: str | None) -> list[str]:
    """A note if the chosen context hides one of the same name in the user's own file."""
    having = [file.path for file in files if chosen in file.contexts]
    return [f"context {chosen!r} is that of {having[0]}, not the one of that name in {path}" for path in having[1:]]


def unknown_context(name: str, known: list[str], ignored: Sequence[str] = ()) -> Invalid:
    """It may be in a file that is ignored, which is not read to find out."""
    missing = NotFound("context", name, known)
    nowhere = f"no {FILE_NAME} was found here or in {user_file().parent}"
    hints = [*ignored, *([missing.hint] if missing.hint else [] if ignored else [nowhere])]
    return Invalid(missing.what, "; ".join(hints))
