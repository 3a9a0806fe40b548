"""The JDBC sink in the driver: one staging place a step, and the merge that belongs into the ledger's transaction.

The ledger of such a sink is in the database that it writes to, so rows and ranges are committed together or not at all. A step
that died leaves its staging behind, which nobody merges; the next step drops it. One step of a sink is on its way at a time.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from playhead.errors import Busy, ConfigInvalid, PlayheadError
from playhead.pipeline.sinks import Recall, Samples
from playhead.pipeline.sinks.jdbc.address import SQLITE, Target, find_target
from playhead.pipeline.sinks.jdbc.batches import Sorting
from playhead.pipeline.sinks.jdbc.options import RECORD_KEY, JdbcSinkOptions, check_options, parse_options
from playhead.pipeline.sinks.jdbc.side_files import FilesStaged, FileStaging
from playhead.pipeline.sinks.jdbc.tables import name_of
from playhead.pipeline.sinks.jdbc.writer import JdbcWriter
from playhead.pipeline.sinks.values.options import parse_converter
from playhead.sql.address import parse_address
from playhead.sql.merging import How, Layout, merge
from playhead.sql.range_values import ClosedRange, RangeClaim
from playhead.sql.sink_loads import copy_into, insert_into
from playhead.sql.staging import Staged, TableStaging
from playhead.sql.target_tables import TableName

if TYPE_CHECKING:
    from playhead.sql.range_ledger import Also
    from playhead.sql.statements import Connection

Done = Sequence[tuple[RangeClaim, Sequence[ClosedRange]]]


def open_jdbc_sink(config: Mapping[str, str], worker: Mapping[str, str]) -> "JdbcSink":
    if faults := check_options(config, worker):
        raise ConfigInvalid(faults)
    options = parse_options(config, worker)
    value, key = (parse_converter(config, worker, side) for side in ("value", "key"))
    target = find_target(config)
    for topic in filter(None, (part.strip() for part in config.get("topics", "").split(","))):
        name_of(topic, options, target)  # refuses what is no name of a table, before anything runs
    return JdbcSink(Sorting(options, value, key), target, _identity(config, worker))


def _identity(config: Mapping[str, str], worker: Mapping[str, str]) -> str:
    """Tells the sinks of one database apart, so that none sweeps what belongs to another."""
    parts = [config.get("name", ""), worker.get("bootstrap.servers", ""), worker.get("group.id", "")]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """One segment of the attempt that is merged."""

    attempt: str
    segment: int
    layout: Layout


class JdbcSink:
    """`Sink` of the JDBC sink connectors."""

    def __init__(self, sorting: Sorting, target: Target, identity: str) -> None:
        self._sorting = sorting
        self._target = target
        self._identity = identity
        self._staging: TableStaging | FileStaging | None = None

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

    def writer(self, recall: Recall, samples: Samples) -> JdbcWriter:  # noqa: ARG002  records bring their schemas
        self._staging = self._named()
        self._staging.make()
        return JdbcWriter(self._sorting, self._target, self._staging)

    def tail_is_due(self, last_closed_ms: int, now_ms: int) -> bool:  # noqa: ARG002  no record waits for others
        return False

    def merging(self, done: Done) -> "Also | None":
        staging = self._staging
        if staging is None or not any(closed for _, closed in done):
            return None

        def also(connection: "Connection") -> None:
            with staging.reading() as staged:
                chosen = list(_choose(done, staged.headers()))
                for layout, segments in _rounds(chosen):
                    merge(connection, layout, self._how, _load_of(staged, segments))

        return also

    def settled(self, done: Sequence[RangeClaim]) -> None:  # noqa: ARG002  a step has one staging place
        self.close()

    def close(self) -> None:
        if self._staging is not None:
            with suppress(PlayheadError):  # the next step of this sink drops it
                self._staging.drop()
            self._staging = None

    @property
    def _options(self) -> JdbcSinkOptions:
        return self._sorting.options

    @property
    def _how(self) -> How:
        return How(self._options.insert_mode, self._options.deletes)

    def _named(self) -> TableStaging | FileStaging:
        if self._target.product == SQLITE:
            return FileStaging.named(parse_address(self._target.url).path, self._identity)
        return TableStaging.named(self._target.url, self._identity)


def _choose(done: Done, headers: Mapping[str, bytes]) -> Iterator[list[_Chosen]]:
    """For each claim the segments of one attempt: of that claim, and with the digests that the task told."""
    told = {attempt: json.loads(text) for attempt, text in sorted(headers.items())}
    for claim, closed in done:
        if not closed:
            continue
        span = claim.range
        wanted = [span.topic, span.topic_id, span.partition, span.start, span.end, claim.generation, claim.shape]
        digest = [closed[0].count, closed[0].hash_xor, closed[0].hash_sum]
        found = next((one for one in told.items() if one[1]["claim"] == wanted and one[1]["digest"] == digest), None)
        if found is None:
            # The database fell over, which empties unlogged tables, or another run of this sink swept.
            raise Busy(f"the staged rows of {span} are gone", hint="nothing was committed: the range is delivered anew")
        attempt, header = found
        table = TableName(*header["table"])
        yield [
            _Chosen(attempt, number, Layout(table, *(tuple(segment[part]) for part in ("columns", "kinds", "keys"))))
            for number, segment in enumerate(header["segments"])
        ]


def _rounds(chosen: Sequence[Sequence[_Chosen]]) -> Iterator[tuple[Layout, list[_Chosen]]]:
    """Segments of one attempt come one after the other; those of different attempts together where they have one layout."""
    for number in range(max((len(segments) for segments in chosen), default=0)):
        together: dict[Layout, list[_Chosen]] = {}
        for segments in chosen:
            if number < len(segments):
                together.setdefault(segments[number].layout, []).append(segments[number])
        yield from together.items()


def _load_of(
    staged: Staged | FilesStaged, segments: Sequence[_Chosen]
) -> Callable[["Connection", str, Sequence[str]], None]:
    def load(connection: "Connection", table: str, columns: Sequence[str]) -> None:
        if isinstance(staged, Staged):
            copy_into(
                connection,
                table,
                columns,
                (piece for one in segments for piece in staged.pieces(one.attempt, one.segment)),
            )
        else:
            insert_into(
                connection, table, columns, (row for one in segments for row in staged.rows(one.attempt, one.segment))
            )

    return load
