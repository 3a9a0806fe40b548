"""The kit for connectors written in Python. Nothing else has to be imported to write one.

Names and life cycle are those of Kafka Connect: a connector has a version and declares its options, `task_configs` cuts its work
into tasks, and a task is started, polled and stopped. Positions belong to source partitions. Records and positions are committed
together: a connector does nothing for that.

This package imports neither Spark nor Kafka. `playhead.sdk.testing` runs a connector in memory.
"""

from playhead.model.position import Map
from playhead.model.secret import Secret
from playhead.sdk.options import Check, Config, Option, between, matching, not_empty, one_of
from playhead.sdk.records import SinkRecord, SourceRecord, Value
from playhead.sdk.schema import Schema
from playhead.sdk.sink import Claim, SinkConnector, SinkTask
from playhead.sdk.source import Offsets, RetriableException, SourceConnector, SourceTask, Transaction, split

__all__ = [
    "Check",
    "Claim",
    "Config",
    "Map",
    "Offsets",
    "Option",
    "RetriableException",
    "Schema",
    "Secret",
    "SinkConnector",
    "SinkRecord",
    "SinkTask",
    "SourceConnector",
    "SourceRecord",
    "SourceTask",
    "Transaction",
    "Value",
    "between",
    "matching",
    "not_empty",
    "one_of",
    "split",
]
