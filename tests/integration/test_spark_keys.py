"""Records with keys that transforms made, from a table to a topic with several partitions, read back by Kafka's own consumer."""

import json
from collections import defaultdict
from itertools import groupby, pairwise

import pytest

from integration.ingesting import ingest, records_of  # noqa: F401
from integration.transform_oracle import partitions_chosen
from playhead.kafka.client import describe_cluster
from playhead.kafka.properties import ClientSettings
from playhead.ledger.model import RunState
from playhead.model import Deadline

pytest.importorskip("pyspark")
KAFKA = "org.apache.kafka.connect.transforms."
KEYED = {
    "transforms": "route,key,only",
    "transforms.route.type": KAFKA + "RegexRouter",
    "transforms.route.regex": "raw_(.*)",
    "transforms.route.replacement": "$1",
    "transforms.key.type": KAFKA + "ValueToKey",
    "transforms.key.fields": "k",
    "transforms.only.type": KAFKA + "ExtractField$Key",
    "transforms.only.field": "k",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
}
Seen = tuple[int, int, bytes | None, str]  # partition, offset, key, value


def seen_in(ingest, topic: str) -> list[Seen]:
    found = records_of(ingest.lab, topic)
    return sorted((one.partition, one.offset, one.key, (one.value or b"").decode()) for one in found)


def test_keys_choose_the_partition_that_kafka_s_own_producer_would(ingest, tmp_path):
    ingest.make_topic("keyed", 3)
    ingest.lab.psql("CREATE TABLE raw_keyed (id bigserial PRIMARY KEY, k text)")
    ingest.lab.psql("INSERT INTO raw_keyed (k) SELECT 'kéy ' || i % 97 FROM generate_series(1, 5000) i")
    (run,) = ingest.run(ingest.table("raw_keyed", **KEYED), rows_per_chunk=2_000)
    assert (run.state, run.rows) == (RunState.FINISHED, 5_000)
    seen = seen_in(ingest, "keyed")
    ids = [json.loads(value)["id"] for *_, value in seen]
    assert sorted(ids) == list(range(1, 5_001))
    assert [key for _, _, key, _ in seen] == [f"kéy {number % 97}".encode() for number in ids]
    assert [partition for partition, *_ in seen] == partitions_chosen([key or b"" for _, _, key, _ in seen], 3)
    assert len({partition for partition, *_ in seen}) == 3


def test_a_key_keeps_its_order_and_the_ledger_knows_where_each_chunk_went(ingest):
    ingest.make_topic("ordered", 3)
    ingest.lab.psql("CREATE TABLE raw_ordered (id bigserial PRIMARY KEY, k int)")
    for _ in range(2):
        ingest.lab.psql("INSERT INTO raw_ordered (k) SELECT CASE i % 10 WHEN 0 THEN NULL ELSE i % 7 END"
                        " FROM generate_series(1, 1500) i")  # fmt: skip
        ingest.run(ingest.table("raw_ordered", **KEYED))  # one chunk each
    by_key = defaultdict(list)
    seen = seen_in(ingest, "ordered")
    for _, _, key, value in seen:
        by_key[key].append(json.loads(value)["id"])
    assert None in by_key
    assert all(a < b for key, ids in by_key.items() if key is not None for a, b in pairwise(ids))
    settings = ClientSettings({"bootstrap.servers": ingest.lab.bootstrap_servers})
    cluster = describe_cluster(settings, Deadline(30)).id
    chunks = [found.chunk for found in ingest.ledger.list_chunks(cluster, "c-raw_ordered")]
    for partition, records in groupby(seen, key=lambda one: one[0]):
        recorded = [chunk.offsets[partition] for chunk in chunks]
        covered = {offset for first, last in recorded for offset in range(first, last + 1)}
        assert {offset for _, offset, _, _ in records} == covered
