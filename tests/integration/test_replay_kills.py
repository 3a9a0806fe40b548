"""`playhead replay` is killed again and again, into a folder and into a bucket: every record is there once, by pyarrow."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pyarrow import fs

from integration.delivering import JSON_FORMAT, PARQUET_FORMAT, S3_SINK, places_in_files
from integration.on_spark import JSON, Topics
from integration.victims import Victim, check_once
from playhead.lab import Lab, LabOptions
from playhead.model import Deadline

pytest.importorskip("pyspark")
TOPIC, COUNT, PARTITIONS = "replayed", 6_000, 2
NAMES = ("r-folder", "r-bucket")


class Replayed:
    """One topic in a folder and in a bucket, with a ledger that both runs share."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.lake = lab, folder / "lake"
        files = {"connector.class": S3_SINK, "topics": TOPIC, "flush.size": "100", **JSON}
        bucket = {"store.url": lab.s3_url, "s3.bucket.name": "replayed", "s3.region": "us-east-1"}
        self.configs = {
            "r-folder": {**files, "store.url": self.lake.as_uri(), "format.class": JSON_FORMAT},
            "r-bucket": {**files, **bucket, "format.class": PARQUET_FORMAT},
        }
        self.file = folder / "replayed.yaml"
        self.flush = dict.fromkeys(NAMES, "100")
        self.write()
        aws = {name: value for name, value in lab.environment().items() if name.startswith("AWS_")}
        self.victim = Victim(lab, self.file, COUNT, {**aws, "XDG_STATE_HOME": str(folder)})
        Topics(lab).make_topic(TOPIC, PARTITIONS)
        lab.make_bucket("replayed")
        Topics(lab).send(TOPIC, COUNT, partitions=PARTITIONS)
        assert self.victim.end(self.victim.start()) == 0, self.victim.log
        self.s3 = fs.S3FileSystem(
            endpoint_override=lab.s3_url, access_key=lab.s3_identity, secret_key=lab.s3_credential
        )

    def write(self) -> None:
        configs = {
            name: {"engine": "spark", "config": {**one, "flush.size": self.flush[name]}}
            for name, one in self.configs.items()
        }
        self.file.write_text(json.dumps({"connectors": configs}))

    def start(self, name: str) -> "subprocess.Popen[str]":
        words = ["replay", name, "--range", TOPIC, "-f", str(self.file), "--chunk-rows", "1000", "--execute"]
        words += ["--ledger", f"sqlite:///{self.victim.ledger}", "--worker-config", str(self.lab.worker_config)]
        return subprocess.Popen(
            [sys.executable, "-m", "playhead", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.victim.environment},
            start_new_session=True,
        )

    def committed(self, name: str) -> int:
        """The newest range of that pipeline, by SQLite itself."""
        asked = "select coalesce(max(seq), 0) from playhead_ranges where pipeline = ?"
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.victim.ledger, timeout=5)) as database:
            return int(database.execute(asked, [name]).fetchone()[0])
        return 0

    def kill(self, name: str) -> None:
        before, process = self.committed(name), self.start(name)
        Deadline(120).wait_for(lambda: self.committed(name) > before or process.poll() is not None, "a committed step")
        time.sleep(random.random() * 0.5)
        self.victim.log.append(f"kill {name}, {'too late' if process.poll() is not None else 'in time'}")
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self.victim.end(process)

    def lose(self) -> None:
        """Some objects are deleted by hand, in both places."""
        for path in random.sample(sorted(self.lake.rglob("*.json")), 5):
            path.unlink()
        found = self.s3.get_file_info(fs.FileSelector("replayed/topics", recursive=True))
        for info in random.sample([one for one in found if one.type == fs.FileType.File], 5):
            self.s3.delete_file(info.path)

    def check(self, context: str) -> None:
        wanted = {(TOPIC, n % PARTITIONS, n // PARTITIONS, n) for n in range(COUNT)}
        folder = places_in_files(fs.LocalFileSystem(), f"{self.lake}/topics")
        check_once(folder, wanted, f"in the folder, {context}")
        check_once(places_in_files(self.s3, "replayed/topics"), wanted, f"in the bucket, {context}")
        asked = "select pipeline, sum(count), count(*) from playhead_ranges where state = 'committed' group by 1"
        with closing(sqlite3.connect(self.victim.ledger)) as database:
            assert {row[:2] for row in database.execute(asked)} == {(name, COUNT) for name in NAMES}, context


def check_kills(lab: Lab, folder: Path, rounds: int) -> None:
    random.seed(seed := time.time_ns())
    replayed = Replayed(lab, folder)
    for number in range(rounds):
        name = NAMES[number % 2]
        replayed.lose()
        if number < 2 or random.random() < 0.5:  # with other options, once what was killed before is completed
            if number >= 2:
                assert replayed.victim.end(replayed.start(name)) == 0, replayed.victim.log
            replayed.flush[name] = random.choice(["30", "70"])
            replayed.write()
        replayed.kill(name)
    for name in NAMES:
        assert replayed.victim.end(replayed.start(name)) == 0, replayed.victim.log
    replayed.check(f"seed {seed}: {replayed.victim.log}")


@pytest.mark.timeout(600)
def test_a_killed_replay_is_completed_by_the_same_command(make_lab, tmp_path):
    check_kills(make_lab(LabOptions(extras=("s3",))), tmp_path, 1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_kills_of_replays_lose_and_double_nothing(make_lab, tmp_path):
    check_kills(make_lab(LabOptions(extras=("s3",))), tmp_path, 10)
