"""A JDBC source connector as a source: its query, or its tables, which are listed again by each call of `streams`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from playhead.errors import Invalid
from playhead.pipeline.ingest.jdbc.database import JdbcDatabase
from playhead.pipeline.ingest.jdbc.flavour import check_zone, flavour_of
from playhead.pipeline.ingest.jdbc.mappings import columns_of
from playhead.pipeline.ingest.jdbc.options import ID_MAPPING, TIME_MAPPING, JdbcOptions, parse_options
from playhead.pipeline.ingest.jdbc.stream import JdbcStream, StreamOptions
from playhead.pipeline.ingest.jdbc.tables import find_tables, qualified_names
from playhead.pipeline.ingest.jdbc.view import Relation

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def open_jdbc_source(
    spark: SparkSession, config: Mapping[str, str], worker: Mapping[str, str], reading: StreamOptions | None = None
) -> "JdbcSource":
    return JdbcSource(spark, parse_options(config, worker), reading)


class JdbcSource:
    """Used by one thread at a time. The database is not queried before `streams()`."""

    def __init__(self, spark: SparkSession, options: JdbcOptions, reading: StreamOptions | None = None) -> None:
        self.options = options
        self.database = JdbcDatabase(spark, options.connection, options.isolation)
        self._reading = reading or StreamOptions()
        self._began: int | None = None

    def streams(self) -> Sequence[JdbcStream]:
        """One stream per table, sorted by name; one stream for a query."""
        options, database = self.options, self.database
        mark = database.quote_mark if options.quote_identifiers else ""
        flavour = flavour_of(database.product, mark, options.record.db_timezone)
        if options.has_time:
            check_zone(options.record.db_timezone)
        if options.has_time and options.timestamp_initial_ms == -1 and self._began is None:
            # Set once, as in a task of Connect: rows that appear between two rounds are not skipped.
            self._began = database.whole(flavour.now(), "reading the database's time")
        if options.query is not None:
            relations = [Relation(database.catalog, None, None, f"(\n{options.query}\n) playhead_query")]
        else:
            relations = find_tables(database, flavour, options.tables)
        streams = [
            JdbcStream(database, flavour, _mapped(options, relation), relation, self._reading, self._began)
            for relation in relations
        ]
        for stream in streams:
            _check_topic(stream)
        return streams

    def close(self) -> None:
        self.database.close()


def _mapped(options: JdbcOptions, table: Relation) -> JdbcOptions:
    """The options with the cursor's columns of this table."""
    names = qualified_names(table)
    if options.id_mappings:
        (column,) = columns_of(options.id_mappings, names, ID_MAPPING)
        options = replace(options, incrementing_column=column)
    if options.time_mappings:
        options = replace(options, timestamp_columns=columns_of(options.time_mappings, names, TIME_MAPPING))
    return options


def _check_topic(stream: JdbcStream) -> None:
    if not _TOPIC.fullmatch(stream.topic) or stream.topic in (".", ".."):
        raise Invalid(
            f"{stream.topic!r} is not a valid topic name, so {stream.name} cannot be read",
            "leave the table out with table.exclude.list, or use a query with a topic.prefix of its own",
        )
