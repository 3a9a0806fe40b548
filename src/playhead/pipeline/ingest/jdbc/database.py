"""Queries that the driver of a run sends itself, through the session's JVM and the same JDBC drivers as Spark's readers.

Answers are text, a few rows at most. A Java exception becomes a Playhead error of one sentence, without the URL and the password.
The next query opens a broken connection again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from playhead.config.scrub import Scrub
from playhead.errors import Invalid, NotFound, PlayheadError, Unreachable
from playhead.pipeline.ingest.jdbc.libpq import find_conninfo
from playhead.pipeline.ingest.jdbc.options import DEFAULT_ISOLATION, Connection
from playhead.pipeline.ingest.jdbc.sql_states import STATEMENT_SECONDS, fault_of_state
from playhead.pipeline.jdbc_url import takes_url_properties, with_properties
from playhead.pipeline.records.encode.fields import SqlColumn

Row = tuple[str | None, ...]
APPLICATION = "playhead"  # application_name of our sessions, so that they do not wait for each other
_SQLITE = "jdbc:sqlite:"
_REPEATABLE_READ, _SERIALIZABLE = 4, 8  # java.sql.Connection


class JdbcDatabase:
    """One connection, opened when it is first needed. Used by one thread at a time."""

    def __init__(self, spark: SparkSession, connection: Connection, isolation: str = DEFAULT_ISOLATION) -> None:
        self._spark = spark
        self._settings = connection
        self._isolation = isolation
        self._open: Any = None
        self._facts: tuple[str, str, str, str | None] | None = None
        self._is_postgres: bool | None = None

    @property
    def product(self) -> str:
        return self._described()[0]

    @property
    def version(self) -> str:
        return self._described()[1]

    @property
    def quote_mark(self) -> str:
        return self._described()[2]

    @property
    def catalog(self) -> str | None:
        return self._described()[3]

    def another(self) -> "JdbcDatabase":
        """A second connection to the same database."""
        return JdbcDatabase(self._spark, self._settings, self._isolation)

    def rows(self, sql: str, what: str = "planning") -> list[Row]:
        """All rows of a small result, as text."""
        with self.told(what), self._statement(sql) as found:
            width = found.getMetaData().getColumnCount()
            answer = []
            while found.next():
                answer.append(tuple(found.getString(number) for number in range(1, width + 1)))
            return answer

    def has_rows(self, sql: str, what: str = "planning") -> bool:
        """Whether a query returns any row. The statement is limited to one row, which every database supports."""
        with self.told(what), self._statement(sql, most_rows=1) as found:
            return bool(found.next())

    def scalar(self, sql: str, what: str = "planning") -> str | None:
        found = self.rows(sql, what)
        return found[0][0] if found else None

    def whole(self, sql: str, what: str = "planning") -> int | None:
        """A whole number; a numeric column may write it with decimals that are zero."""
        text = self.scalar(sql, what)
        return None if text is None else int(text.partition(".")[0])

    def columns(self, relation: str, what: str) -> list[tuple[SqlColumn, bool]]:
        """The columns of `relation`, each with whether it is auto-incremented."""
        with self.told(what), self._statement(f"SELECT * FROM {relation} WHERE 1 = 0") as found:  # noqa: S608
            facts = found.getMetaData()
            return [(_column(facts, n), bool(facts.isAutoIncrement(n))) for n in range(1, facts.getColumnCount() + 1)]

    def tables(self, catalog: str | None, schema: str | None, types: Sequence[str]) -> list[Row]:
        """(catalog, schema, name, type) of the tables that the patterns match, as the JDBC driver reports them."""
        with self.told("listing tables"):
            wanted = self._array(types)
            found = self._connection().getMetaData().getTables(catalog, schema, "%", wanted)
            answer = []
            while found.next():
                answer.append(tuple(found.getString(number) for number in range(1, 5)))
            found.close()
            return answer

    def primary_key(self, catalog: str | None, schema: str | None, table: str) -> list[str]:
        with self.told(f"reading the primary key of {table}"):
            found = self._connection().getMetaData().getPrimaryKeys(catalog, schema, table)
            names = []
            while found.next():
                names.append((int(found.getShort("KEY_SEQ")), str(found.getString("COLUMN_NAME"))))
            found.close()
            return [name for _, name in sorted(names)]

    def hold_snapshot(self) -> str:
        """PostgreSQL: holds a snapshot open on this connection. Other connections can use it by the returned name."""
        with self.told("taking a snapshot"):
            connection = self._connection()
            self._run("SET idle_in_transaction_session_timeout = 0")
            connection.setAutoCommit(False)
            connection.setTransactionIsolation(_SERIALIZABLE if self._isolation == "SERIALIZABLE" else _REPEATABLE_READ)
        return self.scalar("SELECT pg_export_snapshot()", "taking a snapshot") or ""

    def close(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            try:
                connection.close()
            except Py4JJavaError:
                return  # a broken connection is closed already

    @property
    def reader_url(self) -> str:
        """For Spark's readers. prepareThreshold=-1 transfers numbers and times in binary from the first row on."""
        return self._url_with({"prepareThreshold": "-1"} if self.is_postgres_url else {})

    def _url_with(self, more: Mapping[str, str]) -> str:
        """Spark converts property names to lower case, and drivers do not know those names; in the URL they are unchanged. What
        the URL sets itself wins, as in the drivers."""
        settings = self._settings
        if not takes_url_properties(settings.url):
            return settings.url
        return with_properties(settings.url, {**more, **settings.properties})

    def reader_properties(self) -> dict[str, str]:
        """The properties that are not in the URL, for Spark's readers and for our own connection."""
        settings = self._settings
        properties = {} if takes_url_properties(settings.url) else dict(settings.properties)
        if settings.user is not None:
            properties["user"] = settings.user
        if settings.password is not None:
            properties["password"] = settings.password.reveal()
        if settings.driver is not None:
            properties["driver"] = settings.driver
        return properties

    def reader_begin(self, snapshot: str | None) -> tuple[str, ...]:
        """What PostgreSQL gets before a chunk is read: the level of `transaction.isolation.mode`, or a stricter one if a shared
        snapshot needs it."""
        if not self.is_postgres_url:
            return ()
        begin, level = [f"SET application_name = '{APPLICATION}'"], self._isolation.replace("_", " ")
        if snapshot is not None and level != "SERIALIZABLE":
            level = "REPEATABLE READ"
        if level != DEFAULT_ISOLATION:
            begin.append(f"SET TRANSACTION ISOLATION LEVEL {level}")
        return (*begin, *([] if snapshot is None else [f"SET TRANSACTION SNAPSHOT '{snapshot}'"]))

    def find_conninfo(self) -> str | None:
        """For tasks that read PostgreSQL by libpq. None: Spark's JDBC reader reads it, because a setting cannot be translated, or
        because the server only speaks like PostgreSQL."""
        if not self.is_postgres_url:
            return None
        if self._is_postgres is None:
            version = self.scalar("SELECT version()") or ""
            self._is_postgres = version.startswith("PostgreSQL ") and "Redshift" not in version
        return find_conninfo(self._settings) if self._is_postgres else None

    @property
    def password(self) -> str:
        return self._settings.password.reveal() if self._settings.password else ""

    @property
    def url(self) -> str:
        return self._settings.url

    def _described(self) -> tuple[str, str, str, str | None]:
        if self._facts is None:
            with self.told("reading the database's product and version"):
                connection = self._connection()
                facts = connection.getMetaData()
                mark = (facts.getIdentifierQuoteString() or "").strip()
                self._facts = (
                    str(facts.getDatabaseProductName()),
                    str(facts.getDatabaseProductVersion()),
                    mark,
                    connection.getCatalog(),
                )
        return self._facts

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def _connection(self) -> Any:
        if self._open is None:
            settings = self._settings
            _check_file(settings.url)
            if settings.driver:
                # Also finds a driver that was added with --jar and is not on the class path of the JVM.
                self._jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(settings.driver)
            properties = self._jvm.java.util.Properties()
            for name, value in self.reader_properties().items():
                if name != "driver":
                    properties.setProperty(name, value)
            self._open = self._jvm.java.sql.DriverManager.getConnection(self._url_with({}), properties)
            if self.is_postgres_url:
                self._run(f"SET application_name = '{APPLICATION}'")
        return self._open

    def _run(self, sql: str) -> None:
        statement = self._open.createStatement()
        statement.execute(sql)
        statement.close()

    @property
    def is_postgres_url(self) -> bool:
        return self._settings.url.lower().startswith("jdbc:postgresql:")

    @contextmanager
    def _statement(self, sql: str, most_rows: int = 0) -> Iterator[Any]:
        statement = self._connection().createStatement()
        try:
            statement.setQueryTimeout(STATEMENT_SECONDS)
            statement.setMaxRows(most_rows)
            yield statement.executeQuery(sql)
        finally:
            try:
                statement.close()
            except Py4JJavaError:
                self._open = None

    def _array(self, texts: Sequence[str]) -> Any:
        gateway: Any = self._spark.sparkContext._gateway
        array = gateway.new_array(self._jvm.java.lang.String, len(texts))
        for number, text in enumerate(texts):
            array[number] = text
        return array

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Translates exceptions of the JDBC driver into Playhead errors about `what`."""
        try:
            yield
        except Py4JJavaError as error:
            fault = _fault_of(error, what, self._settings)
            if isinstance(fault, Unreachable):
                self.close()
            raise fault from None


def _column(facts: Any, number: int) -> SqlColumn:
    return SqlColumn(
        name=facts.getColumnLabel(number),
        jdbc_type=facts.getColumnType(number),
        type_name=facts.getColumnTypeName(number),
        precision=facts.getPrecision(number),
        scale=facts.getScale(number),
        signed=facts.isSigned(number),
        nullable=facts.isNullable(number) != 0,
    )


def _fault_of(error: Py4JJavaError, what: str, settings: Connection) -> PlayheadError:
    """Maps JDBC's SQL states to our errors."""
    cause = error.java_exception
    lineage, message = _lineage(cause), _sentence(cause, settings)
    state = (cause.getSQLState() or "") if "java.sql.SQLException" in lineage else ""
    if "No suitable driver" in message or "ClassNotFound" in lineage:
        return Invalid("no JDBC driver accepts this connection.url", "name the driver's jar with --jar")
    return fault_of_state(state, message, what)


def _check_file(url: str) -> None:
    """Without this check SQLite would create an empty database."""
    if url.lower().startswith(_SQLITE):
        path = url[len(_SQLITE) :].partition("?")[0].removeprefix("file:")
        if not Path(path).is_file():
            raise NotFound("database file", path, hint="check connection.url")


def _lineage(cause: Any) -> str:
    """Names of the exception's class and its superclasses."""
    names, kind = [], cause.getClass()
    while kind is not None:
        names.append(str(kind.getName()))
        kind = kind.getSuperclass()
    return " ".join(names)


def _sentence(cause: Any, settings: Connection) -> str:
    """The first line of the message, without the URL and the password."""
    text = str(cause.getMessage() or cause.getClass().getSimpleName()).partition("\n")[0].strip()
    return Scrub([settings.url, settings.password.reveal() if settings.password else ""])(text)
