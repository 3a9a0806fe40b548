"""The batches of a Spark checkpoint, and where a restart would continue. Spark's own rules, without I/O.

Spark writes `offsets/N` before batch N runs and `commits/N` after it. At a restart it reads the newest offsets, L. If L is the
last committed batch, it plans L + 1 from there. If not, it runs L again as planned, from the end of the batch before, whether
that one was committed or not. It does not start if the offsets before L are missing, unless it tracks its progress
asynchronously: then it uses the newest older ones it finds.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from playhead.errors import Refused
from playhead.stores.checkpoint.log import MalformedLog


class MissingFile(NamedTuple):
    """A file without which Spark does not start. `like`: another file whose content serves as well; empty if there is none."""

    path: str
    why: str
    like: str = ""


@dataclass(frozen=True, slots=True)
class BatchLog:
    """The ids in `offsets/` and in `commits/`."""

    offsets: frozenset[int]
    commits: frozenset[int]

    @classmethod
    def of(cls, offsets: Collection[str], commits: Collection[str]) -> "BatchLog":
        """From file names. Temporary files, checksums and any other files are ignored."""
        return cls(frozenset(_ids(offsets)), frozenset(_ids(commits)))

    @property
    def latest(self) -> int | None:
        return max(self.offsets, default=None)

    @property
    def committed(self) -> int | None:
        return max(self.commits, default=None)

    @property
    def position(self) -> int | None:
        """The batch whose offsets a restart continues from; None: from the initial offsets of the query."""
        if self.latest is None and self.commits:
            raise MalformedLog("offsets", self._emptied())
        if self.latest is None or self.latest == self.committed:
            return self.latest
        before = max((batch for batch in self.offsets if batch < self.latest), default=None)
        if before is None and self.latest > 0:
            raise MalformedLog(
                "offsets", f"batch {self.latest} is not committed, and offsets/{self.latest - 1}, its start, is missing"
            )
        return before

    @property
    def planned(self) -> list[int]:
        """Batches after the position, newest first. At most one, except in logs with gaps."""
        position = self.position
        return sorted((batch for batch in self.offsets if position is None or batch > position), reverse=True)

    def gaps(self) -> list[str]:
        """The missing files, and what they mean to Spark."""
        if self.latest is None:
            return []
        return [*self._holes(self.latest), *self._uncommitted(self.latest), *self._ahead(self.latest)]

    def find_missing(self) -> list[MissingFile]:
        """The batch before the newest is read at every start, also if the newest is committed: then only its existence counts.

        Where both logs skip the same batches, the query tracks its progress asynchronously, and starts.
        """
        latest, found = self.latest, []
        if latest is None:
            emptied = f"offsets/: {self._emptied()}, so the query starts over and then fails"
            return [MissingFile(f"offsets/{max(self.commits)}", emptied)] if self.commits else []
        if latest > 0 and latest - 1 not in self.offsets and not self._is_sparse(latest):
            like = f"offsets/{latest}" if latest in self.commits else ""
            found.append(MissingFile(f"offsets/{latest - 1}", list(self._holes(latest))[-1], like))
        return found + [MissingFile(f"offsets/{max(self.commits)}", why) for why in self._ahead(latest)]

    def _emptied(self) -> str:
        return f"it is empty, although {_named('commits', self.commits)} there"

    def _is_sparse(self, latest: int) -> bool:
        known = self.offsets | self.commits
        return latest - 1 not in known and any(batch not in known for batch in range(min(known), latest - 1))

    def _holes(self, latest: int) -> Iterator[str]:
        fatal = ": Spark does not start without it, unless it tracks its progress asynchronously"
        holes = [batch for batch in range(min(self.offsets), latest) if batch not in self.offsets]
        for first, last in _runs(holes):
            named = _named("offsets", range(first, last + 1))
            gap = f"{named} missing between offsets/{first - 1} and offsets/{last + 1}"
            yield gap + fatal if last == latest - 1 else gap
        if latest > 0 and latest == min(self.offsets):
            yield f"offsets/{latest - 1} is missing before offsets/{latest}{fatal}"

    def _uncommitted(self, latest: int) -> Iterator[str]:
        first = min(self.commits, default=-1)
        open_ones = [batch for batch in self.offsets if first < batch < latest and batch not in self.commits]
        for run in _runs(open_ones):
            named = _named("commits", range(run[0], run[1] + 1))
            yield f"{named} missing, although a later batch was planned: Spark treats it as done"

    def _ahead(self, latest: int) -> Iterator[str]:
        for run in _runs([batch for batch in self.commits if batch > latest]):
            named = _named("commits", range(run[0], run[1] + 1))
            yield (
                f"{named} there without offsets: Spark would run batch {latest} again and then fail,"
                " as if two queries shared the checkpoint"
            )

    def check_writable(self) -> None:
        """An edit changes the offsets of the last committed batch. Refused if Spark would not continue from there."""
        position, latest = self.position, self.latest
        if latest is None:
            return
        if self.committed is not None and self.committed > latest:
            raise Refused(next(self._ahead(latest)), "restore the missing offsets from a copy of the checkpoint")
        if position != self.committed:
            done = "nothing" if self.committed is None else f"batch {self.committed}"
            raise Refused(
                f"batch {latest} is planned, but the last commit is that of {done}: Spark would not continue from an edit",
                "start the query once: it finishes that batch and repairs its logs",
            )
        if self.planned and position and position == min(self.offsets):
            raise Refused(
                f"offsets/{position - 1} is already missing, and Spark needs it once the planned batch {latest} is removed",
                f"start the query once, so that it finishes batch {latest}; then move it",
            )


def _ids(names: Iterable[str]) -> Iterator[int]:
    return (int(name) for name in names if name.isascii() and name.isdigit() and str(int(name)) == name)


def _named(folder: str, batches: Collection[int]) -> str:
    first, last = min(batches), max(batches)
    return f"{folder}/{first} is" if first == last else f"{folder}/{first} to {last} are"


def _runs(batches: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Neighbours together: 3, 4, 5, 9 -> (3, 5), (9, 9)."""
    first = last = None
    for batch in sorted(batches):
        if first is None or last is None:
            first = last = batch
        elif batch == last + 1:
            last = batch
        else:
            yield first, last
            first = last = batch
    if first is not None and last is not None:
        yield first, last
