"""Opens any store by its URI. Each kind is imported on first use."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, overload
from urllib.parse import urlsplit

from playhead.config import Context, context_for_code
from playhead.errors import Invalid, near_names
from playhead.model import Deadline
from playhead.stores import Access, Refusal, Snapshot, Store

if TYPE_CHECKING:
    from playhead.kafka.properties import ClientSettings

# scheme -> module with `open_uri(uri, access) -> Store`
_HOMES = {
    "connect+http": "playhead.stores.connect_rest",
    "connect+https": "playhead.stores.connect_rest",
    "kafka": "playhead.stores.offsets_topic",
    "file": "playhead.stores.standalone_file",
    "groups": "playhead.stores.groups",
    "checkpoint": "playhead.stores.checkpoint.store",
    "sql+sqlite": "playhead.stores.consumer_table",
    "sql+postgresql": "playhead.stores.consumer_table",
    "ledger+sqlite": "playhead.stores.sink_ledger",
    "ledger+postgresql": "playhead.stores.sink_ledger",
    "memory": "playhead.stores.memory",
}


def is_store(text: str) -> bool:
    """True when this is the URI of a store rather than a name."""
    return text.partition(":")[0] in _HOMES and ":" in text


def is_of_context(uri: str, context: Context) -> bool:
    """True when a store is a file of this machine, or on the servers that the context names.

    A checkpoint on S3 or HDFS is on servers that no context names: it would be opened with the credentials of the environment.
    """
    scheme, _, rest = uri.partition(":")
    if scheme == "checkpoint":
        from playhead.stores.checkpoint.folder import is_local

        return is_local(rest)
    if scheme in ("file", "sql+sqlite", "ledger+sqlite", "memory"):
        return True
    if scheme.startswith("connect+"):
        known = {_address(url) for url in context.connect_urls}
        return {_address(url) for url in uri.removeprefix("connect+").split(",")} <= known
    if scheme in ("kafka", "groups"):
        servers = {server.strip() for server in rest.removeprefix("//").partition("/")[0].split(",")}
        brokers = find_brokers(context)
        return servers <= {server.strip() for server in (brokers.bootstrap if brokers else "").split(",")}
    if scheme.startswith("ledger+"):
        from playhead.stores.sink_ledger import is_ledger_of

        return is_ledger_of(uri, context)
    return False


# What is written by REST is in the offsets topic or file of the workers. All other stores hold positions of their own.
_WAYS_TO_CONNECT = ("connect", "kafka", "file")


def _kind(uri: str) -> str:
    scheme = uri.partition(":")[0].partition("+")[0]
    return "connect" if scheme in _WAYS_TO_CONNECT else scheme


def holds_same_kind(uri: str, other: str) -> bool:
    """True if an edit of one store can be made in the other: the same kind, or ways to the offsets of Connect workers."""
    return _kind(uri) == _kind(other)


def is_same_store(uri: str, other: str) -> bool:
    """True if both name one place. Of several brokers or workers one in common is enough."""
    (scheme, _, rest), (scheme2, _, rest2) = uri.partition(":"), other.partition(":")
    if scheme.startswith("connect+") or scheme in ("kafka", "groups"):
        (servers, place), (servers2, place2) = _places(uri), _places(other)
        return scheme == scheme2 and place == place2 and not servers.isdisjoint(servers2)
    if scheme == "file":  # the query names the listener of its worker
        return scheme == scheme2 and rest.partition("?")[0] == rest2.partition("?")[0]
    return uri == other


def _places(uri: str) -> tuple[set[str], str]:
    """The servers of a URI, and the place on them."""
    if uri.startswith("connect+"):
        return {_address(url) for url in uri.removeprefix("connect+").split(",")}, ""
    servers, _, place = uri.partition(":")[2].removeprefix("//").partition("?")[0].partition("/")
    return {server.strip().lower() for server in servers.split(",")}, place


def _address(url: str) -> str:
    return urlsplit(url.strip()).netloc.rpartition("@")[2].lower()


def find_brokers(context: Context) -> "ClientSettings | None":
    """None if no broker is named."""
    from playhead.kafka.properties import client_settings

    try:
        return client_settings(context)
    except Invalid:
        return None


@dataclass(frozen=True, slots=True)
class StoreReader:
    """A store at a Python prompt: every call has the whole time of the context. `playhead.offsets` changes positions."""

    uri: str
    context: Context = field(repr=False)

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        """The live positions, of all owners or of some."""
        with self._opened() as store:
            return store.snapshot(owners)

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        """Everything still readable, oldest first."""
        with self._opened() as store:
            return store.history(owners)

    def guard(self, owners: Collection[str]) -> list[Refusal]:
        """Why an edit of these owners would be refused."""
        with self._opened() as store:
            return store.guard(owners)

    @contextmanager
    def _opened(self) -> Iterator[Store]:
        with Access(self.context, Deadline(self.context.timeout_seconds)) as access:
            yield open_store(self.uri, access)


@overload
def open_store(uri: str, access: Access) -> Store: ...
@overload
def open_store(uri: str, access: None = None, *, context: str | Context | None = None) -> StoreReader: ...
def open_store(uri: str, access: Access | None = None, *, context: str | Context | None = None) -> Store | StoreReader:
    """The store of a URI, like `file:connect.offsets` or `groups://broker:9092`. Without an `Access` it is for a Python prompt:
    it reads with the settings of `context` (the current one by default), and is checked when it is opened.

    >>> playhead.open_store("file:connect.offsets").snapshot()
    """
    if access is None:
        reader = StoreReader(uri, context_for_code(context))
        with reader._opened() as opened:
            return replace(reader, uri=opened.uri)
    scheme, colon, _ = uri.partition(":")
    if not colon or scheme not in _HOMES:
        known = [name for name in _HOMES if name != "memory"]
        raise Invalid(f"{uri!r} is not the URI of a store", near_names(scheme, known))
    store: Store = import_module(_HOMES[scheme]).open_uri(uri, access)
    return store
