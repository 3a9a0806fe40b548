"""Decodes raw keys and values of Connect into entries, for the topic and the file."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from playhead.connect.keys import OffsetKey, decode_key, decode_legacy_key, decode_value, unreadable, without_envelope
from playhead.errors import Invalid
from playhead.model import Map, Position
from playhead.model.position import Scalar
from playhead.stores import Raw, Stored

LEGACY = "a legacy record with a schema envelope, written before Kafka 3.0: workers no longer read it"


class RawPair(NamedTuple):
    """`home`: the Kafka partition where the key belongs, if it is in another one."""

    key: bytes | None
    value: bytes | None
    where: Mapping[str, Scalar]
    home: int | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    entries: list[Stored]
    notes: list[str]


def decode_pairs(
    pairs: Iterable[RawPair],
    owners: Collection[str] | None,
    *,
    removed: bool,
    notes_on: Callable[[bytes, OffsetKey, RawPair], tuple[str, ...]] = lambda raw, key, pair: (),
) -> Decoded:
    """`removed`: keep tombstones. Keys that are not Connect's are counted. Values that Connect would refuse get a note."""
    entries: list[Stored] = []
    foreign = 0
    for pair in pairs:
        raw, value, where, _ = pair
        key = decode_key(raw) if raw is not None else None
        legacy = raw is not None and key is None
        if raw is not None and key is None:
            key = decode_legacy_key(raw)
        if raw is None or key is None:
            foreign += 1
        elif (owners is None or key.connector in owners) and (removed or not is_nothing(value)):
            remarks = (LEGACY,) if legacy else notes_on(raw, key, pair)
            offset, fault = _offset(value, legacy=legacy)
            position = Position(key.connector, key.partition, offset)
            entries.append(Stored(position, where, (*remarks, fault) if fault else remarks, Raw(raw, value)))
    notes = [f"{foreign} record(s) have a key that is not Connect's; skipped"] if foreign else []
    return Decoded(entries, notes)


def _offset(value: bytes | None, *, legacy: bool) -> tuple[Map | None, str]:
    """The offset, and a message if Connect would refuse it. Such a value is shown as it is, so that it can be deleted."""
    if value is None or value == b"null":
        return None, ""
    try:
        return decode_value(without_envelope(value) if legacy else value), ""
    except Invalid as error:
        return unreadable(value), f"workers refuse this value, and the connector starts over there: {error.what}"


def is_nothing(value: bytes | None) -> bool:
    """A tombstone, or a JSON null, which Connect reads as one."""
    return value is None or value == b"null"
