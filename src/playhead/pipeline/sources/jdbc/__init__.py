"""The JDBC source connectors of Confluent and Aiven, read by Spark: same options, same positions, same order of rows."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from playhead.pipeline.sources.jdbc.source import JdbcSource


def open_jdbc_source(
    spark: "SparkSession",
    config: Mapping[str, str],
    worker: Mapping[str, str],
    *,
    with_catalog: bool | None = None,
    once: bool = False,
    horizon_seconds: float = 30.0,
) -> "JdbcSource":
    """`with_catalog`: a position that is not stored yet is kept under `db.schema.table`, else under `schema.table`. `once`: there
    is no second round."""
    # Late, so that checking options does not load Spark.
    from playhead.pipeline.sources.jdbc.options import parse_options
    from playhead.pipeline.sources.jdbc.source import JdbcSource
    from playhead.pipeline.sources.jdbc.streams import Reading

    return JdbcSource(spark, parse_options(config, worker), Reading(with_catalog, once, horizon_seconds))
