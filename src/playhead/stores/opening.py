"""Any store by its URI. Each kind is imported when it is opened."""

from importlib import import_module

from playhead.errors import Invalid, near_names
from playhead.stores import Access, Store

# scheme -> module with `open_uri(uri, access) -> Store`
_HOMES = {
    "connect+http": "playhead.stores.connect_rest",
    "connect+https": "playhead.stores.connect_rest",
    "kafka": "playhead.stores.offsets_topic",
    "file": "playhead.stores.standalone_file",
    "groups": "playhead.stores.groups",
    "checkpoint": "playhead.stores.spark_checkpoint",
    "sql+sqlite": "playhead.stores.sql",
    "sql+postgresql": "playhead.stores.sql",
    "memory": "playhead.stores.memory",
}


def is_store(text: str) -> bool:
    """True when this is the URI of a store rather than a name."""
    return text.partition(":")[0] in _HOMES and ":" in text


def open_store(uri: str, access: Access) -> Store:
    scheme, colon, _ = uri.partition(":")
    if not colon or scheme not in _HOMES:
        known = [name for name in _HOMES if name != "memory"]
        raise Invalid(f"{uri!r} is not the URI of a store", near_names(scheme, known))
    store: Store = import_module(_HOMES[scheme]).open_uri(uri, access)
    return store
