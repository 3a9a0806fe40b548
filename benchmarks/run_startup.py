"""`playhead run` of a small table, from the command to its first record: wall time of each phase, and CPU time of the whole.

1,000 rows of PostgreSQL into a topic that exists. The records are seen by plain consumers that ask the broker for the end of
the topic, with open transactions and without. `BEFORE=FOLDER` in the environment names the `src` folder of other code, which
is run in turn with this one; `ROUNDS=5` sets how often.
"""

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from spark_runs import SMALL, bench_lab, make_topic

import playhead
from playhead.lab import Lab
from playhead.model import Deadline
from playhead.pipeline.class_archive import archive_folder

ROUNDS = int(os.environ.get("ROUNDS", "5"))
TABLE = """
CREATE TABLE small (id bigserial PRIMARY KEY, n int NOT NULL, t text NOT NULL, d double precision, ts timestamp);
INSERT INTO small (n, t, d, ts) SELECT i, md5(i::text), i / 7.0, now() FROM generate_series(1, {rows}) i
"""
FILE = """connectors:
  {name}:
    engine: spark
    config:
      connector.class: io.confluent.connect.jdbc.JdbcSourceConnector
      connection.url: {url}
      mode: incrementing
      incrementing.column.name: id
      table.whitelist: small
      topic.prefix: {name}-
"""
# The lines of a run on stderr, each with the phase that it ends.
LINES = {"checking": "imports", "starting Spark": "checks", "Spark has started": "session"}
RECORD, COMMIT, END = "plan and first record", "commit", "end"
PHASES = (*LINES.values(), RECORD, COMMIT, END)


def measure() -> Iterator[str]:
    trees = {"now": Path(playhead.__file__).parent.parent}
    if before := os.environ.get("BEFORE"):
        trees = {"before": Path(before), **trees}
    with bench_lab() as (lab, folder, _):
        lab.psql(TABLE.format(rows=SMALL))
        lists = archive_folder().glob
        left = set(lists("*.classes"))  # by killed runs
        for name, source in trees.items():  # jars, bytecode and archives are there when the clock starts
            _Run(lab, folder, source, f"first-{name}").times()
        Deadline(600).wait_for(lambda: not set(lists("*.classes")) - left, "writing the archive of classes")
        found: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
        for number in range(ROUNDS):
            for name, source in trees.items():
                found[name].append(_Run(lab, folder, source, f"{name}{number}").times())
    yield from _lines(found)


def _lines(found: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    for name, runs in found.items():
        phases = ", ".join(f"{phase} {median(run[phase] for run in runs):.2f}" for phase in PHASES)
        yield f"{name}: seconds by phase, medians of {len(runs)}: {phases}"
        for what in ("to the first record", "to the end", "CPU"):
            seconds = [run[what] for run in runs]
            yield f"{name}: {what} {median(seconds):.2f} s (best {min(seconds):.2f}, worst {max(seconds):.2f})"
    if "before" in found:
        for what in ("to the first record", "to the end", "CPU"):
            old, new = (median(run[what] for run in found[name]) for name in ("before", "now"))
            yield f"{what}: {new / old:.2f} of before"
    best = min(run["to the first record"] for run in found["now"])
    yield f"bar: the first record at most 7 s after the command; got {best:.2f} s"


class _Run:
    def __init__(self, lab: Lab, folder: Path, source: Path, name: str) -> None:
        self._lab = lab
        self._folder = folder
        self._source = source
        self._name = name

    def times(self) -> dict[str, float]:
        topic = f"{self._name}-small"
        make_topic(self._lab, topic, 1)
        file = self._folder / f"{self._name}.yaml"
        file.write_text(FILE.format(name=self._name, url=self._lab.jdbc_url))
        command = [sys.executable, "-m", "playhead", "run", str(file), "--master", "local[2]"]
        command += ["--worker-config", str(self._folder / "worker.properties")]
        command += ["--ledger", f"sqlite:///{self._folder}/{self._name}.db"]
        watch = _Watch(self._lab.bootstrap_servers, topic)
        used = _children()
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(self._source)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        seen = {}
        lines = []
        for line in process.stderr or ():
            lines.append(line)
            for start, phase in LINES.items():
                if line.startswith(start):
                    seen[phase] = time.perf_counter() - started
        if process.wait():
            raise SystemExit("".join(lines))
        seen[END] = time.perf_counter() - started
        cpu = _children() - used
        seen |= {phase: at - started for phase, at in watch.times().items()}
        times = {"to the first record": seen[RECORD], "to the end": seen[END], "CPU": cpu}
        last = 0.0
        for phase in PHASES:
            times[phase], last = seen[phase] - last, seen[phase]
        return times


class _Watch:
    """When the first record of the topic appeared, and when it was committed."""

    def __init__(self, servers: str, topic: str) -> None:
        self._partition = TopicPartition(topic, 0)
        self._found: dict[str, float] = {}
        self._threads = [
            threading.Thread(target=self._look, args=(servers, level, phase))
            for level, phase in (("read_uncommitted", RECORD), ("read_committed", COMMIT))
        ]
        for thread in self._threads:
            thread.start()

    def _look(self, servers: str, level: str, phase: str) -> None:
        with closing(Consumer({"bootstrap.servers": servers, "group.id": "watch", "isolation.level": level})) as client:
            while not self._has_records(client):
                time.sleep(0.03)  # the resolution of the measurement
            self._found[phase] = time.perf_counter()

    def _has_records(self, client: Consumer) -> bool:
        try:
            return client.get_watermark_offsets(self._partition, timeout=10)[1] > 0
        except KafkaException as error:
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:  # the topic is that new
                raise
            return False

    def times(self) -> dict[str, float]:
        for thread in self._threads:
            thread.join(30)
        return self._found


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    for line in measure():
        print(line, flush=True)
