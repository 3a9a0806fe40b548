"""A JDBC sink from its options, for the database that they name."""

import hashlib
import json
from collections.abc import Mapping

from playhead.errors import ConfigInvalid
from playhead.pipeline.sinks.jdbc.address import SQLITE, find_target
from playhead.pipeline.sinks.jdbc.batches import Sorting
from playhead.pipeline.sinks.jdbc.options import check_options, parse_options
from playhead.pipeline.sinks.jdbc.sink import JdbcSink
from playhead.pipeline.sinks.jdbc.sqlite import SqliteSink
from playhead.pipeline.sinks.jdbc.tables import name_of
from playhead.pipeline.sinks.values.options import parse_converter


def open_jdbc_sink(config: Mapping[str, str], worker: Mapping[str, str]) -> JdbcSink:
    if faults := check_options(config, worker):
        raise ConfigInvalid(faults)
    options = parse_options(config, worker)
    value, key = (parse_converter(config, worker, side) for side in ("value", "key"))
    target = find_target(config)
    for topic in filter(None, (part.strip() for part in config.get("topics", "").split(","))):
        name_of(topic, options, target)  # refuses what is no name of a table, before anything runs
    sorting = Sorting(options, value, key)
    if target.product != SQLITE:
        return JdbcSink(sorting, target)
    return SqliteSink(sorting, target, _identity(config, worker))


def _identity(config: Mapping[str, str], worker: Mapping[str, str]) -> str:
    """Tells the sinks of one database apart, so that none sweeps what belongs to another."""
    parts = [config.get("name", ""), worker.get("bootstrap.servers", ""), worker.get("group.id", "")]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
