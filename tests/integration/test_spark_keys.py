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


def test_headers_that_transforms_make_are_those_of_the_records(ingest):
    ingest.make_topic("with_headers", 1)
    ingest.lab.psql("CREATE TABLE with_headers (id bigserial PRIMARY KEY, t text)")
    ingest.lab.psql("INSERT INTO with_headers (t) VALUES ('a'), (NULL), ('c')")
    chain = {
        "transforms": "own,from",
        "transforms.own.type": KAFKA + "InsertHeader",
        "transforms.own.header": "origin",
        "transforms.own.value.literal": "shop",
        "transforms.from.type": KAFKA + "HeaderFrom$Value",
        "transforms.from.fields": "id,t",
        "transforms.from.headers": "number,text",
        "transforms.from.operation": "copy",
    }
    (run,) = ingest.run(ingest.table("with_headers", **chain))
    assert (run.state, run.rows) == (RunState.FINISHED, 3)
    printed = ingest.lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *["--bootstrap-server", ingest.lab.bootstrap_servers, "--topic", "with_headers", "--from-beginning"],
        *["--max-messages", "3", "--formatter-property", "print.headers=true", "--timeout-ms", "20000"],
        *["--formatter-property", "print.value=false", "--command-property", "isolation.level=read_committed"],
    )
    assert printed.splitlines() == [
        "origin:shop,number:1,text:a",
        "origin:shop,number:2,text:null",
        "origin:shop,number:3,text:c",
    ]


def test_the_position_passes_rows_of_which_none_becomes_a_record(ingest):
    """As in Connect, where offsets of records that a transform dropped are committed."""
    ingest.make_topic("dropped", 1)
    ingest.lab.psql("CREATE TABLE dropped (id bigserial PRIMARY KEY)")
    ingest.lab.psql("INSERT INTO dropped SELECT i FROM generate_series(1, 50) i")
    chain = {
        "transforms": "drop",
        "transforms.drop.type": KAFKA + "Filter",
        "transforms.drop.predicate": "all",
        "predicates": "all",
        "predicates.all.type": KAFKA + "predicates.TopicNameMatches",
        "predicates.all.pattern": "dropped",
    }
    (run,) = ingest.run(ingest.table("dropped", **chain))
    assert (run.state, run.rows) == (RunState.FINISHED, 0)
    assert records_of(ingest.lab, "dropped") == []
    assert ingest.positions("c-dropped")[-1] == '{"incrementing":50}'
    ingest.lab.psql("INSERT INTO dropped VALUES (51)")
    (run,) = ingest.run(ingest.table("dropped"))
    assert run.rows == 1
    assert [json.loads(record.value or b"")["id"] for record in records_of(ingest.lab, "dropped")] == [51]
