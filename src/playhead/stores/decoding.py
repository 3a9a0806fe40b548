"""Raw keys and values of Connect -> entries, the same for the topic and the file."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from playhead.connect.keys import OffsetKey, decode_key, decode_legacy_key, decode_value, without_envelope
from playhead.errors import Invalid
from playhead.model import Position
from playhead.model.position import Scalar
from playhead.stores import Raw, Stored

LEGACY = "a legacy record with a schema envelope, written before Kafka 3.0: no worker reads it any more"


class RawPair(NamedTuple):
    """`home`: the Kafka partition where the key belongs, if it lies elsewhere."""

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
    """`removed`: keep pairs whose value is null. What is not Connect's is counted; what Connect would refuse is named."""
    entries: list[Stored] = []
    notes: list[str] = []
    foreign = 0
    for pair in pairs:
        raw = pair.key
        key = decode_key(raw) if raw is not None else None
        legacy = raw is not None and key is None
        if raw is not None and key is None:
            key = decode_legacy_key(raw)
        if raw is None or key is None:
            foreign += 1
        elif (owners is None or key.connector in owners) and (removed or pair.value is not None):
            try:
                offset = (
                    None if pair.value is None else decode_value(without_envelope(pair.value) if legacy else pair.value)
                )
            except Invalid as error:
                notes.append(f"{key.connector} {key.partition}: {error.what}; left out")
                continue
            said = (LEGACY,) if legacy else notes_on(raw, key, pair)
            position = Position(key.connector, key.partition, offset)
            entries.append(Stored(position, pair.where, said, Raw(raw, pair.value)))
    if foreign:
        notes.append(f"{foreign} record(s) have a key that is not Connect's; left out")
    return Decoded(entries, notes)
