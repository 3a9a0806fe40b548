"""A source: the connector, which cuts the work into tasks, and its task, which is polled for records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from playhead.errors import Invalid
from playhead.model.position import Map
from playhead.sdk.options import Config, Option
from playhead.sdk.records import Fields, SourceRecord

T = TypeVar("T")


class RetriableException(Exception):
    """Raised by `start` or `poll`: the source does not answer for the moment. The task is started again after a pause, from what
    was committed. Connection errors of Python (OSError) are treated alike, but not a missing file or an answer like 401."""


class Offsets:
    """The committed offsets of the connector, by source partition, as Connect's OffsetStorageReader gives them."""

    def __init__(self, stored: Mapping[Map, Mapping[str, Any]]) -> None:
        self._stored = dict(stored)

    def get(self, partition: Fields, default: Any = None) -> Any:
        """The offset of a source partition as a dict; `default` if nothing of it was committed."""
        found = self._stored.get(Map(partition))
        return default if found is None else dict(found)

    def __contains__(self, partition: Fields) -> bool:
        return Map(partition) in self._stored

    def __len__(self) -> int:
        return len(self._stored)

    def items(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [(partition.to_dict(), dict(offset)) for partition, offset in self._stored.items()]


class Transaction:
    """For a connector with `defines_transactions` whose file says `transaction.boundary=connector`: where transactions end."""

    def __init__(self) -> None:
        self._is_due = False

    def commit(self) -> None:
        """Commits after the records of this poll. Records after the last commit are not committed, and polled again later."""
        self._is_due = True

    def taken(self) -> bool:
        """For the engine: whether a commit was asked for since the last question."""
        is_due, self._is_due = self._is_due, False
        return is_due


class SourceTask:
    """Started, polled until it has nothing more, and stopped; all calls are made by one thread. A step of a run starts a task
    anew, so `start` goes on after what was committed."""

    transaction: Transaction
    """Set before `start`."""

    def start(self, config: Config, offsets: Offsets) -> None:
        """`config`: the connector's options and what `task_configs` gave this task."""

    def poll(self) -> Iterable[SourceRecord] | None:
        """The next records, as a list or by `yield`. None or none at all: there is nothing more for now. It may wait for
        records, but not longer than playhead.poll.timeout.ms."""
        raise NotImplementedError

    def commit(self) -> None:
        """Called after records of this task were committed with their offsets."""

    def stop(self) -> None:
        """Closes what `start` opened. Called after a failure, too."""


class SourceConnector:
    """Class attributes say what it is; `task` is the class of its tasks. `defines_transactions`: its tasks call
    `transaction.commit()`."""

    version: str = "0"
    config: Sequence[Option] = ()
    task: type[SourceTask]
    defines_transactions: bool = False

    options: Config
    """The values of the options, from `start` on."""

    def start(self, config: Config) -> None:
        self.options = config

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, Any]]:  # noqa: ARG002  one task has no use for it
        """What each task does, at most `max_tasks` of them. Each gets the connector's options as well. Offsets belong to source
        partitions: which task reads one may change from run to run."""
        return [{}]

    def stop(self) -> None:
        """Closes what `start` opened."""

    @classmethod
    def validate(cls, config: Config) -> Iterable[str]:  # noqa: ARG003
        """Faults that no single option shows, as sentences."""
        return ()

    # The dialect of its offsets, for `playhead offsets` and the doctor.

    @classmethod
    def check_offset(cls, partition: Fields, offset: Fields) -> Iterable[str]:  # noqa: ARG003
        """What is wrong with an offset that is to be set by hand, as sentences."""
        return ()

    @classmethod
    def show_offset(cls, partition: Fields, offset: Fields) -> str | None:  # noqa: ARG003
        """An offset as `offsets show` prints it, such as `page 7 of eu`. None: field by field."""
        return None

    @classmethod
    def compare_offsets(cls, before: Fields, after: Fields) -> int | None:
        """-1, 0 or 1 as `before` is before, at or after `after`; None: unknown. Not defined: only numbers are compared."""
        from playhead.sdk.records import goes_back

        if before == after:
            return 0
        return 1 if goes_back(before, after) else None

    start_over: str = "Delete the position: the connector then begins as if it had never run."
    """What it means that there is no offset."""


def split(items: Iterable[T], parts: int) -> list[list[T]]:
    """The items in at most `parts` lists of nearly the same length, for `task_configs`. No list is empty."""
    if parts < 1:
        raise Invalid(f"cannot split into {parts} parts")
    listed = list(items)
    count = min(parts, len(listed))
    return [listed[at::count] for at in range(count)]
