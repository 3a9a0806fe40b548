"""Creating and deleting 50 connectors as whole processes, against the same POSTs and DELETEs made with curl under `xargs -P 8`.

The connectors are file sources of empty files. Ours also plans, validates, writes the journal and waits until every task runs,
or until the connector is gone; curl only sends. The settle time is 1 ms, so that only the work counts.
"""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from connectors_plan import timed, worker_lab

from playhead.connect.rest import Rest
from playhead.lab import Lab
from playhead.model import Deadline

CONNECTORS = 50
PLUGIN = "FileStreamSource"


def measure() -> Iterator[str]:
    with worker_lab() as (lab, folder):
        yield from _measured(lab, folder)


def _measured(lab: Lab, folder: Path) -> Iterator[str]:
    manifest, bodies, names = _files(folder)
    url = lab.connect_urls[0]
    program = str(Path(sys.executable).parent / "playhead")
    where = ["--connect", url, "--timeout", "120s", "-o", "json", "--execute"]
    timed(_curl(url, bodies, names), folder, expected=0)  # warms the worker
    _await_gone(url)
    theirs = timed(_curl(url, bodies, names), folder, expected=0)
    _await_gone(url)
    created = timed(
        [program, "connectors", "apply", "-f", str(manifest), *where, "--settle", "1ms", "--wait", "120s"], folder, 0
    )
    deleted = timed([program, "connectors", "delete", "lines-*", *where], folder, 0)
    yield f"curl under xargs -P 8: {theirs:.2f} s, {CONNECTORS} POSTs and {CONNECTORS} DELETEs"
    yield f"playhead connectors apply: {created:.2f} s until all {CONNECTORS} run"
    yield f"playhead connectors delete: {deleted:.2f} s until all {CONNECTORS} are gone"


def _await_gone(url: str) -> None:
    with Rest([url], Deadline(60)) as rest:
        Deadline(60).wait_for(lambda: not rest.list_connectors(), "the connectors to be deleted")


def _files(folder: Path) -> tuple[Path, Path, list[str]]:
    """One connector file for us, one request body each for curl."""
    bodies = folder / "bodies"
    bodies.mkdir()
    specs: list[dict[str, object]] = []
    names = [f"lines-{n}" for n in range(CONNECTORS)]
    for n in range(CONNECTORS):
        (folder / f"{n}.txt").touch()
        config = {"connector.class": PLUGIN, "tasks.max": "1", "file": str(folder / f"{n}.txt"), "topic": f"lines-{n}"}
        specs.append({"name": names[n], "config": config})
        (bodies / f"{n}.json").write_text(json.dumps(specs[-1]))
    manifest = folder / "connectors.json"
    manifest.write_text(json.dumps(specs))
    return manifest, bodies, names


def _curl(url: str, bodies: Path, names: list[str]) -> list[str]:
    retried = "curl -sf -o /dev/null --retry 50 --retry-all-errors --retry-delay 1"
    post = f"{retried} -X POST -H 'Content-Type: application/json' {url}/connectors -d @{{}}"
    delete = f"{retried} -X DELETE {url}/connectors/{{}}"
    create = f"ls {shlex.quote(str(bodies))}/*.json | xargs -P 8 -I {{}} {post}"
    return ["sh", "-c", f"{create} && printf '%s\\n' {' '.join(names)} | xargs -P 8 -I {{}} {delete}"]


if __name__ == "__main__":
    for line in measure():
        print(line)
