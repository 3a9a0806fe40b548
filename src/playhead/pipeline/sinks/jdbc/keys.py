"""What each option of a JDBC sink connector means to the Spark engine: honoured, without effect here, or refused by name.

An option that is not on these lists is refused, too: Connect would ignore a typing mistake, and the user would find out late.
"""

from playhead.pipeline.option_reading import OF_EVERY, Known

HONOURED = frozenset(
    [
        "connection.url",
        "connection.user",
        "connection.password",
        "dialect.name",
        "insert.mode",
        "delete.enabled",
        "pk.mode",
        "pk.fields",
        "fields.whitelist",
        "table.name.format",
        "table.types",
        "auto.create",
        "quote.sql.identifiers",
        "sql.quote.identifiers",  # Aiven's name for it
        "db.timezone",
        "table.name.normalize",
        "batch.size",
        "max.retries",
        "retry.backoff.ms",
    ]
)
# Who runs the sink reads these: topics, converters, what becomes of bad records.
OF_RUN = frozenset(
    [
        "topics",
        "topics.regex",
        "key.converter",
        "value.converter",
        "errors.tolerance",
        "errors.deadletterqueue.topic.name",
        "errors.deadletterqueue.topic.replication.factor",
        "errors.deadletterqueue.context.headers.enable",
        "errors.log.enable",
        "errors.log.include.messages",
        "errors.retry.timeout",
        "errors.retry.delay.max.ms",
    ]
)
OF_RUN_PREFIXES = ("key.converter.", "value.converter.", "consumer.override.", "producer.override.")
# Each partition of a step is one transaction, whatever the size of a batch, and a step that fails is planned anew.
HARMLESS = OF_EVERY | frozenset(
    [
        "connection.attempts",
        "connection.backoff.ms",
        "header.converter",
        "mssql.use.merge.holdlock",
        "trim.sensitive.log",
    ]
)
HARMLESS_PREFIXES = ("header.converter.",)
# Options that may be there with the one value that means "off" or "as always".
ONLY = {
    "auto.evolve": ("false",),
    "transforms": ("",),
    "predicates": ("",),
    "timestamp.fields.list": ("",),
    "topics.to.tables.mapping": ("",),
    "handle.tombstone": ("false",),
}
REASONS = {
    "auto.evolve": "a column that the table does not have stops the run; add it yourself, then run again",
    "transforms": "the Spark engine has no transforms of sinks",
    "predicates": "the Spark engine has no transforms of sinks",
}
KNOWN = Known(HONOURED | OF_RUN | HARMLESS, (*OF_RUN_PREFIXES, *HARMLESS_PREFIXES, "connection."), ONLY, REASONS)
