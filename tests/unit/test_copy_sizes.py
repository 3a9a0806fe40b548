"""How large a record is for a broker: compressed, as the client sends it."""

import random

import pytest

pytest.importorskip("pyarrow")
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topic_configs import TopicSetting
from playhead.pipeline.copy.sizes import SizeLimit


def limit_of(topic_codec: str, **client: str) -> SizeLimit:
    values = {"max.message.bytes": "20000", "compression.type": topic_codec}
    settings = {name: TopicSetting(name, value, "topic") for name, value in values.items()}
    return SizeLimit.of(settings, ClientSettings(producer={k.replace("_", "."): v for k, v in client.items()}))


@pytest.mark.parametrize("codec", ["lz4", "snappy", "gzip", "zstd"])
def test_a_record_counts_as_compressed(codec):
    limit = limit_of("producer", compression_type=codec)
    assert limit.codecs == (codec,)
    assert limit.size_of(b"x" * 200_000) < 20_000 - 100
    assert limit.size_of(random.randbytes(30_000)) == 30_000


def test_a_topic_that_is_kept_uncompressed_counts_every_byte():
    limit = limit_of("uncompressed")
    assert limit.codecs == ("lz4", "uncompressed")
    assert limit.size_of(b"x" * 200_000) == 200_000


def test_without_compression_every_byte_counts():
    assert limit_of("producer", compression_type="none").size_of(b"x" * 30_000) == 30_000
