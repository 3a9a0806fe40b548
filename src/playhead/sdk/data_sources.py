"""Spark's own Python data sources as connectors: classes of `pyspark.sql.datasource.DataSource` that have a stream reader.

Nothing here imports PySpark: a class that derives from `DataSource` has loaded it. Such a class declares no options, so it is
given all of its file that the frame of a connector does not use. `topic` says where its rows go.
"""

import json
import sys
from functools import cache
from typing import Any

from playhead.errors import Invalid
from playhead.sdk import Option, SourceConnector
from playhead.sdk.records import Fields

JSON_OFFSET = "json"  # Connect's offsets are flat; any other is stored as text under this name
_READERS = ("streamReader", "simpleStreamReader")


class DataSourceConnector(SourceConnector):
    """`source`: the class of the data source. Its tasks are made by the engine."""

    source: type[Any]
    config = (Option("topic", doc="The topic that the rows are written to"),)

    @classmethod
    def check_offset(cls, partition: Fields, offset: Fields) -> list[str]:  # noqa: ARG003
        if set(offset) != {JSON_OFFSET}:
            return []
        try:
            is_object = isinstance(json.loads(str(offset[JSON_OFFSET])), dict)
        except ValueError:
            is_object = False
        return [] if is_object else [f"{JSON_OFFSET} is no JSON object: {offset[JSON_OFFSET]!r}"]

    @classmethod
    def show_offset(cls, partition: Fields, offset: Fields) -> str | None:  # noqa: ARG003
        return str(offset[JSON_OFFSET]) if set(offset) == {JSON_OFFSET} else None


def is_data_source(found: object) -> bool:
    module = sys.modules.get("pyspark.sql.datasource")
    return module is not None and isinstance(found, type) and issubclass(found, module.DataSource)


def has_stream_reader(found: type[Any]) -> bool:
    base = sys.modules["pyspark.sql.datasource"].DataSource
    return any(getattr(found, name) is not getattr(base, name) for name in _READERS)


@cache
def data_source_connector(found: type[Any]) -> type[DataSourceConnector]:
    """Raises Invalid for one that can only be read as a whole: it has no position to go on from."""
    if not has_stream_reader(found):
        raise Invalid(
            f"{found.__module__}.{found.__qualname__} is a data source without a stream reader",
            "define streamReader or simpleStreamReader: a source needs offsets to go on from",
        )
    members = {
        "source": found,
        "version": str(getattr(found, "version", "0")),
        "__module__": found.__module__,
        "__qualname__": found.__qualname__,
    }
    return type(found.__name__, (DataSourceConnector,), members)
