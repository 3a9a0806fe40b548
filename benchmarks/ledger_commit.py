"""The commit of a sink's step in the ledger: SQLite in a file, and PostgreSQL; with the ledger's smallest write as the peer.

Every claim of the step closes one range with one file. The ledger already has 10,000 ranges of the pipeline. PostgreSQL is the
lab's, restarted with fsync: without it a commit would be too cheap. Only the commit is timed, not the plan before it.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from playhead.lab import Lab, LabOptions
from playhead.lab.options import LabFile
from playhead.lab.parts.postgres import postgres_part
from playhead.lab.processes import start_process
from playhead.ledger.model import ClosedRange, Done, Host, Output, RangeClaim
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.model import Deadline
from playhead.model.ranges import Log, OffsetRange

ROUNDS, WARM_UP = 50, 5
SIZES = (4, 100)
RECORDS = 1_000  # of one range
BAR_MS = 20


def measure() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield from _measured("SQLite", f"sqlite:///{folder}/ledger.db")
        lab = Lab(Path(folder) / "lab")
        lab.up(LabOptions(workers=0))
        try:
            _restart_with_fsync(lab)
            yield from _measured("PostgreSQL, fsync on", lab.postgres_url)
        finally:
            lab.down()


def _restart_with_fsync(lab: Lab) -> None:
    lab.stop("postgres")
    known = LabFile.load(lab.folder)
    if known is None:
        raise SystemExit("the lab no longer exists")
    part = postgres_part(lab.folder, known)
    part.prepare()
    start_process([word.replace("fsync=off", "fsync=on") for word in part.command()], part.log, lab.folder)
    Deadline(60).wait_for(lambda: part.answers() is None, "starting PostgreSQL")
    if lab.psql("SHOW fsync") != "on":
        raise SystemExit("PostgreSQL still runs without fsync")


def _measured(words: str, url: str) -> Iterator[str]:
    with open_ledger(url, 30) as ledger:
        bench = _Bench(RangeLedger(ledger))
        bench.fill()
        yield f"{words}: a heartbeat, which updates one row: {_summary(bench.beats())}"
        for size in SIZES:
            yield f"bar: a commit of {size} claims under {BAR_MS} ms; {words}: {_summary(bench.commits(size))}"


def _summary(times: Sequence[float]) -> str:
    middle, best, worst = statistics.median(times), min(times), max(times)
    return f"{1000 * middle:.1f} ms (best {1000 * best:.1f}, worst {1000 * worst:.1f}), median of {len(times)}"


class _Bench:
    def __init__(self, ranges: RangeLedger) -> None:
        self.ranges = ranges
        self.claim = ranges.ledger.claim("bench", "orders", Host.here(), {"master": "local[2]"})
        self.ends = {Log("orders", "id-1", partition): 0 for partition in range(max(SIZES))}
        ranges.adopt(self.claim, self.ends)

    def fill(self) -> None:
        """Adds the ranges of earlier runs."""
        self._commit(self._planned(max(SIZES), files=100))

    def beats(self) -> list[float]:
        return [_timed(lambda: self.ranges.ledger.beat(self.claim)) for _ in range(WARM_UP + ROUNDS)][WARM_UP:]

    def commits(self, size: int) -> list[float]:
        times = []
        for _ in range(WARM_UP + ROUNDS):
            done = self._planned(size, files=1)
            times.append(_timed(partial(self._commit, done)))
        return times[WARM_UP:]

    def _planned(self, size: int, files: int) -> list[Done]:
        """A step over the first `size` partitions, after all its files are written."""
        done: list[Done] = []
        for log in list(self.ends)[:size]:
            start = self.ends[log]
            self.ends[log] = end = start + files * RECORDS
            closed = [_closed(OffsetRange(*log, at, at + RECORDS)) for at in range(start, end, RECORDS)]
            done.append((RangeClaim(OffsetRange(*log, start, end), True, "s1", time.time_ns() // 1_000_000), closed))
        self.ranges.plan(self.claim, [one for one, _ in done])
        return done

    def _commit(self, done: Sequence[Done]) -> None:
        if not self.ranges.commit_all(self.claim, done):
            raise SystemExit("the step was already committed")


def _closed(span: OffsetRange) -> ClosedRange:
    name = f"topics/{span.topic}/partition={span.partition}/{span.topic}+{span.partition}+{span.start:010d}.json"
    return ClosedRange(span, len(span), span.end, -span.end, (Output(name, len(span), 100 * len(span)),))


def _timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


if __name__ == "__main__":
    for line in measure():
        print(line, flush=True)
