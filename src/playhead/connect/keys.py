"""Keys of the offsets topic: a JSON array of connector name and partition, looked up by Connect byte for byte.

A key that does not decode was not written by Connect: it is shown as foreign and never changed.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from playhead.connect.dialects import find_dialect
from playhead.connect.javajson import encode_map, encode_string, hash_map_order
from playhead.errors import Invalid
from playhead.model import Map
from playhead.model.position import FIELDS, UNREADABLE

OWN_TOPIC = "offsets.storage.topic"  # in the config of a source: its positions are in a topic of its own


def transactional_id(group_id: str, connector: str, task: int) -> str:
    return f"{group_id}-{connector}-{task}"


class OffsetKey(NamedTuple):
    connector: str
    partition: Map


_KEY = msgspec.json.Decoder(tuple[str, FIELDS])
_VALUE = msgspec.json.Decoder(FIELDS)
_ENCODER = msgspec.json.Encoder()


def decode_key(raw: bytes) -> OffsetKey | None:
    try:
        name, partition = _KEY.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return OffsetKey(name, Map.decoded(partition))


def decode_legacy_key(raw: bytes) -> OffsetKey | None:
    """A key inside the schema envelope that internal converters could be set to write before Kafka 3.0."""
    try:
        envelope = msgspec.json.decode(raw, type=_KeyEnvelope)
        return OffsetKey(envelope.payload[0], Map(envelope.payload[1]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Invalid):
        return None


def without_envelope(value: bytes) -> bytes:
    """The payload of an enveloped value; anything else unchanged."""
    try:
        return bytes(msgspec.json.decode(value, type=_ValueEnvelope).payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return value


class _KeyEnvelope(msgspec.Struct, forbid_unknown_fields=True):
    schema: object
    payload: tuple[str, dict[str, object]]


class _ValueEnvelope(msgspec.Struct, forbid_unknown_fields=True):
    schema: object
    payload: msgspec.Raw


def encode_key(key: OffsetKey, order: Iterable[str] | None = None) -> bytes:
    """The bytes Connect writes for this key, with the fields of the partition in `order`, by default their own."""
    return f"[{encode_string(key.connector)},{encode_map(key.partition, order)}]".encode()


def encode_new_key(key: OffsetKey) -> bytes:
    """The bytes for a partition that is not stored yet: fields as its connector orders them, else as a HashMap would."""
    return encode_key(key, find_field_order(key.partition) or hash_map_order(list(key.partition)))


def find_field_order(partition: Map) -> tuple[str, ...] | None:
    """The field order of the connector that writes such partitions; None if no dialect knows it."""
    dialect = find_dialect(None, partition)
    return dialect.field_order(tuple(partition)) if dialect else None


def is_as_connect_writes(raw: bytes, key: OffsetKey) -> bool:
    """False for equal JSON in other bytes, which no worker looks up: spaces, other escapes. Java versions differ in floats."""
    if raw.isascii() and b"\\" not in raw and raw == _ENCODER.encode((key.connector, key.partition.fields)):
        return True  # without escapes all encoders agree, and this one is fast
    return any(isinstance(value, float) for value in key.partition.values()) or raw == encode_key(key)


def decode_value(raw: bytes) -> Map:
    """Raises `Invalid` for a value Connect itself would refuse."""
    try:
        return Map.decoded(_VALUE.decode(raw))
    except msgspec.ValidationError:
        return _refused_value(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the value is not a JSON object: {error}") from None


def unreadable(raw: bytes) -> Map:
    """A placeholder for a value that Connect would refuse, so that it can be shown, removed and restored byte for byte."""
    try:
        return Map({UNREADABLE: raw.decode()})
    except UnicodeDecodeError:
        return Map({UNREADABLE: "base64:" + b64encode(raw).decode()})


def encode_value(offset: Map) -> bytes:
    """The bytes Connect writes for this offset."""
    if set(offset) != {UNREADABLE}:
        return encode_map(offset).encode()
    text = str(offset[UNREADABLE])
    return b64decode(text.removeprefix("base64:")) if text.startswith("base64:") else text.encode()


def _refused_value(raw: bytes) -> Map:
    """Decodes again, for an error that names the field."""
    try:
        return Map(msgspec.json.decode(raw, type=dict[str, object]))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Invalid(f"the value is not a JSON object: {error}") from None
