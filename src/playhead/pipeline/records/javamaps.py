"""Java's HashMap: the order in which it has its entries, which decides the bytes that converters write of a map.

Every map is a dict in that order. JsonConverter reads a map into a HashMap of 16 buckets; a transform that changes a map puts it
into another one, whose size depends on how it is made. Copies are those of Java 19 and newer: an older one makes the table of
3, 6, 12, 24 ... entries twice as large.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from playhead.connect.javajson import bucket_order, hash_map_order
from playhead.pipeline.records.schema import Schema

_BITS_32 = 0xFFFFFFFF


def hash_map(members: Mapping[str, Any], capacity: int = 16) -> dict[str, Any]:
    """Of a HashMap with so many buckets at first, into which the members were put in their order."""
    if len(members) < 2:
        return dict(members)
    return {name: members[name] for name in hash_map_order(members, capacity)}


def copied_map(members: Mapping[str, Any], added: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`new HashMap<>(members)`, and what is put into it then."""
    return hash_map({**members, **(added or {})}, copy_capacity(len(members)))


def sized_map(members: Mapping[str, Any], count: int) -> dict[str, Any]:
    """`new HashMap<>(count)`, and what is put into it then."""
    return hash_map(members, _table_size(count))


def copy_capacity(count: int) -> int:
    return _table_size(-(-count * 4 // 3)) if count else 16


def _table_size(count: int) -> int:
    return 1 << (max(count, 1) - 1).bit_length()


def map_pairs(pairs: Iterable[tuple[Any, Any]], keys: Schema) -> list[tuple[Any, Any]]:
    """A map under a schema. Of two pairs with one key the last counts. The order of other keys than texts, whole numbers and
    booleans is not known: they keep theirs."""
    listed = list(pairs)
    if keys.name or keys.type not in ("string", "boolean", "int8", "int16", "int32", "int64"):
        return listed
    members = dict(listed)
    if keys.type == "string":
        return [(name, members[name]) for name in hash_map_order(members)]
    codes = [_hash_code(key, keys.type) for key in members]
    ordered = list(members.items())
    return [ordered[at] for at in bucket_order(codes, 16)]


def _hash_code(key: int, kind: str) -> int:
    if kind == "boolean":
        return 1231 if key else 1237
    return (key ^ (key >> 32)) & _BITS_32 if kind == "int64" else key & _BITS_32
