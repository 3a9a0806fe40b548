"""The driver's part of a JDBC sink. Its ledger is in the target database: rows and ranges are committed together."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from playhead.errors import ConfigInvalid
from playhead.ledger.model import Done, RangeClaim
from playhead.pipeline.deliver.chain import find_chain
from playhead.pipeline.deliver.jdbc.options import (
    RECORD_KEY,
    SQLITE,
    JdbcSinkOptions,
    TargetDatabase,
    check_options,
    find_target,
    parse_options,
)
from playhead.pipeline.deliver.jdbc.postgres import CommittingWriter
from playhead.pipeline.deliver.jdbc.rows import Sorting
from playhead.pipeline.deliver.jdbc.tables import name_of
from playhead.pipeline.deliver.sink import SinkStep, Writer
from playhead.pipeline.records.decode.options import parse_converter

if TYPE_CHECKING:
    from playhead.ledger.ranges import Also


class JdbcSink:
    """`Sink` of the JDBC sink connectors into PostgreSQL, whose tasks commit themselves."""

    def __init__(self, sorting: Sorting, target: TargetDatabase) -> None:
        self.sorting = sorting
        self.target = target

    @property
    def shape(self) -> str:
        chain = self.sorting.chain
        return self._options.shape(self.sorting.value, self.sorting.key, chain=chain.digest if chain else "")

    @property
    def notes(self) -> Sequence[str]:
        """Nothing here depends on the clock."""
        if self._options.is_direct:
            return ()
        return ("records of one key are applied in the order of their offsets; there is no order across partitions",)

    @property
    def fewest_records(self) -> int:
        return 0

    @property
    def has_keys(self) -> bool:
        chain = self.sorting.chain
        return self._options.pk_mode == RECORD_KEY or (chain is not None and chain.has_keys)

    @property
    def has_headers(self) -> bool:
        return self.sorting.chain is not None and self.sorting.chain.has_headers

    @property
    def commits_in_tasks(self) -> bool:
        return True

    def writer(self, step: SinkStep) -> Writer:
        """Needs no samples: records carry their schemas."""
        return CommittingWriter(self.sorting, self.target, step.committing(), step.is_careful)

    def tail_is_due(self, last_closed_ms: int, now_ms: int) -> bool:  # noqa: ARG002  no record waits for others
        return False

    def merging(self, done: Sequence[Done]) -> "Also | None":  # noqa: ARG002  the tasks have merged
        return None

    def settled(self, done: Sequence[RangeClaim]) -> None:
        """Nothing is left over."""

    def close(self) -> None:
        """Nothing is open."""

    @property
    def _options(self) -> JdbcSinkOptions:
        return self.sorting.options


def open_jdbc_sink(config: Mapping[str, str], worker: Mapping[str, str]) -> JdbcSink:
    if faults := check_options(config, worker):
        raise ConfigInvalid(faults)
    options = parse_options(config, worker)
    value, key = (parse_converter(config, worker, side) for side in ("value", "key"))
    target = find_target(config)
    chain = find_chain(config, worker, needs_keys=options.pk_mode == RECORD_KEY)
    for topic in filter(None, (part.strip() for part in config.get("topics", "").split(","))):
        for name in chain.targets(topic) if chain else (topic,):
            name_of(name, options, target)  # refuses an invalid table name before anything runs
    sorting = Sorting(options, value, key, chain)
    if target.product != SQLITE:
        return JdbcSink(sorting, target)
    from playhead.pipeline.deliver.jdbc.sqlite import SqliteSink  # it is a JdbcSink, too

    return SqliteSink(sorting, target, _identity(config, worker))


def _identity(config: Mapping[str, str], worker: Mapping[str, str]) -> str:
    """Distinguishes the sinks of one database, so that none removes files of another."""
    parts = [config.get("name", ""), worker.get("bootstrap.servers", ""), worker.get("group.id", "")]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
