"""Every option of a JDBC source connector, and what becomes of it on Spark: one line each.

The list is that of the connector (JdbcSourceConnectorConfig of release 10.9) and of Connect's source connectors (Kafka 4.3).
"""

import pytest

from playhead.pipeline.ingest.jdbc.options import check_options, notes_of

BASE = {
    "name": "orders",
    "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
    "connection.url": "jdbc:postgresql://db:5432/shop",
    "mode": "incrementing",
    "topic.prefix": "t_",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}
TIMES = {"mode": "timestamp", "timestamp.column.name": "ts"}
BOTH = {"table.include.list": "public.*", "mode": "timestamp+incrementing", "timestamp.columns.mapping": ".*:[ts]"}
TOPICS = {"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "-1"}
HONOURED, NOTED, REFUSED = "honoured", "without effect, and the run says so", "refused"
Case = tuple[str, str, str, dict[str, str]]


def case(option: str, value: str, what: str, **more: dict[str, str]) -> Case:
    return option, value, what, more.get("beside", {})


OPTIONS = [
    # The database
    case("connection.url", "jdbc:postgresql://db/shop", HONOURED),
    case("connection.url", "", REFUSED),
    case("connection.user", "app", HONOURED),
    case("connection.password", "x", HONOURED),
    case("connection.driver", "org.postgresql.Driver", HONOURED),
    case("connection.loginTimeout", "10", HONOURED),
    case("connection.socketFactory", "evil.Factory", REFUSED),
    case("connection.attempts", "5", NOTED),
    case("connection.attempts", "0", REFUSED),
    case("connection.backoff.ms", "1000", NOTED),
    case("connection.backoff.ms", "soon", REFUSED),
    case("jdbc.credentials.provider.class", "io.confluent.connect.jdbc.util.DefaultJdbcCredentialsProvider", HONOURED),
    case("jdbc.credentials.provider.class", "my.Provider", REFUSED),
    case("jdbc.credentials.provider.region", "eu", REFUSED),
    case("dialect.name", "", HONOURED),
    case("dialect.name", "PostgreSqlDatabaseDialect", HONOURED),
    case("dialect.name", "SqliteDatabaseDialect", REFUSED),
    case("dialect.name", "GenericDatabaseDialect", REFUSED),
    case("dialect.name", "postgresqldatabasedialect", REFUSED),
    case("table.whitelist", "orders", HONOURED),
    case("table.blacklist", "orders", HONOURED),
    case("table.include.list", "public.*", HONOURED),
    case("table.include.list", "public.(", REFUSED),
    case("table.exclude.list", "public.old.*", HONOURED, beside={"table.include.list": "public.*"}),
    case("table.exclude.list", "public.old.*", REFUSED, beside={"table.whitelist": "orders"}),
    case("table.types", "TABLE,VIEW", HONOURED),
    case("catalog.pattern", "shop", HONOURED),
    case("schema.pattern", "public", HONOURED),
    case("numeric.precision.mapping", "true", HONOURED),
    case("numeric.precision.mapping", "maybe", REFUSED),
    case("numeric.mapping", "best_fit", HONOURED),
    case("numeric.mapping", "BEST_FIT", HONOURED),
    case("numeric.mapping", "Best_Fit", REFUSED),
    case("date.calendar.system", "LEGACY", HONOURED),
    case("date.calendar.system", "PROLEPTIC_GREGORIAN", REFUSED),
    case("date.calendar.system", "legacy", REFUSED),
    # The mode
    case("mode", "incrementing", HONOURED),
    case("mode", "bulk", HONOURED),
    case("mode", "INCREMENTING", REFUSED),
    case("mode", "", REFUSED),
    case("incrementing.column.name", "id", HONOURED),
    case("incrementing.column.name", "id", REFUSED, beside={"mode": "bulk"}),
    case("incrementing.column.mapping", "public.*:id", HONOURED, beside={"table.include.list": "public.*"}),
    case("incrementing.column.mapping", "public.*:id", HONOURED, beside=BOTH),
    case("incrementing.column.mapping", "public.*:id", REFUSED),
    case("incrementing.column.mapping", "public.*:id", REFUSED, beside={"table.whitelist": "orders"}),
    case("incrementing.column.mapping", "public.*:id", REFUSED, beside=TIMES),
    case("incrementing.column.mapping", "public.*", REFUSED, beside={"table.include.list": "public.*"}),
    case("timestamp.column.name", "ts", HONOURED, beside={"mode": "timestamp"}),
    case("timestamp.column.name", "ts", REFUSED),
    case("timestamp.columns.mapping", "p.*:[a|b]", HONOURED, beside={"mode": "timestamp", "table.include.list": "p.*"}),
    case("timestamp.columns.mapping", "p.*:ts", REFUSED, beside={"mode": "timestamp", "table.include.list": "p.*"}),
    case("timestamp.columns.mapping", "p.*:[]", REFUSED, beside={"mode": "timestamp", "table.include.list": "p.*"}),
    case("timestamp.initial", "-1", HONOURED, beside=TIMES),
    case("timestamp.initial", "yesterday", REFUSED),
    case("timestamp.delay.interval.ms", "1000", HONOURED),
    case("timestamp.granularity", "micros_long", HONOURED),
    case("timestamp.granularity", "Micros_Long", REFUSED),
    case("validate.non.null", "FALSE", HONOURED),
    case("validate.non.null", "maybe", REFUSED),
    case("query", "SELECT 1", HONOURED, beside={"incrementing.column.name": "id"}),
    case("query", "SELECT 1", REFUSED, beside={"table.whitelist": "orders", "incrementing.column.name": "id"}),
    case("query.masked", "SELECT 1", HONOURED, beside={"incrementing.column.name": "id"}),
    case("query.masked", "SELECT 1", REFUSED, beside={"query": "SELECT 2", "incrementing.column.name": "id"}),
    case("query.masked", "SELECT 1", REFUSED, beside={"table.whitelist": "orders", "incrementing.column.name": "id"}),
    case("query.suffix", "LIMIT 5", HONOURED),
    case("query.suffix", "LIMIT 5", REFUSED, beside=TIMES),
    case("query.retry.attempts", "-1", NOTED),
    case("query.retry.attempts", "often", REFUSED),
    case("quote.sql.identifiers", "NEVER", HONOURED),
    case("quote.sql.identifiers", "sometimes", REFUSED),
    case("transaction.isolation.mode", "DEFAULT", HONOURED),
    case("transaction.isolation.mode", "SERIALIZABLE", HONOURED),
    case("transaction.isolation.mode", "serializable", REFUSED),
    case("transaction.isolation.mode", "SQL_SERVER_SNAPSHOT", REFUSED),
    case("transaction.isolation.mode", "SERIALIZABLE", REFUSED, beside={"connection.url": "jdbc:mysql://db/shop"}),
    case("db.timezone", "Europe/Berlin", HONOURED),
    case("db.timezone", "GMT-08:00", HONOURED),
    case("db.timezone", "Europe/Atlantis", REFUSED),
    # Pace and size
    case("topic.prefix", "a b", REFUSED),
    case("poll.interval.ms", "5000", NOTED),
    case("poll.linger.ms", "0", NOTED),
    case("table.poll.interval.ms", "60000", NOTED),
    case("table.monitoring.startup.polling.limit.ms", "10000", NOTED),
    case("batch.max.rows", "500", HONOURED),
    case("batch.max.rows", "0", REFUSED),
    case("max.buffer.size", "0", NOTED),
    case("max.buffer.size", "x", REFUSED),
    # Internal options of the connector's tasks
    case("tables", "orders", REFUSED),
    case("tables.fetched", "true", REFUSED),
    case("engine.shutdown.timeout", "10", REFUSED),
    # Connect
    case("tasks.max", "4", HONOURED),
    case("tasks.max.enforce", "false", HONOURED),
    case("connector.plugin.version", "10.9.0", HONOURED),
    case("config.action.reload", "none", HONOURED),
    case("config.action.reload", "NONE", REFUSED),
    case("key.converter", "io.confluent.connect.avro.AvroConverter", HONOURED),
    case("value.converter", "io.confluent.connect.avro.AvroConverter", REFUSED),
    case("header.converter", "org.apache.kafka.connect.storage.SimpleHeaderConverter", HONOURED),
    case("header.converter", "org.apache.kafka.connect.json.JsonConverter", REFUSED),
    case("transforms", "route", REFUSED),
    case("predicates", "old", REFUSED),
    case("errors.tolerance", "none", HONOURED),
    case("errors.tolerance", "all", REFUSED),
    case("errors.tolerance", "None", REFUSED),
    case("errors.retry.timeout", "0", HONOURED),
    case("errors.retry.timeout", "1000", REFUSED),
    case("errors.retry.delay.max.ms", "60000", HONOURED),
    case("errors.retry.delay.max.ms", "1", REFUSED),
    case("errors.log.enable", "true", NOTED),
    case("errors.log.include.messages", "true", NOTED),
    case("errors.log.include.messages", "perhaps", REFUSED),
    case("errors.deadletterqueue.topic.name", "dlq", REFUSED),  # of sinks
    case("exactly.once.support", "required", HONOURED),
    case("exactly.once.support", "never", REFUSED),
    case("transaction.boundary", "POLL", NOTED),
    case("transaction.boundary", "connector", REFUSED),  # the connector defines none
    case("transaction.boundary.interval.ms", "1000", NOTED),
    case("transaction.boundary.interval.ms", "0", REFUSED),
    case("offsets.storage.topic", "my-offsets", HONOURED),
    case("offsets.storage.topic", "", REFUSED),
    case("max.retries", "3", REFUSED),  # of sinks
    case("topic.creation.groups", "small", HONOURED, beside=TOPICS | {"topic.creation.small.include": "t_s.*"}),
    case("topic.creation.groups", "a,a", REFUSED, beside=TOPICS),
    case("topic.creation.default.partitions", "3", HONOURED, beside=TOPICS),
    case("topic.creation.default.partitions", "0", REFUSED, beside=TOPICS),
    case("topic.creation.default.replication.factor", "-1", HONOURED, beside=TOPICS),
    case("topic.creation.default.replication.factor", "many", REFUSED, beside=TOPICS),
    case("topic.creation.default.cleanup.policy", "compact", HONOURED, beside=TOPICS),
    case("topic.creation.small.partitions", "1", REFUSED, beside=TOPICS),  # no such group
    case("topic.creation.enable", "false", REFUSED, beside=TOPICS),  # of the worker file
    case("admin.override.bootstrap.servers", "other:9092", REFUSED),
    case("consumer.override.fetch.max.bytes", "1", REFUSED),
    # The producer
    case("producer.override.acks", "all", HONOURED),
    case("producer.override.acks", "-1", HONOURED),
    case("producer.override.acks", "1", REFUSED),
    case("producer.override.enable.idempotence", "true", HONOURED),
    case("producer.override.enable.idempotence", "false", REFUSED),
    case("producer.override.batch.size", "65536", HONOURED),
    case("producer.override.linger.ms", "20", HONOURED),
    case("producer.override.linger.ms", "soon", REFUSED),
    case("producer.override.compression.type", "zstd", HONOURED),
    case("producer.override.compression.type", "brotli", REFUSED),
    case("producer.override.max.request.size", "8388608", HONOURED),
    case("producer.override.max.request.size", "8388608B", REFUSED),
    case("producer.override.delivery.timeout.ms", "600000", HONOURED),
    case("producer.override.delivery.timeout.ms", "10", REFUSED),
    case("producer.override.request.timeout.ms", "30000", HONOURED),
    case("producer.override.retries", "0", REFUSED),
    case("producer.override.max.in.flight.requests.per.connection", "9", REFUSED),
    case("producer.override.transactional.id", "mine", REFUSED),
    case("producer.override.transaction.timeout.ms", "60000", NOTED),
    case("producer.override.interceptor.classes", "my.Interceptor", REFUSED),
    case("producer.override.key.serializer", "my.Serializer", REFUSED),
    case("producer.override.buffer.memory", "67108864", NOTED),
    case("producer.override.max.block.ms", "60000", NOTED),
    case("producer.override.partitioner.class", "my.Partitioner", NOTED),  # without keys
    case("producer.override.security.protocol", "SSL", HONOURED),
    case("producer.override.no.such.option", "1", REFUSED),
    case("incremnting.column.name", "id", REFUSED),
]


@pytest.mark.parametrize(("option", "value", "what", "beside"), OPTIONS)
def test_what_becomes_of_each_option(option: str, value: str, what: str, beside: dict[str, str]):
    config = {**BASE, **beside, option: value}
    faults = {fault.where for fault in check_options(config, {})}
    notes = [note for note in notes_of(config) if option in note]
    assert faults == ({option} if what is REFUSED else set())
    if what is not REFUSED:
        assert len(notes) == (what is NOTED)


def test_a_bad_option_is_blamed_on_itself_and_on_nothing_else():
    bad = {"db.timezone": "Mars", "numeric.mapping": "x", "timestamp.granularity": "x"}
    assert [fault.where for fault in check_options({**BASE, **bad}, {})] == [
        "numeric.mapping",
        "timestamp.granularity",
        "db.timezone",
    ]


def test_producer_settings_of_the_worker_file_are_tried_too():
    (fault,) = check_options(BASE, {"producer.max.request.size": "8MB", "producer.linger.ms": "5"})
    assert fault.where == "producer.max.request.size of the worker file"
    assert check_options(BASE, {"producer.acks": "1", "producer.batch.size": "16384"}) == []


def test_settings_that_only_fit_alone_are_refused():
    together = {"producer.override.delivery.timeout.ms": "1000", "producer.override.linger.ms": "2000"}
    assert "producer.override.*" in {fault.where for fault in check_options({**BASE, **together}, {})}
