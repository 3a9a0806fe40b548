"""What the tests of dialects have in common."""

from collections.abc import Mapping

from playhead.connect.dialects import Dialect, find_dialect
from playhead.model import Map

JDBC = "io.confluent.connect.jdbc.JdbcSourceConnector"


def dialect(name: str) -> Dialect:
    found = find_dialect(name)
    assert found is not None, name
    return found


def fatal(dialect: Dialect, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> list[str]:
    problems = dialect.check(Map(partition), None if offset is None else Map(offset))
    return [problem.path for problem in problems if problem.fatal]


def warned(dialect: Dialect, partition: Mapping[str, object], offset: Mapping[str, object]) -> list[str]:
    return [str(problem) for problem in dialect.check(Map(partition), Map(offset)) if not problem.fatal]
