"""What each option of a JDBC source connector means to the Spark engine: honoured, without effect here, or refused by name.

An option that is not on these lists is refused too: Connect would ignore a typing mistake, and the user would find out late.
"""

from playhead.pipeline.option_reading import OF_EVERY, Known
from playhead.pipeline.records.transforms.options import OF_TRANSFORMS

HONOURED = frozenset(
    [
        "mode",
        "table.whitelist",
        "table.include.list",
        "table.blacklist",
        "table.exclude.list",
        "table.types",
        "schema.pattern",
        "catalog.pattern",
        "query",
        "query.suffix",
        "incrementing.column.name",
        "timestamp.column.name",
        "topic.prefix",
        "timestamp.initial",
        "timestamp.delay.interval.ms",
        "batch.max.rows",
        "poll.interval.ms",
        "table.poll.interval.ms",
        "validate.non.null",
        "quote.sql.identifiers",
        "dialect.name",
        "connection.url",
        "connection.user",
        "connection.password",
        "connection.driver",
    ]
)
# `parse_record_options` reads these.
OF_RECORDS = frozenset(["numeric.mapping", "numeric.precision.mapping", "timestamp.granularity", "db.timezone"])
HARMLESS = OF_EVERY | frozenset(
    [
        "poll.linger.ms",
        "connection.attempts",
        "connection.backoff.ms",
        "exactly.once.support",
        "transaction.boundary",
        "transaction.boundary.interval.ms",
        "offsets.storage.topic",
        "max.retries",
        "table.monitoring.startup.polling.limit.ms",
        "query.retry.attempts",
        "value.converter",
        "key.converter",
    ]
)
HARMLESS_PREFIXES = ("key.converter.", "value.converter.", "topic.creation.", "header.converter.")
PRODUCER = "producer.override."
DRIVER = "connection."  # what the connector does not know under this prefix is a property of the driver
# Options that may be there with the one value that means "off" or "as always".
ONLY = {
    "header.converter": ("org.apache.kafka.connect.storage.SimpleHeaderConverter",),
    "errors.tolerance": ("none",),
    "errors.retry.timeout": ("0",),
    "errors.retry.delay.max.ms": ("60000",),
    "errors.log.enable": ("false", "true"),
    "errors.log.include.messages": ("false", "true"),
    "query.masked": ("",),
    "timestamp.columns.mapping": ("",),
    "incrementing.column.mapping": ("",),
}
REASONS = {
    "header.converter": "records here have no headers",
    "errors.tolerance": "a row that cannot be converted stops the run, it is never skipped",
    "errors.retry.timeout": "a failed step is planned anew, a single record is not tried again",
    "errors.retry.delay.max.ms": "a failed step is planned anew, a single record is not tried again",
}
KNOWN = Known(
    HONOURED | OF_RECORDS | HARMLESS | frozenset(OF_TRANSFORMS),
    (*HARMLESS_PREFIXES, PRODUCER, DRIVER, *(f"{name}." for name in OF_TRANSFORMS)),
    ONLY,
    REASONS,
    "it would change what is read",
)
