"""`playhead run` as a process that is killed again and again, with what it reads from and writes to."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from playhead.lab import Lab
from playhead.model import Deadline

DRIVER, WORKER = "driver", "worker"


@dataclass
class Victim:
    """`playhead run` as a process of its own, with everything it started."""

    lab: Lab
    file: Path
    chunk_rows: int
    environment: Mapping[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        return Path(f"{self.file}.db")

    def start(self, *more: str) -> "subprocess.Popen[str]":
        words = [
            "run",
            str(self.file),
            "--chunk-rows",
            str(self.chunk_rows),
            "--ledger",
            f"sqlite:///{self.ledger}",
            *more,
        ]
        words += ["--worker-config", str(self.lab.worker_config), "--horizon-timeout", "20s", "-o", "wide"]
        return subprocess.Popen(
            [sys.executable, "-m", "playhead", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.environment},
            start_new_session=True,
        )

    def end(self, process: "subprocess.Popen[str]", seconds: float = 150) -> int:
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill_driver(process)  # it would outlive the test
            raise
        self.log.append(f"exit {process.returncode}: {printed}")
        return process.returncode

    def kill_driver(self, process: "subprocess.Popen[str]") -> None:
        with suppress(ProcessLookupError):  # it has just ended by itself
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
        self.lab.up(self.lab.options)


def wait_until_it_moves(process: "subprocess.Popen[str]", seen: Callable[[], int], before: int) -> None:
    Deadline(120).wait_for(lambda: seen() > before or process.poll() is not None, "the run to move")


def outlive(victim: Victim, parts: Sequence[str], seen: Callable[[], int], more: Callable[[], None]) -> None:
    """One continuous run, with each of these parts killed under it; in the end it is killed itself."""
    process = victim.start("--continuous", "--interval", "300ms")
    for part in random.sample(parts, len(parts)):
        before = seen()
        wait_until_it_moves(process, seen, before)
        victim.log.append(f"kill {part}")
        if part == WORKER:
            victim.kill_worker(process)
        else:
            victim.kill_part(part)
        more()
    wait_until_it_moves(process, seen, seen())
    assert process.poll() is None, (victim.end(process), victim.log[-2:])
    victim.kill_driver(process)
    victim.end(process)


def suffer(
    victim: Victim, kinds: Sequence[str], rounds: int, seen: Callable[[], int], more: Callable[[], None]
) -> None:
    """Killed so often, in any order, each kind at least once. `seen` returns how much is committed, `more` adds work."""
    for kind in [*random.sample(kinds, len(kinds)), *random.choices(kinds, k=max(0, rounds - len(kinds)))][:rounds]:
        before = seen()
        process = victim.start()
        wait_until_it_moves(process, seen, before)
        time.sleep(random.random() * 2)
        victim.log.append(f"kill {kind}, {'too late' if process.poll() is not None else 'in time'}")
        if kind == DRIVER:
            victim.kill_driver(process)
        elif kind == WORKER:
            victim.kill_worker(process)
        else:
            victim.kill_part(kind)
        victim.end(process)
        more()


def committed(ledger: Path, table: str) -> int:
    """Records that the ledger lists, read without contact with the run."""
    if not ledger.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=5)) as database:
            return int(database.execute(f"SELECT coalesce(sum(count), 0) FROM {table}").fetchone()[0])
    except sqlite3.OperationalError:  # no table yet, or the journal of a killed writer that a reader may not undo
        return 0


def check_once(found: Counter[Any], wanted: Set[Any], context: str) -> None:
    """Every one of them is there, once, and nothing else."""
    doubled = {one for one, count in found.items() if count > 1}
    wrong = {"missing": wanted - set(found), "doubled": doubled, "strange": set(found) - wanted}
    for word, which in wrong.items():
        assert not which, f"{word} {sorted(which)[:10]} ... {context}"
