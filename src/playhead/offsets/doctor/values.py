"""Checks of positions that their connector cannot use, or never reads.

The JDBC connectors store a table under its name, and the name has several forms: V0 without `protocol`, and V1 with or without
the database before it. Only one form is read; V0 is the exception, and is read again once V1 is deleted.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from playhead.connect.dialects import JDBC, Dialect, Problem, is_v0, same_table, table_of
from playhead.model import Map
from playhead.model.position import Scalar
from playhead.offsets.doctor.case import Case, KeptPosition
from playhead.offsets.doctor.commands import partition_words
from playhead.offsets.doctor.findings import Finding, Said

_WHOLE = re.compile(r"[+-]?\d+(\.0*)?")
CONFLUENT_JDBC = "io.confluent.connect.jdbc.JdbcSourceConnector"
_WITHOUT_DATABASE = (10, 9, 5)  # from this version on Confluent's connector drops the database from the name


def check_values(case: Case, versions: Mapping[str, str] | None) -> Iterator[Said]:
    """`versions`: connector class -> version installed on the workers, None if unknown."""
    tables: dict[str, list[KeptPosition]] = defaultdict(list)
    for one in case.kept:
        dialect = case.dialect_of(one)
        if not one.legacy:
            yield from _bad_value(case, one, dialect)
        if dialect is JDBC and one.offset is not None and one.is_findable and table_of(one.partition):
            tables[one.owner].append(one)
    for owner, kept in tables.items():
        yield from _stale_v0(case, owner, kept)
        yield from _two_names(case, owner, kept, versions)


def _bad_value(case: Case, one: KeptPosition, dialect: Dialect | None) -> Iterator[Said]:
    if one.fault is not None:
        what = f"{one.partition}: {one.fault}, so workers ignore this position and the connector starts over there"
        yield Finding("bad-value", one.owner, what, _set_again(case, one, dialect))
        return
    fatal = [problem for problem in dialect.check(one.partition, one.offset) if problem.fatal] if dialect else []
    if dialect is not None and fatal:
        what = f"{one.partition}: " + "; ".join(str(problem) for problem in fatal)
        yield Finding("bad-value", one.owner, what, _correction(case, one, dialect, fatal))


def _set_again(case: Case, one: KeptPosition, dialect: Dialect | None) -> str:
    """The correct value is unknown. The dialect may know the names of the fields."""
    names = [field.name for field in dialect.fields if field.required] if dialect else []
    words = [f"{name}=VALUE" for name in names] or ["FIELD=VALUE"]
    return case.commands.ours("set", one.owner, *words, *partition_words(one.partition), stop=one.owner)


def _correction(case: Case, one: KeptPosition, dialect: Dialect, fatal: Sequence[Problem]) -> str:
    """Sets the same position in the form that the connector accepts, if that is clear; else deletes it."""
    texts = _corrected(one.offset or Map({}), fatal)
    if texts:
        fixed = dialect.parse_fields(texts, one.offset).offset
        if not any(problem.fatal for problem in dialect.check(one.partition, fixed)):
            words = [f"{name}={text}" for name, text in texts.items()]
            return case.commands.ours("set", one.owner, *words, *partition_words(one.partition), stop=one.owner)
    return case.commands.ours("delete", one.owner, *partition_words(one.partition), stop=one.owner)


def _corrected(offset: Map, fatal: Iterable[Problem]) -> dict[str, str] | None:
    texts: dict[str, str] = {}
    for problem in fatal:
        name = problem.path.removeprefix("$.offset.")
        if name == problem.path or name not in offset:
            return None
        text = _as_typed(offset[name])
        if name == "timestamp_nanos" and (moment := _as_typed(offset.get("timestamp"))):
            name, text = "timestamp", moment  # setting it also sets its nanoseconds
        if text is None:
            return None
        texts[name] = text
    return texts


def _as_typed(value: Scalar) -> str | None:
    if isinstance(value, bool) or value is None:
        return None
    text = str(value)
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else None


def _stale_v0(case: Case, owner: str, kept: Sequence[KeptPosition]) -> Iterator[Said]:
    newer = [one for one in kept if not is_v0(one.partition)]
    for old in (one for one in kept if is_v0(one.partition)):
        v1 = next((one for one in newer if same_table(old.partition, one.partition)), None)
        if v1 is not None:
            what = (
                f"{old.partition} is the old form (V0) of {v1.partition} and is not read while that exists; "
                f"once that is deleted, the connector continues from {old.offset}"
            )
            yield Finding("jdbc-v0", owner, what, case.commands.forget(owner, old.partition))


def _two_names(
    case: Case, owner: str, kept: Sequence[KeptPosition], versions: Mapping[str, str] | None
) -> Iterator[Said]:
    by_name: dict[str, list[KeptPosition]] = defaultdict(list)
    for one in kept:
        if not is_v0(one.partition):
            by_name[(table_of(one.partition) or "").rpartition(".")[2]].append(one)
    for forms in (found for found in by_name.values() if len(found) > 1):
        unique = list({one.partition: one for one in forms}.values())
        for left, right in combinations(unique, 2):
            if same_table(left.partition, right.partition):
                short, long = sorted((left, right), key=lambda one: len(table_of(one.partition) or ""))
                yield _names(case, owner, short, long, versions)


def _names(
    case: Case, owner: str, short: KeptPosition, long: KeptPosition, versions: Mapping[str, str] | None
) -> Finding:
    both = f"{table_of(short.partition)} and {table_of(long.partition)} are two names of one table"
    version = _version(case, owner, versions)
    if version is not None and _numbers(version) >= _WITHOUT_DATABASE:
        ahead = JDBC.compare(long.offset or Map({}), short.offset or Map({}))
        further = "; the other one is further ahead" if ahead == 1 else ""
        what = f"{both}; version {version} of the connector reads the first on PostgreSQL{further}"
        return Finding("jdbc-two-names", owner, what, case.commands.forget(owner, long.partition))
    what = (
        f"{both}, and the connector reads only one. Which one depends on its version and driver "
        "(pgjdbc 42.7.5 and later put the database first, Confluent's connector drops it again from 10.9.5 on). "
        "The one that it reads moves while the connector runs"
    )
    return Finding("jdbc-two-names", owner, what, case.commands.ours("history", owner))


def _version(case: Case, owner: str, versions: Mapping[str, str] | None) -> str | None:
    """Of Confluent's connector only: the other one depends on its driver, whose version is unknown."""
    connector = (case.connectors or {}).get(owner)
    named = connector.connector_class if connector else None
    return (versions or {}).get(CONFLUENT_JDBC) if named == CONFLUENT_JDBC else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("-")[0])[:3])
