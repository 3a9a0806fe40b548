"""One column of a result, as `java.sql.ResultSetMetaData` reports it. Everything Connect decides about a column rests on this."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """`jdbc_type` is the number of `java.sql.Types`; `type_name`, `precision` and `scale` are the driver's own."""

    name: str
    jdbc_type: int
    type_name: str
    precision: int
    scale: int
    signed: bool
    nullable: bool
