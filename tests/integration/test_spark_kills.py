"""A run that is killed again and again, with the broker and the database under it: in the end every row is there once."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from integration.ingesting import JDBC, add_rows, consumed, make_rows
from playhead.lab import Lab, LabOptions
from playhead.model import Deadline

pytest.importorskip("pyspark")
ROWS, CHUNK_ROWS = 30_000, 1_500
FILE = """\
connectors:
  killed:
    engine: spark
    config:
      connector.class: {jdbc}
      connection.url: {url}
      mode: incrementing
      incrementing.column.name: id
      table.whitelist: killed
      topic.prefix: ""
      value.converter: org.apache.kafka.connect.json.JsonConverter
      value.converter.schemas.enable: false
"""


@dataclass
class Victim:
    """`playhead run` as a process of its own, with everything it started."""

    lab: Lab
    file: Path
    log: list[str] = field(default_factory=list)

    def start(self) -> "subprocess.Popen[str]":
        words = ["run", str(self.file), "--chunk-rows", str(CHUNK_ROWS), "--ledger", f"sqlite:///{self.file}.db"]
        words += ["--worker-config", str(self.lab.worker_config), "--horizon-timeout", "20s"]
        return subprocess.Popen(
            [sys.executable, "-m", "playhead", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def end(self, process: "subprocess.Popen[str]", seconds: float = 150) -> int:
        told, _ = process.communicate(timeout=seconds)
        self.log.append(f"exit {process.returncode}: {told}")
        return process.returncode

    def kill_driver(self, process: "subprocess.Popen[str]") -> None:
        os.killpg(process.pid, signal.SIGKILL)

    def kill_worker(self, process: "subprocess.Popen[str]") -> None:
        """One of Spark's Python workers: what an executor that dies is on one machine."""
        with suppress(psutil.Error):
            children = psutil.Process(process.pid).children(recursive=True)
            workers = [child for child in children if child.name().startswith("python")]
            if children:  # else it has just ended by itself
                random.choice(workers[-2:] or children).kill()

    def kill_part(self, name: str) -> None:
        (part,) = [part for part in self.lab.status() if part.name == name]
        os.kill(part.pid or 0, signal.SIGKILL)
        time.sleep(random.random())
        self.lab.up(LabOptions())


def wait_until_it_moves(process: "subprocess.Popen[str]", seen: Callable[[], int], before: int) -> None:
    Deadline(120).wait_for(lambda: seen() > before or process.poll() is not None, "the run to move")


def suffer(victim: Victim, rounds: int, seen: Callable[[], int]) -> None:
    kinds = ["driver", "worker", "broker-1", "postgres"]
    for kind in [*kinds, *random.choices(kinds, k=max(0, rounds - len(kinds)))][:rounds]:
        before = seen()
        process = victim.start()
        wait_until_it_moves(process, seen, before)
        time.sleep(random.random() * 2)
        victim.log.append(f"kill {kind}")
        if kind == "driver":
            victim.kill_driver(process)
        elif kind == "worker":
            victim.kill_worker(process)
        else:
            victim.kill_part(kind)
        victim.end(process)
        add_rows(victim.lab, "killed", 500)


def committed(ledger: Path) -> int:
    """Rows that the ledger tells of, read without a word to the run."""
    if not ledger.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=5)) as database:
            return int(database.execute("SELECT coalesce(sum(count), 0) FROM playhead_chunks").fetchone()[0])
    except sqlite3.OperationalError:  # no table yet, or the journal of a killed writer that a reader may not undo
        return 0


def check_kills(make_lab: Callable[[LabOptions], Lab], folder: Path, rounds: int) -> None:
    random.seed(seed := time.time_ns())
    lab = make_lab(LabOptions())
    make_rows(lab, "killed", ROWS)
    file = folder / "killed.yaml"
    file.write_text(FILE.format(jdbc=JDBC, url=lab.jdbc_url))
    victim = Victim(lab, file)

    suffer(victim, rounds, lambda: committed(Path(f"{file}.db")))
    assert victim.end(victim.start()) == 0, victim.log
    ids = Counter(json.loads(line)["id"] for line in consumed(lab, "killed"))
    wanted = {int(number) for number in lab.psql("SELECT id FROM killed").split()}
    missing, doubled = wanted - set(ids), [number for number, count in ids.items() if count > 1]
    assert not missing, f"seed {seed}: missing {sorted(missing)[:10]} ... {victim.log}"
    assert not doubled, f"seed {seed}: doubled {sorted(doubled)[:10]} ... {victim.log}"
    assert set(ids) == wanted


@pytest.mark.timeout(900)
def test_five_kills_lose_and_double_nothing(make_lab, tmp_path):
    check_kills(make_lab, tmp_path, 5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_kills_lose_and_double_nothing(make_lab, tmp_path):
    check_kills(make_lab, tmp_path, 100)
