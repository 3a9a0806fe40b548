"""`playhead offsets list -o json` of 200,000 live keys in 1,000,000 records, against `kcat -C -e | jq -c .` over the same topic.

Both are whole processes that read the whole topic from the same broker in one run, in turn; the best of three counts for each.
Reading alone (`read_latest`, without decoding and printing) is reported too.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playhead.errors import NotFound
from playhead.kafka.client import Admin, make_producer
from playhead.kafka.log import capture, read_latest
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic
from playhead.lab import Lab, LabOptions
from playhead.model import Deadline

RECORDS, KEYS, ROUNDS = 1_000_000, 200_000, 3
TOPIC = "offsets"
FORMAT = '{"Key": %k, "Payload": %s, "Partition": %p, "Offset": %o, "Timestamp": %T}\n'


def measure() -> Iterator[str]:
    for program in ("kcat", "jq"):
        if shutil.which(program) is None:
            raise NotFound(
                "program", program, hint="install it with your package manager: the benchmark compares with it"
            )
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "lab")
        lab.up(LabOptions(workers=0, postgres=False))
        try:
            yield from _measured(lab)
        finally:
            lab.down()


def _measured(lab: Lab) -> Iterator[str]:
    deadline = Deadline(600)
    settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})
    _fill(settings, deadline)
    ours = theirs = bare = float("inf")
    megabytes = 0.0
    for _ in range(ROUNDS):
        started = time.perf_counter()
        _kcat_and_jq(lab.bootstrap_servers)
        theirs = min(theirs, time.perf_counter() - started)

        started = time.perf_counter()
        megabytes = max(megabytes, _playhead(lab.bootstrap_servers))
        ours = min(ours, time.perf_counter() - started)

        started = time.perf_counter()
        with Admin(settings, deadline) as admin:
            read_latest(admin, capture(admin, TOPIC, deadline), deadline)
        bare = min(bare, time.perf_counter() - started)
    yield f"kcat | jq: {theirs:.2f} s ({RECORDS / theirs / 1e6:.2f} M records/s)"
    yield f"playhead offsets list -o json: {ours:.2f} s, {KEYS} keys, {megabytes:.0f} MB at its peak (bar: below 600)"
    yield f"of that, reading alone: {bare:.2f} s ({RECORDS / bare / 1e6:.2f} M records/s)"
    yield f"bar: at most 0.5 of kcat | jq; got {ours / theirs:.2f}"


def _fill(settings: ClientSettings, deadline: Deadline) -> None:
    with Admin(settings, deadline) as admin:
        create_topic(admin, TOPIC, 5, deadline)
    producer = make_producer(settings, linger_ms=50, queue_buffering_max_messages=RECORDS)
    for n in range(RECORDS):
        key = n % KEYS
        producer.produce(
            TOPIC,
            b'{"incrementing":%d}' % n,
            b'["jdbc_src_%d",{"protocol":"1","table":"shop.public.t%d"}]' % (key // 1000, key),
        )
        if n % 10_000 == 0:
            producer.poll(0)
    if producer.flush(deadline.remaining()):
        sys.exit("the topic could not be filled")


def _playhead(server: str) -> float:
    """Peak memory in MB. The output must be JSON with every key."""
    command = [str(Path(sys.executable).parent / "playhead"), "offsets", "list", "-o", "json"]
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([*command, "--store", f"kafka://{server}/{TOPIC}"], stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        found = out.read().count(b'"written":')
    if process.returncode or found != KEYS:
        sys.exit(f"{found} keys found, not {KEYS}")
    return usage.ru_maxrss / 1024


def _kcat_and_jq(server: str) -> None:
    read = ["kcat", "-q", "-b", server, "-t", TOPIC, "-C", "-e", "-f", FORMAT]
    with subprocess.Popen(read, stdout=subprocess.PIPE) as kcat:
        subprocess.run(["jq", "-c", "."], stdin=kcat.stdout, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    for line in measure():
        print(line)
