"""A run of the file sink without Spark: the real writer, the real ledger on SQLite, the steps in the order in which a run does
them; and the same killed at any instant."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

from integration.consents import unasked
from playhead.ledger.model import Claim, ClosedRange, Host, RangeClaim, RunState
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.deliver.line_file import open_file_sink
from playhead.pipeline.deliver.sink import RECORDS, RejectedRecord, Sink, SinkStep
from playhead.pipeline.records.encode.options import STRING

CLUSTER, NAME = "cluster", "lines"
FIRST, SECOND = Log("orders", "id-1", 0), Log("orders", "id-1", 1)
Values = Mapping[Log, Sequence[bytes | None]]


def records(values: Sequence[bytes | None], start: int) -> pa.RecordBatch:
    offsets = list(range(start, start + len(values)))
    columns = [offsets, [1_700_000_000_000_000] * len(values), [None] * len(values), list(values), offsets]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, RECORDS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def never(rejected: RejectedRecord) -> None:
    raise AssertionError(rejected)


@dataclass
class LineFile:
    folder: Path
    values: Values
    per_claim: int = 3
    reject: Callable[[RejectedRecord], None] = never

    @property
    def path(self) -> Path:
        return self.folder / "out.txt"

    @property
    def parts(self) -> Path:
        return self.folder / ".out.txt.playhead"

    def sink(self) -> Sink:
        return open_file_sink({"file": str(self.path), "topics": "orders", "value.converter": STRING}, {})

    def run(self, order: int = 1, steps: int = 1000, *, one_by_one: bool = False) -> None:
        """Until all is delivered. `order` -1: the claims of a step in reverse. `one_by_one`: each claim is a step."""
        with open_ledger(f"sqlite:///{self.folder}/ledger.db", 10) as ledger:
            claim = ledger.claim(CLUSTER, NAME, Host.here(), {})
            ranges, sink = RangeLedger(ledger), self.sink()
            known = ranges.positions(CLUSTER, NAME)
            ranges.adopt(claim, {log: 0 for log in self.values if log not in known})
            try:
                open_claims = ranges.open_claims(claim)
                while (claims := open_claims or self.claimed(ranges, claim, sink)) and steps:
                    open_claims, steps = [], steps - 1
                    for some in [[one] for one in claims[::order]] if one_by_one else [claims[::order]]:
                        self.step(ranges, claim, sink, some)
            finally:
                sink.close()
            ledger.finish(claim, RunState.FINISHED)

    def claimed(self, ranges: RangeLedger, claim: Claim, sink: Sink) -> list[RangeClaim]:
        claims = []
        for log, at in ranges.positions(CLUSTER, NAME).items():
            end = min(at.next_offset + self.per_claim, len(self.values[log]))
            if end > at.next_offset:
                span = OffsetRange(*log, at.next_offset, end)
                claims.append(RangeClaim(span, True, sink.shape, 0, at.generation))
        ranges.plan(claim, claims)
        return claims

    def step(self, ranges: RangeLedger, claim: Claim, sink: Sink, claims: Sequence[RangeClaim]) -> None:
        def recall(key: str, make: Callable[[], str]) -> str:
            found = ranges.recall(CLUSTER, NAME, key)
            return ranges.remember(claim, key, make()) if found is None else found

        writer = sink.writer(SinkStep(recall, {}, unasked))
        done = [(one, list(writer.write(one, self.batches(one), self.reject))) for one in claims]
        ranges.commit_all(claim, done, sink.merging(done))
        sink.settled(claims)

    def batches(self, claim: RangeClaim) -> Iterator[pa.RecordBatch]:
        span = claim.range
        yield records(self.values[span.log][span.start : span.end], span.start)

    def recorded(self) -> list[ClosedRange]:
        with open_ledger(f"sqlite:///{self.folder}/ledger.db", 10) as ledger:
            return [one.closed for one in RangeLedger(ledger).list_ranges(CLUSTER, NAME)][::-1]

    # Kills

    def run_killed(self, at: int, modules: Sequence[str], **how: Any) -> bool:
        """Killed at the `at`-th event (call, return, call of C) in these modules. False: it came to its end before."""
        ours = tuple(f"/playhead/{module}" for module in modules)
        return self._run_until(at, lambda frame, event, arg: frame.f_code.co_filename.endswith(ours), **how)

    def run_killed_in(self, place: str, **how: Any) -> bool:
        """`Class.method`, `... returned`, or `... after N CALLS`, of one of the calls below."""
        where, _, times = place.partition(" after ")
        if times:
            number, caller, callee = int(times.split()[0]), *_CALLS[where]
            return self._run_until(
                number,
                lambda frame, event, arg: (
                    (event == "c_return" and frame.f_code.co_qualname == caller and arg.__name__ == callee)
                    or (event == "return" and frame.f_code.co_name == callee and _caller(frame) == caller)
                ),
                **how,
            )
        if where == "swap_kept in the commit":
            where = "swap_kept.<locals>.swap returned"
        name, _, returned = where.partition(" ")
        wanted = "return" if returned else "call"
        return self._run_until(1, lambda frame, event, arg: event == wanted and frame.f_code.co_qualname == name, **how)

    def _run_until(self, left: int, counts: Callable[[FrameType, str, Any], bool], **how: Any) -> bool:
        """In a process of its own, which is killed at the `left`-th event that counts."""
        child = os.fork()
        if not child:
            _count_down(left, counts)
            code = 1
            try:
                self.run(**how)
                code = 0
            finally:
                sys.setprofile(None)
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the run failed by itself"
        return os.WIFSIGNALED(status)


_CALLS = {
    "GrowingFile._write": ("GrowingFile._write", "write"),
    "GrowingFile.settle": ("GrowingFile._remove_all_but", "unlink"),
}


def _caller(frame: FrameType) -> str:
    return frame.f_back.f_code.co_qualname if frame.f_back else ""


def _count_down(left: int, counts: Callable[[FrameType, str, Any], bool]) -> None:
    def count(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal left
        if counts(frame, event, arg):
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
