"""Keys of the offsets topic: a JSON array of connector name and partition, looked up by Connect byte for byte.

What does not decode is somebody else's: shown as foreign, never touched.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from playhead.connect.javajson import encode_map, encode_string
from playhead.errors import Invalid
from playhead.model import Map


@dataclass(frozen=True, slots=True)
class OffsetKey:
    connector: str
    partition: Map


def decode_key(raw: bytes) -> OffsetKey | None:
    try:
        name, partition = msgspec.json.decode(raw, type=tuple[str, dict[str, object]])
        return OffsetKey(name, Map(partition))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Invalid):
        return None


def encode_key(key: OffsetKey, order: Iterable[str] | None = None) -> bytes:
    """The bytes Connect writes for this key, with the fields of the partition in `order`, by default their own."""
    return f"[{encode_string(key.connector)},{encode_map(key.partition, order)}]".encode()


def is_as_connect_writes(raw: bytes, key: OffsetKey) -> bool:
    """False for equal JSON in bytes no worker would look up: spaces, other escapes. Java versions differ over floats."""
    return any(isinstance(value, float) for value in key.partition.values()) or raw == encode_key(key)


def decode_value(raw: bytes) -> Map:
    """Raises `Invalid` for a value Connect itself would refuse."""
    try:
        return Map(msgspec.json.decode(raw, type=dict[str, object]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the value is not a JSON object: {error}") from None
