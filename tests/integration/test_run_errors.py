"""What a run says about data that it cannot move: table, row and column, in one sentence, without the words of Spark and Java."""

from collections.abc import Sequence

import pytest

from integration.delivering import Deliver, deliver
from integration.ingesting import Ingest, ingest
from integration.jdbc_sinks import order
from integration.on_spark import NEW_TOPICS
from playhead.kafka.transactions import PlainProducer
from playhead.model import ConnectorSpec, Deadline, Engine
from playhead.pipeline.supervisor import Progress

__all__ = ["deliver", "ingest"]
NOISE = ("SQLSTATE", "Exception", "org.", "java", "[USER", "[ARITH", "Traceback", "\n", "P0001", "22P02", "23514")


def error_of(ended: Sequence[Progress]) -> str:
    (one,) = ended
    assert one.error is not None
    for word in NOISE:
        assert word not in one.error.what, one.error.what
    return one.error.what


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("numeric(10,2)", "'NaN'", "holds a numeric that is no number, which Connect cannot write"),
        ("timestamp", "'infinity'", "holds a timestamp that is infinite or cannot be read"),
        ("date", "'-infinity'", "holds a date that is infinite or cannot be read"),
    ],
    ids=["numeric", "timestamp", "date"],
)
def test_a_value_that_has_no_record_is_named_with_its_table_row_and_column(ingest: Ingest, unique, kind, value, said):
    table = unique("bad").replace("-", "_")
    ingest.lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, x {kind})")
    ingest.lab.psql(f"INSERT INTO {table} (x) SELECT NULL FROM generate_series(1, 41)")
    ingest.lab.psql(f"INSERT INTO {table} (x) VALUES ({value})")
    what = error_of(ingest.run(ingest.table(table)))
    assert what.startswith(f"c-{table}, public.{table}: column 'x' {said}")
    assert what.endswith("; the row is id=42")


def test_a_row_of_a_timestamp_mode_is_named_by_time_and_id(ingest: Ingest, unique):
    table = unique("bad").replace("-", "_")
    ingest.lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, at timestamp NOT NULL, x numeric)")
    ingest.lab.psql(f"INSERT INTO {table} (at, x) VALUES ('2024-01-02 03:04:05', 1), ('2024-01-02 03:04:06', 'NaN')")
    spec = ingest.table(table, **{"mode": "timestamp+incrementing", "timestamp.column.name": "at"})
    assert error_of(ingest.run(spec)).endswith("; the row is id=2, at=2024-01-02 03:04:06")


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("1 / (n - 5)", "division by zero"),
        ("2147483640 + n", "integer out of range"),
        ("convert_from(set_byte('abc', 1, 250 + n / 5), 'UTF8')", "invalid byte sequence"),
    ],
    ids=["zero", "overflow", "text"],
)
def test_an_error_of_a_query_is_that_of_the_database(ingest: Ingest, unique, column, said):
    table = unique("q").replace("-", "_")
    ingest.lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, n int)")
    ingest.lab.psql(f"INSERT INTO {table} (n) SELECT i FROM generate_series(1, 20) i")
    spec = ingest.table(table)
    config = {key: value for key, value in spec.config.items() if key != "table.whitelist"}
    config |= {"query": f"SELECT * FROM (SELECT id, {column} AS x FROM {table}) q", "topic.prefix": table, **NEW_TOPICS}
    what = error_of(ingest.run(ConnectorSpec(spec.name, config, Engine.SPARK)))
    assert what.startswith(f"c-{table}, query: ") and said in what


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("CHECK (amount < 10)", 'new row for relation "{table}" violates check constraint'),
        ("TRIGGER", "no such amount"),
    ],
    ids=["constraint", "trigger"],
)
def test_a_row_that_a_table_refuses_is_named_with_table_and_offset(deliver: Deliver, unique, rule, said):
    table = unique("t").replace("-", "_")
    lab = deliver.lab
    check = rule if rule.startswith("CHECK") else ""
    lab.psql(f"CREATE TABLE {table} (id bigint, name text, amount int {check})")
    if not check:
        lab.psql(
            f"CREATE FUNCTION f_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.amount > 9 THEN"
            " RAISE EXCEPTION 'no such amount'; END IF; RETURN NEW; END $$"
        )
        lab.psql(f"CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION f_{table}()")
    deliver.make_topic(table, 1)
    with PlainProducer(deliver.settings, Deadline(60)) as producer:
        for number in range(5):
            key, value = order(number, "a", 10 if number == 3 else 1)
            producer.produce(table, key or b"", value or b"", partition=0)
    config = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "connection.url": lab.jdbc_url,
        "topics": table,
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    }
    what = error_of(deliver.run(ConnectorSpec(f"s-{table}", config, Engine.SPARK)))
    assert f"{table}-0" in what and "3" in what
    assert f"table public.{table} refuses it: " in what or f"table {table} refuses it: " in what
    assert said.format(table=table) in what


def test_a_table_that_the_user_may_not_read_is_named(ingest: Ingest, unique):
    table = unique("shut").replace("-", "_")
    ingest.lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY)")
    ingest.lab.psql(f"INSERT INTO {table} DEFAULT VALUES")
    ingest.lab.psql(f"CREATE ROLE {table}_user LOGIN PASSWORD 'x'")
    url = ingest.lab.jdbc_url.partition("?")[0]
    own = {"connection.url": url, "connection.user": f"{table}_user", "connection.password": "x"}
    spec = ingest.table(table, **own)
    what = error_of(ingest.run(spec))
    assert f"permission denied for table {table}" in what
