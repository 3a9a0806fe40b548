r"""The files of a Spark checkpoint as values: bytes in, bytes out, no I/O.

    metadata      {"id":"<query id>"}
    offsets/N     v1, a line of metadata, one line per source in the order of the query's plan; written before batch N runs.
                  v2 (Spark 4.2): the lines are `sourceId:offset`
    commits/N     v1 to v3 and a line of metadata; written after batch N ran
    sources/I/0   where a Kafka source began: one zero byte, v1, its offsets (Spark 2.1.0: without the version)
    .N.crc        Hadoop's checksum of N, in the same folder, on local disks

A source line of Kafka is `{"topic":{"partition":next offset}}`; `-` is a source that has no offset yet. What is not edited
stays the same byte for byte: metadata lines, other sources, the order of topics and partitions, a newline at the end or none.
A version line that Spark would not accept is malformed. A newer version than the known ones is refused: an edit could damage it.
"""

import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

import msgspec

from playhead.errors import Invalid, PlayheadError
from playhead.model import Map, Position
from playhead.model.position import INT64_MAX

OFFSETS_VERSION = 2
COMMITS_VERSION = 3
NO_OFFSET = "-"
NO_PARTITIONS = "{}"
WHOLE = Map({})  # the partition of a source that has none
_KEPT = "nothing was changed; restore the file from a copy of the checkpoint"
_VERSION = re.compile(r"v([1-9]\d*)", re.ASCII)
_PARTITION = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)
_CRC_MAGIC = b"crc\x00"
_CRC_CHUNK = 512

KafkaOffsets = dict[str, dict[int, int]]


class MalformedLog(PlayheadError):
    """`where` is the file inside the checkpoint."""

    def __init__(self, where: str, what: str, hint: str = _KEPT) -> None:
        super().__init__(f"{where} is malformed: {what}", hint)
        self.where = where


class NewerVersion(PlayheadError):
    def __init__(self, where: str, version: int, known: int) -> None:
        super().__init__(
            f"{where} has the newer version v{version}; versions up to v{known} are supported",
            "nothing was changed; use a newer Playhead",
        )
        self.where = where


@dataclass(frozen=True, slots=True)
class OffsetLog:
    """One file of `offsets/`. `ids`: the sources, from the third line on. `end`: the newline after the last line, if any."""

    version: int
    lines: tuple[str, ...]
    ids: tuple[str, ...]
    end: str

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "OffsetLog":
        lines, end = _lines(data, where)
        version = _version(lines[0].rstrip("\r"), OFFSETS_VERSION, where)
        if len(lines) < 2:
            raise MalformedLog(where, "it ends after its version")
        _object(lines[1].strip() or "{}", where, 2)
        if version == 1:
            ids = tuple(str(place) for place in range(len(lines) - 2))
        else:
            ids = tuple(_source_id(line, where, number) for number, line in enumerate(lines[2:], 3))
        if len(set(ids)) < len(ids):
            raise MalformedLog(where, "a source id is in it twice")
        log = cls(version, lines, ids, end)
        for number, text in enumerate(log.sources.values(), 3):
            if not text:
                raise MalformedLog(where, f"line {number} has no offset")
        return log

    def to_bytes(self) -> bytes:
        return ("\n".join(self.lines) + self.end).encode()

    @property
    def sources(self) -> dict[str, str]:
        """Source id -> the text of its offset. In v1 the id is the place in the query's plan."""
        texts = (line.rstrip("\r") for line in self.lines[2:])
        if self.version == 1:
            return dict(zip(self.ids, texts, strict=True))
        return {source: text.removeprefix(source + ":") for source, text in zip(self.ids, texts, strict=True)}

    @property
    def watermark_ms(self) -> int:
        return _int_of(_object(self.lines[1].strip() or "{}", "", 2), "batchWatermarkMs")

    def with_source(self, source: str, text: str) -> "OffsetLog":
        place = self.ids.index(source) + 2
        line = text if self.version == 1 else f"{source}:{text}"
        ending = "\r" if self.lines[place].endswith("\r") else ""
        return replace(self, lines=(*self.lines[:place], line + ending, *self.lines[place + 1 :]))


@dataclass(frozen=True, slots=True)
class CommitLog:
    """One file of `commits/`. `state`: it names files of the query's state."""

    version: int
    watermark_ms: int
    state: bool

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "CommitLog":
        lines, _ = _lines(data, where)
        version = _version(lines[0].strip(), COMMITS_VERSION, where)
        fields = _object(lines[1].strip() or "{}" if len(lines) > 1 else "{}", where, 2)
        return cls(version, _int_of(fields, "nextBatchWatermarkMs"), bool(fields.get("stateUniqueIds")))


def query_id(data: bytes) -> str:
    """The id in the file `metadata`."""
    lines, _ = _lines(data, "metadata")
    found = _object(lines[0].strip(), "metadata", 1).get("id")
    if not isinstance(found, str):
        raise MalformedLog("metadata", "it has no query id")
    return found


def find_initial_offsets(data: bytes, where: str) -> str | None:
    """The offsets in `sources/I/0` of a Kafka source; None for another kind of source."""
    if not data.startswith(b"\x00"):
        return None
    lines, _ = _lines(data[1:], where)
    if not lines[0].startswith("v"):
        return lines[0]  # as Spark 2.1.0 wrote it
    _version(lines[0], 1, where)
    if len(lines) < 2:
        raise MalformedLog(where, "it ends after its version")
    return lines[1]


def initial_bytes(text: str) -> bytes:
    return b"\x00v1\n" + text.encode()


# One source's offset


def find_kafka_offsets(text: str) -> KafkaOffsets | None:
    """Topic -> partition -> next offset; None if this is not the offset of a Kafka source."""
    found = _decoded(text)
    if not isinstance(found, dict):
        return None
    offsets: KafkaOffsets = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict) or not all(_is_kafka_pair(*pair) for pair in partitions.items()):
            return None
        offsets[topic] = {int(partition): offset for partition, offset in partitions.items()}
    return offsets


def find_flat_offset(text: str) -> Map | None:
    """The offset of another kind of source, if it is a flat object: only then it can be shown by field, and edited."""
    found = _decoded(text)
    try:
        return Map(found) if isinstance(found, dict) and found else None
    except Invalid:
        return None


def positions_of(owner: str, text: str) -> list[Position]:
    """The positions in a source's offset. An offset that is neither Kafka's nor flat is shown as text, `{"json": ...}`."""
    if text == NO_OFFSET:
        return []
    kafka = find_kafka_offsets(text)
    if kafka is not None:
        return [
            Position.of_kafka(owner, topic, partition, offset)
            for topic, partitions in sorted(kafka.items())
            for partition, offset in sorted(partitions.items())
        ]
    return [Position(owner, WHOLE, find_flat_offset(text) or Map({"json": text}))]


def with_positions(text: str, wanted: Mapping[Map, Map | None]) -> str:
    """The source's offset after these positions are set or deleted.

    A Kafka source without positions is `{}`: to Spark all partitions are new. It is never `-`, because with that Spark would
    continue from the batch before. Another kind of source has no value like `{}`, so its offset cannot be deleted.
    """
    kafka = find_kafka_offsets(text)
    if WHOLE in wanted and len(wanted) == 1 and kafka is None:
        offset = wanted[WHOLE]
        if offset is None:
            raise Invalid(
                "the offset of a source that is not Kafka's cannot be deleted", "set it to where it should continue"
            )
        return offset.to_json()
    if kafka is None and text != NO_OFFSET:
        raise Invalid("this is not a Kafka source: it has one offset and no partitions")
    offsets = kafka or {}
    for partition, offset in wanted.items():
        topic, number = _kafka_partition(partition)
        if offset is None:
            offsets.get(topic, {}).pop(number, None)
        else:
            offsets.setdefault(topic, {})[number] = _kafka_offset(offset)
    left = {topic: {str(number): at for number, at in found.items()} for topic, found in offsets.items() if found}
    return msgspec.json.encode(left).decode()


def _kafka_partition(partition: Map) -> tuple[str, int]:
    topic, number = partition.get("kafka_topic"), partition.get("kafka_partition")
    if len(partition) == 2 and isinstance(topic, str) and topic and _is_count(number) and number < 2**31:
        return topic, number
    raise Invalid(
        f"{partition} is not a partition of a Kafka source",
        'write it like {"kafka_topic":"orders","kafka_partition":0}',
    )


def _kafka_offset(offset: Map) -> int:
    number = offset.get("kafka_offset")
    if len(offset) == 1 and _is_count(number):
        return number
    raise Invalid(f"{offset} is not an offset of a Kafka source", 'write it like {"kafka_offset":5}, 0 or more')


def _is_kafka_pair(partition: str, offset: object) -> bool:
    return _PARTITION.fullmatch(partition) is not None and (_is_count(offset) or offset in (-1, -2))


def _is_count(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= INT64_MAX


# Hadoop's checksum files


def crc_bytes(data: bytes) -> bytes:
    """The content of `.N.crc` for a file N with this content."""
    return _crc(data, _CRC_CHUNK)


def matches_crc(data: bytes, crc: bytes) -> bool:
    """Whether the content matches its checksum file. A checksum file of another form is ignored."""
    if not crc.startswith(_CRC_MAGIC) or len(crc) < 8:
        return True
    (chunk,) = struct.unpack(">I", crc[4:8])
    return chunk == 0 or _crc(data, chunk) == crc


def _crc(data: bytes, chunk: int) -> bytes:
    sums = (zlib.crc32(data[at : at + chunk]) for at in range(0, len(data), chunk))
    return _CRC_MAGIC + struct.pack(">I", chunk) + b"".join(struct.pack(">I", value) for value in sums)


# Text


def _lines(data: bytes, where: str) -> tuple[tuple[str, ...], str]:
    if not data:
        raise MalformedLog(where, "it is empty")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise MalformedLog(where, f"byte {error.start} is not UTF-8") from None
    end = "\n" if text.endswith("\n") else ""
    return tuple(text.removesuffix("\n").split("\n")), end


def _source_id(line: str, where: str, number: int) -> str:
    source, colon, _ = line.partition(":")
    if not colon:
        raise MalformedLog(where, f"line {number} has no source id")
    return source


def _version(line: str, known: int, where: str) -> int:
    matched = _VERSION.fullmatch(line)
    if not matched:
        raise MalformedLog(where, f"its first line is {line[:20]!r}, not a version like v1")
    digits = matched.group(1)
    version = (
        int(digits) if len(digits) < 10 else 10**9
    )  # Spark's version is an int of 32 bits; any larger one is unknown
    if version > known:
        raise NewerVersion(where, version, known)
    return version


def _object(text: str, where: str, number: int) -> dict[str, object]:
    found = _decoded(text)
    if not isinstance(found, dict):
        raise MalformedLog(where, f"line {number} is not a JSON object")
    return found


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


def _int_of(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0
