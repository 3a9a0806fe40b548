"""Sinks that are killed again and again, with what they read from and write to under them: every record is there once."""

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyarrow import fs

from integration.delivering import JSON_FORMAT, PARQUET_FORMAT, S3_SINK, Place, places_in_files, places_in_rows
from integration.on_spark import JSON, Topics
from integration.sinks_on_the_lab import Headers
from integration.victims import DRIVER, WORKER, Victim, check_once, committed, outlive, suffer
from playhead.lab import Lab, LabOptions

pytest.importorskip("pyspark")
OFFSETS_PER_STEP, PARTITIONS = 1_200, 3
# Without a key, so that a row which comes twice is there twice.
TABLE = (
    "CREATE TABLE killed (__connect_topic text, __connect_partition int, __connect_offset bigint, id bigint, t text)"
)
SCHEMA = '{"type":"struct","fields":[{"type":"int64","field":"id"},{"type":"string","field":"t"}]}'


# Every fifth record is dropped, every second one goes to another topic, and all know where they were.
KINDS = "org.apache.kafka.connect.transforms."
CHAIN = {
    "transforms": "drop,route,place",
    "transforms.drop.type": f"{KINDS}Filter",
    "transforms.drop.predicate": "dropped",
    "transforms.route.type": f"{KINDS}RegexRouter",
    "transforms.route.regex": "(.*)",
    "transforms.route.replacement": "odd-$1",
    "transforms.route.predicate": "odd",
    "transforms.place.type": f"{KINDS}InsertField$Value",
    "transforms.place.topic.field": "topic",
    "transforms.place.partition.field": "part",
    "transforms.place.offset.field": "at",
    "predicates": "dropped,odd",
    "predicates.dropped.type": f"{KINDS}predicates.HasHeaderKey",
    "predicates.dropped.name": "drop",
    "predicates.odd.type": f"{KINDS}predicates.HasHeaderKey",
    "predicates.odd.name": "odd",
}


def connectors(lab: Lab, folder: Path) -> Mapping[str, Mapping[str, str]]:
    """One topic into a folder, a bucket and a table; another one through a chain into the bucket."""
    files = {"connector.class": S3_SINK, "topics": "killed", "flush.size": "500", **JSON}
    bucket = {"store.url": lab.s3_url, "s3.bucket.name": "killed", "s3.region": "us-east-1"}
    rows = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": "killed",
        "connection.url": lab.jdbc_url,
        "pk.mode": "kafka",
        **JSON,
        "value.converter.schemas.enable": "true",
        "value.converter.schema.content": SCHEMA,
    }
    return {
        "k-folder": {**files, "store.url": folder.as_uri(), "format.class": JSON_FORMAT},
        "k-bucket": {**files, **bucket, "format.class": PARQUET_FORMAT},
        "k-rows": rows,
        "k-chain": {
            **files,
            **bucket,
            **CHAIN,
            "topics": "sieved",
            "topics.dir": "sieved",
            "format.class": PARQUET_FORMAT,
        },
    }


class Killed:
    """The topics and their targets."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.lake, self.sent, self._rows = lab, folder / "lake", 0, 0
        configs = {name: {"engine": "spark", "config": one} for name, one in connectors(lab, self.lake).items()}
        file = folder / "killed.yaml"
        file.write_text(json.dumps({"connectors": configs}))
        aws = {name: value for name, value in lab.environment().items() if name.startswith("AWS_")}
        self.victim = Victim(lab, file, OFFSETS_PER_STEP, aws)
        Topics(lab).make_topic("killed", PARTITIONS)
        Topics(lab).make_topic("sieved", PARTITIONS)
        lab.make_bucket("killed")
        lab.psql(TABLE)

    def send(self, count: int) -> None:
        Topics(self.lab).send("killed", count, partitions=PARTITIONS, start=self.sent)
        producer = Producer({"bootstrap.servers": self.lab.bootstrap_servers, "enable.idempotence": True})
        for number in range(self.sent, self.sent + count):
            marks: Headers = [(name, b"") for name, of in (("drop", number % 5 == 0), ("odd", number % 2)) if of]
            producer.produce("sieved", b'{"id":%d}' % number, partition=number % PARTITIONS, headers=marks)
            producer.poll(0)
        assert producer.flush(120) == 0
        self.sent += count

    def seen(self) -> int:
        """Records in all targets together. A database that is down has what it had."""
        with suppress(subprocess.CalledProcessError):
            self._rows = int(self.lab.psql("SELECT count(*) FROM killed"))
        return committed(self.victim.ledger, "playhead_ranges") + self._rows

    def check(self, context: str) -> None:
        lab = self.lab
        wanted = {("killed", n % PARTITIONS, n // PARTITIONS, n) for n in range(self.sent)}
        bucket = fs.S3FileSystem(endpoint_override=lab.s3_url, access_key=lab.s3_identity, secret_key=lab.s3_credential)
        check_once(places_in_files(fs.LocalFileSystem(), f"{self.lake}/topics"), wanted, f"in the folder, {context}")
        check_once(places_in_files(bucket, "killed/topics"), wanted, f"in the bucket, {context}")
        check_once(places_in_rows(lab, "killed"), wanted, f"in the table, {context}")
        sieved = {("odd-" * (n % 2) + "sieved", *place) for _, *place in wanted for n in place[-1:] if n % 5}
        check_once(places_in_columns(bucket, "killed/sieved"), sieved, f"behind the chain, {context}")


def places_in_columns(store: fs.FileSystem, folder: str) -> Counter[Place]:
    """By the columns that the chain adds; the folder is that of the topic."""
    found: Counter[Place] = Counter()
    for info in store.get_file_info(fs.FileSelector(folder, recursive=True)):
        if info.type == fs.FileType.File:
            with store.open_input_file(info.path) as file:
                rows = pq.read_table(file, columns=["topic", "part", "at", "id"]).to_pylist()
            assert {row["topic"] for row in rows} == {info.path.split("/")[2]}, info.path
            found.update((row["topic"], row["part"], row["at"], row["id"]) for row in rows)
    return found


def check_kills(lab: Lab, folder: Path, rounds: int) -> None:
    """`rounds` 0: one continuous run under which the parts are killed, once each."""
    random.seed(seed := time.time_ns())
    killed = Killed(lab, folder)
    victim = killed.victim
    killed.send(9_000 if rounds else 4_800)
    if rounds:
        suffer(victim, [DRIVER, WORKER, "broker-1", "postgres", "s3"], rounds, killed.seen, lambda: killed.send(4_500))
    else:
        outlive(victim, ["broker-1", "postgres", "s3"], killed.seen, lambda: killed.send(2_400))
    assert victim.end(victim.start()) == 0, victim.log
    killed.check(f"seed {seed}: {victim.log}")


@pytest.mark.timeout(600)
def test_continuous_sinks_outlive_all_that_they_use_and_killed_ones_are_continued(make_lab, tmp_path):
    check_kills(make_lab(LabOptions(extras=("s3",))), tmp_path, 0)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_hundred_kills_of_sinks_lose_and_double_nothing(make_lab, tmp_path):
    check_kills(make_lab(LabOptions(extras=("s3",))), tmp_path, 100)
