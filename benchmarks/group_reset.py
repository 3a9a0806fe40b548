"""A group reset as a whole process: `playhead groups reset ... --execute` against Kafka's own ConsumerGroupCommand.

Both move the same group in all partitions of one topic, in turn, on the same broker; the median of the rounds counts. The JVM
gets the flags that kafka-consumer-groups.sh gives it. Ours also compares before it writes, writes a journal and reads back.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playhead.kafka.client import Admin, make_producer
from playhead.kafka.groups import list_committed
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic
from playhead.lab import Lab, LabOptions
from playhead.lab.java import java_command
from playhead.model import Deadline
from playhead.pipeline.jars import fetch_jars

ROUNDS, PARTITIONS, RECORDS = 15, 12, 100
TOPIC, GROUP = "orders", "billing"
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SCRIPT_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


def measure() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "lab")
        lab.up(LabOptions(workers=0, postgres=False))
        try:
            yield from _measured(lab, Path(folder))
        finally:
            lab.down()


def _measured(lab: Lab, folder: Path) -> Iterator[str]:
    settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})
    _fill(settings)
    ours: list[float] = []
    theirs: list[float] = []
    for round_ in range(ROUNDS + 1):
        theirs.append(_timed(_java(lab, 10 + round_), folder))
        _check(settings, 10 + round_)
        ours.append(_timed(_playhead(lab, 50 + round_), folder))
        _check(settings, 50 + round_)
    java, playhead = statistics.median(theirs[1:]), statistics.median(ours[1:])  # the first of each warms the disk
    yield f"ConsumerGroupCommand: {java:.3f} s (best {min(theirs):.3f} s), median of {ROUNDS}"
    yield f"playhead groups reset: {playhead:.3f} s (best {min(ours):.3f} s), median of {ROUNDS}"
    yield f"bar: at least 4 times faster; got {java / playhead:.1f} times"


def _fill(settings: ClientSettings) -> None:
    deadline = Deadline(60)
    with Admin(settings, deadline) as admin:
        create_topic(admin, TOPIC, PARTITIONS, deadline)
    producer = make_producer(settings)
    for n in range(RECORDS * PARTITIONS):
        producer.produce(TOPIC, b"%d" % n, partition=n % PARTITIONS)
    if producer.flush(deadline.remaining()):
        sys.exit("the topic could not be filled")
    del producer


def _timed(command: list[str], folder: Path) -> float:
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - started


def _java(lab: Lab, offset: int) -> list[str]:
    words = ["--bootstrap-server", lab.bootstrap_servers, "--reset-offsets", "--group", GROUP, "--topic", TOPIC]
    words += ["--to-offset", str(offset), "--execute"]
    command = java_command(fetch_jars("kafka"), TOOL, words, logging=lab.folder / "tool-log4j2.xml", heap="256m")
    return [command[0], *SCRIPT_FLAGS, *command[1:]]


def _playhead(lab: Lab, offset: int) -> list[str]:
    program = str(Path(sys.executable).parent / "playhead")
    words = ["groups", "reset", GROUP, "--topic", TOPIC, "--to-offset", str(offset), "--execute"]
    return [program, *words, "-b", lab.bootstrap_servers]


def _check(settings: ClientSettings, offset: int) -> None:
    """Checks the result of both: the Java tool exits with 0 even if it changed nothing."""
    deadline = Deadline(30)
    with Admin(settings, deadline) as admin:
        found = {committed.offset for committed in list_committed(admin, GROUP, deadline).values()}
    if found != {offset}:
        sys.exit(f"the group is at {found}, not at {offset}")


if __name__ == "__main__":
    for line in measure():
        print(line)
