"""What a topic accepts by size. A broker compares `max.message.bytes` with a batch as it is sent, which is after compression, and
once more after it has compressed the batch again, if the topic has a `compression.type` of its own.

A copy sends a record that is larger than the limit in a batch of its own. Whether it fits is known before anything is written:
it is compressed as the client does it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from playhead.kafka.copying import codec_of
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topic_configs import TopicSettings

LIMIT = "max.message.bytes"
OVERHEAD_BYTES = 100  # of a record in a batch, and of the batch
_CODEC = "compression.type"
_AS_SENT = "producer"
_BLOCK = 64 * 1024  # what LZ4 and Snappy compress on its own
_SPARE = 20  # a twentieth more: versions of a library differ


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """`codecs`: of the client, and of the topic if that is another one. A batch must fit with each of them."""

    largest: int = 0
    codecs: tuple[str, ...] = ("none",)

    @classmethod
    def of(cls, topic: TopicSettings, client: ClientSettings) -> "SizeLimit":
        codecs = {codec_of(client)}
        if (own := topic[_CODEC].value) not in (None, _AS_SENT):
            codecs.add(str(own))
        return cls(int(topic[LIMIT].value or 0), tuple(sorted(codecs)))

    @property
    def room(self) -> int:
        """For the bytes of one record."""
        return self.largest - OVERHEAD_BYTES

    def size_of(self, content: bytes) -> int:
        """Of a record, at most, with the codec that makes it largest."""
        return max(_compressed(content, codec) for codec in self.codecs)


def _compressed(content: bytes, codec: str) -> int:
    if codec not in _PACKED:  # none, uncompressed
        return len(content)
    packed = _PACKED[codec](content)
    return min(len(content), packed + packed // _SPARE)  # a client sends what does not become smaller as it is


def _in_blocks(codec: str) -> Callable[[bytes], int]:
    def size(content: bytes) -> int:
        blocks = (content[at : at + _BLOCK] for at in range(0, len(content), _BLOCK))
        return sum(len(pa.compress(block, codec=codec, asbytes=True)) for block in blocks)

    return size


def _as_a_whole(codec: str, level: int) -> Callable[[bytes], int]:
    return lambda content: len(pa.Codec(codec, level).compress(content, asbytes=True))


_PACKED = {
    "lz4": _in_blocks("lz4"),
    "snappy": _in_blocks("snappy"),
    "gzip": _as_a_whole("gzip", 6),
    "zstd": _as_a_whole("zstd", 3),
}
