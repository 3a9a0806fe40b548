"""A plan of 200 connectors as a whole process, against the same validate calls made with curl under `xargs -P 8`.

Both request validation of the same 200 configs from the same worker, in turn; the median of the rounds counts. Ours also reads
the running connectors, compares, finds unused keys and writes the plan. curl only sends and discards the answers.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playhead.lab import Lab, LabOptions

ROUNDS, CONNECTORS = 5, 200
PLUGIN = "FileStreamSource"


def measure() -> Iterator[str]:
    with worker_lab() as (lab, folder):
        yield from _measured(lab, folder)


@contextmanager
def worker_lab() -> Iterator[tuple[Lab, Path]]:
    """A lab with a broker and a worker, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "lab")
        lab.up(LabOptions(postgres=False))
        try:
            yield lab, Path(folder)
        finally:
            lab.down()


def _measured(lab: Lab, folder: Path) -> Iterator[str]:
    manifest, bodies = _files(folder)
    curl, playhead = _curl(lab.connect_urls[0], bodies), _playhead(lab, manifest)
    theirs: list[float] = []
    ours: list[float] = []
    for _ in range(ROUNDS + 1):
        theirs.append(timed(curl, folder, expected=0))
        ours.append(timed(playhead, folder, expected=1))  # no connector exists yet: the plan differs
    peer, own = statistics.median(theirs[1:]), statistics.median(ours[1:])  # the first of each warms the worker
    yield f"curl under xargs -P 8: {peer:.3f} s (best {min(theirs):.3f} s), {CONNECTORS} validations, median of {ROUNDS}"
    yield f"playhead connectors plan: {own:.3f} s (best {min(ours):.3f} s), median of {ROUNDS}"
    yield f"bar: at most 1.3 times; got {own / peer:.2f} times"


def _files(folder: Path) -> tuple[Path, Path]:
    """One connector file for us, one request body each for curl."""
    bodies = folder / "bodies"
    bodies.mkdir()
    specs = []
    for n in range(CONNECTORS):
        config = {
            "connector.class": PLUGIN,
            "tasks.max": "1",
            "file": f"/tmp/input-{n}.txt",  # noqa: S108  (a text that is only validated)
            "topic": f"lines-{n}",
            "transforms": "stamp",
            "transforms.stamp.type": "org.apache.kafka.connect.transforms.InsertField$Value",
            "transforms.stamp.static.field": "source",
            "transforms.stamp.static.value": f"file-{n}",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        }
        specs.append({"name": f"lines-{n}", "config": config})
        (bodies / f"{n}.json").write_text(json.dumps({"name": f"lines-{n}", **config}))
    manifest = folder / "connectors.json"
    manifest.write_text(json.dumps(specs))
    return manifest, bodies


def _curl(url: str, bodies: Path) -> list[str]:
    call = f"curl -sf -o /dev/null -X PUT -H 'Content-Type: application/json' {url}/connector-plugins/{PLUGIN}/config/validate"
    return ["sh", "-c", f"ls {shlex.quote(str(bodies))}/*.json | xargs -P 8 -I {{}} {call} -d @{{}}"]


def _playhead(lab: Lab, manifest: Path) -> list[str]:
    program = str(Path(sys.executable).parent / "playhead")
    return [program, "connectors", "plan", "-f", str(manifest), "--connect", lab.connect_urls[0], "-o", "json"]


def timed(command: list[str], folder: Path, expected: int) -> float:
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
    started = time.perf_counter()
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    took = time.perf_counter() - started
    if done.returncode != expected:
        sys.exit(f"{command[0]} ended with {done.returncode}, not {expected}: {done.stderr.decode()}")
    return took


if __name__ == "__main__":
    for line in measure():
        print(line)
