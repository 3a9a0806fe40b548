"""Which tables a JDBC source reads, from the answer of the driver."""

from typing import cast

import pytest

from playhead.errors import Invalid, NotFound
from playhead.pipeline.ingest.jdbc.database import JdbcDatabase
from playhead.pipeline.ingest.jdbc.flavour import PostgreSql
from playhead.pipeline.ingest.jdbc.options import TableFilter
from playhead.pipeline.ingest.jdbc.tables import find_tables

ORDERS, RETURNS, OLD, ODD = ("sales", "orders"), ("sales", "returns"), ("archive", "orders"), ("sales", "odd name")


class Metadata:
    quote_mark = '"'

    def __init__(self, *tables: tuple[str, str]) -> None:
        self._tables = tables

    def tables(
        self, catalog: str | None, schema: str | None, types: tuple[str, ...]
    ) -> list[tuple[str, str, str, str]]:
        return [("shop", own, name, types[0]) for own, name in self._tables if schema in (None, own)]


def sources(*tables: tuple[str, str], mark: str = '"', wanted: TableFilter) -> list[str]:
    database = cast(JdbcDatabase, Metadata(*tables))
    return [table.source for table in find_tables(database, PostgreSql(mark), wanted)]


@pytest.mark.parametrize(
    "wanted",
    [
        TableFilter(include=("orders",), option="table.whitelist"),
        TableFilter(include=("sales.orders", "archive.orders"), option="table.whitelist"),
        TableFilter(include=(".*orders",), patterns=True, option="table.include.list"),
        TableFilter(exclude=("returns",), option="table.blacklist"),
    ],
)
def test_two_tables_of_one_name_are_refused_as_in_connect(wanted: TableFilter):
    with pytest.raises(Invalid, match=r"archive\.orders and sales\.orders have one name") as refused:
        sources(ORDERS, RETURNS, OLD, wanted=wanted)
    assert refused.value.hint is not None
    assert wanted.option in refused.value.hint and "schema.pattern" in refused.value.hint


@pytest.mark.parametrize(
    "wanted",
    [
        TableFilter(include=("sales.orders",)),
        TableFilter(include=('"sales"."orders"',)),
        TableFilter(include=("orders",), schema_pattern="sales"),
        TableFilter(exclude=("archive.orders", "returns")),
    ],
)
def test_a_qualified_name_or_a_schema_says_which_one_is_meant(wanted: TableFilter):
    assert sources(ORDERS, RETURNS, OLD, wanted=wanted) == ['"sales"."orders"']


def test_tables_of_one_name_that_are_not_read_are_no_fault():
    assert sources(ORDERS, RETURNS, OLD, wanted=TableFilter(include=("returns",))) == ['"sales"."returns"']


def test_only_tables_that_are_read_must_do_without_quotes():
    assert sources(ORDERS, ODD, mark="", wanted=TableFilter(include=("orders",))) == ["sales.orders"]
    assert sources(ORDERS, ODD, mark="", wanted=TableFilter(exclude=("odd name",))) == ["sales.orders"]
    assert sources(ORDERS, ODD, mark="", wanted=TableFilter(include=('"sales"."orders"',))) == ["sales.orders"]
    with pytest.raises(Invalid, match="'odd name' needs quotes"):
        sources(ORDERS, ODD, mark="", wanted=TableFilter(include=("odd name",)))


def test_a_table_that_is_missing_is_named_with_those_that_exist():
    with pytest.raises(NotFound, match="order") as missing:
        sources(ORDERS, wanted=TableFilter(include=("order",)))
    assert "sales.orders" in str(missing.value.hint)
