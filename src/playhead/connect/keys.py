"""Keys of the offsets topic: a JSON array of connector name and partition, looked up by Connect byte for byte.

What does not decode is somebody else's: shown as foreign, never touched.
"""

from dataclasses import dataclass

import msgspec

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


def decode_value(raw: bytes) -> Map:
    """Raises `Invalid` for a value Connect itself would refuse."""
    try:
        return Map(msgspec.json.decode(raw, type=dict[str, object]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the value is not a JSON object: {error}") from None
