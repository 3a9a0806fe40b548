"""`playhead offsets` as typed, on SQL tables whose content the database's own client shows."""

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from playhead.cli.frame import Face
from playhead.cli.main import root
from playhead.errors import PlayheadError


def offsets(*words, code=0):
    """Runs `playhead offsets`, checks its exit code, and returns all that it says."""
    done = CliRunner().invoke(root, ["offsets", *words], obj=Face(), standalone_mode=False)
    if isinstance(done.exception, PlayheadError):
        assert done.exception.exit_code == code, done.exception.what
        return f"{done.exception.what}; {done.exception.hint}"
    assert done.exception is None
    assert (done.return_value or 0) == code, done.output
    return done.output


@dataclass
class SqlTable:
    """A SQL store, and what it holds by sqlite3."""

    path: Path

    @property
    def uri(self) -> str:
        return f"sql+sqlite:///{self.path}"

    def rows(self) -> dict[str, int]:
        return dict(self._do("select owner, next_offset from playhead_offsets"))

    def is_set_by_another_process(self, offset: int) -> None:
        self._do("update playhead_offsets set next_offset = ?", offset)

    def _do(self, statement, *values):
        database = sqlite3.connect(self.path)
        try:
            with database:
                return database.execute(statement, values).fetchall()
        finally:
            database.close()

    def puts(self, offset, owner="billing"):
        position = {"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": offset}}
        file = self.path.with_suffix(".json")
        file.write_text(json.dumps({owner: [position]}))
        return offsets("import", str(file), "--store", self.uri, "--execute")
