"""The JDBC source connectors of Confluent and Aiven: same keys, same values.

A table's position is stored under its name (V1, with `protocol`). Older connectors stored it under the bare table name (V0), and
newer ones still read that if there is no V1: to reset a table, delete both. The spelling of the name depends on connector and
driver version (`public.orders` or `shop.public.orders`), and only one form is looked up.

`timestamp` is in milliseconds, `timestamp_nanos` is the whole fraction of the same second. In the connector the nanoseconds take
precedence, so the two must agree.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from playhead.connect.dialects.base import Completed, Dialect, Field, Problem, ValueKind, compare_keys, merged
from playhead.connect.dialects.notation import (
    MILLISECONDS,
    SECOND,
    WHOLE,
    as_int,
    parse_instant,
    show_instant,
)
from playhead.model import Map
from playhead.model.position import Scalar

MILLI = 10**6
_TABLE = Field("table", required=True)
_V1, _QUERY = Field("protocol", required=True, only="1"), Field("query", required=True, only="query")
_ORDER = ("timestamp_nanos", "incrementing", "timestamp")  # as a worker writes them
_FIELDS = (
    Field("timestamp_nanos", ValueKind.LONG, low=0, high=SECOND - 1),
    Field("incrementing", ValueKind.LONG),
    Field("timestamp", ValueKind.LONG, notation=MILLISECONDS),
)


@dataclass(frozen=True)
class Jdbc(Dialect):
    def matches(self, partition: Map, offset: Map | None) -> bool:
        names = set(partition)
        if names == {"protocol", "table"}:
            return partition["protocol"] == "1"
        stored = set(offset) if offset else set()
        if names == {"query"}:
            return partition["query"] == "query" and stored <= set(_ORDER)
        return names == {"table"} and bool(stored) and stored <= set(_ORDER)

    def rules(self, offset: Map) -> list[Problem]:
        return [*super().rules(offset), *_fraction(offset)]

    def parse_fields(self, texts: Mapping[str, str], current: Map | None) -> Completed:
        fields = {name: self.parse_field(name, text) for name, text in texts.items()}
        typed = texts.get("timestamp")
        if typed is not None and "timestamp_nanos" not in fields and fields["timestamp"] is not None:
            nanos = int(typed) * MILLI if WHOLE.fullmatch(typed) else parse_instant(typed)
            fields["timestamp_nanos"] = nanos % SECOND  # keeps the digits below the millisecond
            return Completed(self._ordered(merged(current, fields)), (_moved(nanos % SECOND),))
        return self.completed(current, fields)

    def completed(self, current: Map | None, fields: Mapping[str, Scalar]) -> Completed:
        """The connector reads the fraction of the second from the nanoseconds: if one is set, the other is adjusted."""
        after = merged(current, fields)
        timestamp, nanos = as_int(after.get("timestamp")), as_int(after.get("timestamp_nanos"))
        changed = {"timestamp", "timestamp_nanos"} & set(fields)
        if "timestamp" in fields and after["timestamp"] is None and changed == {"timestamp"}:
            return Completed(self._ordered(merged(after, {}, drop=["timestamp_nanos"])))
        if changed == {"timestamp"} and timestamp is not None:
            fraction = timestamp % 1000 * MILLI
            return Completed(self._ordered(merged(after, {"timestamp_nanos": fraction})), (_moved(fraction),))
        if changed == {"timestamp_nanos"} and timestamp is not None and nanos is not None:
            moved = timestamp // 1000 * 1000 + nanos // MILLI
            note = f"timestamp becomes {moved}, so that it agrees with timestamp_nanos"
            return Completed(self._ordered(merged(after, {"timestamp": moved})), (note,) if moved != timestamp else ())
        return Completed(self._ordered(after))

    def title(self, partition: Map) -> str:
        table = table_of(partition)
        if table is None:
            return "the query" if "query" in partition else super().title(partition)
        return table + (" (V0)" if is_v0(partition) else "")

    def offset_in_words(self, offset: Map) -> str:
        parts = []
        if offset.get("incrementing") is not None:
            parts.append(f"id {self.in_words('incrementing', offset['incrementing'])}")
        moment = _moment(offset)
        if moment is not None:
            parts.append(show_instant(moment))
        others = [name for name in offset if name not in _ORDER or (moment is None and name != "incrementing")]
        return ", ".join(parts + [f"{name} {self.in_words(name, offset[name])}" for name in others])

    def also_forget(self, partition: Map, others: Iterable[Map]) -> list[Map]:
        """V0 of the same table: it is read if there is no V1. Deleting only V0 does not change V1."""
        return [] if is_v0(partition) else [other for other in others if is_v0(other) and same_table(other, partition)]

    def compare(self, a: Map, b: Map) -> int | None:
        """By timestamp, then by id, as the connector's own query does. Positions of two modes have no order."""
        if a == b:
            return 0
        keys = []
        for offset in (a, b):
            moment, number = _moment(offset), offset.get("incrementing")
            if (number is not None and not _is_long(number)) or (
                moment is None and offset.get("timestamp") is not None
            ):
                return None
            keys.append((moment, number))
        if [part is None for part in keys[0]] != [part is None for part in keys[1]] or keys[0] == (None, None):
            return None
        left, right = (tuple(part for part in key if isinstance(part, int)) for key in keys)
        return compare_keys(left, right)

    def renamed(self, partition: Map, mapping: Mapping[str, str]) -> Map:
        """`shop=shop2` turns `shop.public.orders` into `shop2.public.orders`. `protocol` and `query` are not names."""
        table = table_of(partition)
        return partition if table is None else partition.merged({"table": _replaced(table, mapping)})

    def _ordered(self, offset: Map) -> Map:
        first = [name for name in _ORDER if name in offset]
        return Map({name: offset[name] for name in [*first, *(name for name in offset if name not in _ORDER)]})


def table_of(partition: Map) -> str | None:
    """The table whose position is stored here; None for a query."""
    table = partition.get("table")
    return table if isinstance(table, str) else None


def is_v0(partition: Map) -> bool:
    """True for the form of old connectors. It is read only if there is no V1, so it is used again when V1 is deleted."""
    return table_of(partition) is not None and "protocol" not in partition


def same_table(a: Map, b: Map) -> bool:
    """True when both can name one table: `orders`, `public.orders` and `shop.public.orders` are three forms of one name."""
    left, right = table_of(a), table_of(b)
    if left is None or right is None:
        return left is right and a == b
    short, long = sorted((left.split("."), right.split(".")), key=len)
    return long[-len(short) :] == short


def _replaced(table: str, mapping: Mapping[str, str]) -> str:
    """Whole dotted components only, the longest match first, each place once: `a=b, b=a` swaps."""
    parts, done = table.split("."), []
    while parts:
        for length in range(len(parts), 0, -1):
            name = ".".join(parts[:length])
            if name in mapping or length == 1:
                done.append(mapping.get(name, name))
                parts = parts[length:]
                break
    return ".".join(done)


def _is_long(value: Scalar) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _moment(offset: Map) -> int | None:
    """Nanoseconds since the epoch, read as the connector does: the fraction of the second comes from the nanoseconds."""
    timestamp, nanos = offset.get("timestamp"), offset.get("timestamp_nanos")
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        return None
    if nanos is None:
        return timestamp * MILLI
    return timestamp // 1000 * SECOND + nanos if isinstance(nanos, int) and 0 <= nanos < SECOND else None


def _moved(fraction: int) -> str:
    return f"timestamp_nanos becomes {fraction}, the fraction of the same second"


def _fraction(offset: Map) -> list[Problem]:
    timestamp, nanos = offset.get("timestamp"), offset.get("timestamp_nanos")
    if nanos is None:
        return []
    if timestamp is None:
        return [Problem("$.offset.timestamp_nanos", "is ignored without timestamp", False)]
    if not (isinstance(timestamp, int) and isinstance(nanos, int)) or timestamp % 1000 == nanos // MILLI:
        return []
    what = f"{nanos} is not the fraction of the second of timestamp {timestamp}; it begins with {timestamp % 1000:03}"
    return [Problem("$.offset.timestamp_nanos", what, True)]


JDBC = Jdbc(
    name="the JDBC source connector",
    classes=("io.confluent.connect.jdbc.JdbcSourceConnector", "io.aiven.connect.jdbc.JdbcSourceConnector"),
    shapes=((_V1, _TABLE), (_TABLE,), (_QUERY,)),
    fields=_FIELDS,
    start_over=(
        "Delete the position of the table in both forms, V1 (protocol and table) and V0 (table only): a V0 that is left "
        "is used again. The whole table is read again, or from timestamp.initial on if that is set."
    ),
    skip_one=(
        "Set incrementing to the id of the row to skip: reading continues with the next higher one. "
        "In timestamp mode set timestamp to that of the row; all rows with exactly this timestamp are skipped too."
    ),
)
