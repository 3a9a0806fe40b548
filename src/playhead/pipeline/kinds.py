"""The connector classes that the Spark engine has."""

from enum import Enum

from playhead.connect.dialects.file import FILE_STREAM
from playhead.connect.dialects.jdbc import JDBC


class Kind(Enum):
    JDBC_SOURCE = "jdbc source"
    FILE_SOURCE = "file source"
    FILES_SINK = "files sink"
    JDBC_SINK = "jdbc sink"
    FILE_SINK = "file sink"

    @property
    def is_sink(self) -> bool:
        return self in (Kind.FILES_SINK, Kind.JDBC_SINK, Kind.FILE_SINK)


_FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
CLASSES: dict[str, Kind] = {
    **dict.fromkeys(JDBC.classes, Kind.JDBC_SOURCE),
    **dict.fromkeys((*FILE_STREAM.classes, "FileStreamSource", "FileStreamSourceConnector"), Kind.FILE_SOURCE),
    "io.confluent.connect.s3.S3SinkConnector": Kind.FILES_SINK,
    "io.confluent.connect.jdbc.JdbcSinkConnector": Kind.JDBC_SINK,
    "io.aiven.connect.jdbc.JdbcSinkConnector": Kind.JDBC_SINK,
    **dict.fromkeys((_FILE_SINK, "FileStreamSink", "FileStreamSinkConnector"), Kind.FILE_SINK),
}
