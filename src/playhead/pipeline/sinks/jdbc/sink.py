"""The JDBC sink in the driver. The ledger of such a sink is in the database that it writes to, so rows and ranges are committed
together or not at all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from playhead.pipeline.sinks import Step, Writer
from playhead.pipeline.sinks.jdbc.address import Target
from playhead.pipeline.sinks.jdbc.batches import Sorting
from playhead.pipeline.sinks.jdbc.options import RECORD_KEY, JdbcSinkOptions
from playhead.pipeline.sinks.jdbc.writer import CommittingWriter
from playhead.sql.range_values import Done, RangeClaim

if TYPE_CHECKING:
    from playhead.sql.range_ledger import Also


class JdbcSink:
    """`Sink` of the JDBC sink connectors into PostgreSQL, whose tasks commit by themselves."""

    def __init__(self, sorting: Sorting, target: Target) -> None:
        self._sorting = sorting
        self._target = target

    @property
    def shape(self) -> str:
        return self._options.shape(self._sorting.value, self._sorting.key)

    @property
    def notes(self) -> Sequence[str]:
        """Nothing here goes by the clock."""
        if self._options.is_direct:
            return ()
        return ("records of one key are applied in the order of their offsets; over partitions there is no order",)

    @property
    def fewest_records(self) -> int:
        return 0

    @property
    def has_keys(self) -> bool:
        return self._options.pk_mode == RECORD_KEY

    @property
    def commits_in_tasks(self) -> bool:
        return True

    def writer(self, step: Step) -> Writer:
        """Records bring their schemas."""
        return CommittingWriter(self._sorting, self._target, step.committing(), step.is_careful)

    def tail_is_due(self, last_closed_ms: int, now_ms: int) -> bool:  # noqa: ARG002  no record waits for others
        return False

    def merging(self, done: Sequence[Done]) -> "Also | None":  # noqa: ARG002  the tasks did
        return None

    def settled(self, done: Sequence[RangeClaim]) -> None:
        """Nothing is left over."""

    def close(self) -> None:
        """Nothing is open."""

    @property
    def _options(self) -> JdbcSinkOptions:
        return self._sorting.options
