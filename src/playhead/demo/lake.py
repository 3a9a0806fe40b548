"""Part 3: the topics of part 2 become Parquet files and tables of another database. The run is killed and repeated."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from playhead.demo.stage import Stage
from playhead.demo.tables import ROWS, TABLES
from playhead.errors import PlayheadError

NAMES = ("demo_lake", "demo_copies")
DATABASE = "demo_copies"
FILE = """\
common:
  topics: {topics}
  value.converter: org.apache.kafka.connect.json.JsonConverter
  value.converter.schemas.enable: true
connectors:
  demo_lake:
    engine: spark
    config:
      connector.class: io.confluent.connect.s3.S3SinkConnector
      store.url: {lake}
      format.class: io.confluent.connect.s3.format.parquet.ParquetFormat
      flush.size: {flush_size}
  demo_copies:
    engine: spark
    config:
      connector.class: io.confluent.connect.jdbc.JdbcSinkConnector
      connection.url: {url}
      connection.user: ${{env:DEMO_USER}}
      auto.create: true
      pk.mode: kafka
"""


class LakeAct:
    def __init__(self, stage: Stage, rows: int = ROWS) -> None:
        self.stage = stage
        self.rows = rows
        self.lab = stage.lab
        self.say = stage.say
        self.file = stage.folder / "lake.yaml"
        self.folder = stage.folder / "lake"

    def run(self) -> None:
        self.clear()
        self.say("5. Write those topics to Parquet files and to tables of another database:")
        for line in self.file.read_text().splitlines():
            self.say(f"     {line}")
        words = ("run", str(self.file), "--chunk-rows", str(2 * self._flush_size))
        self.stage.kill_in_the_middle(words, lambda: len(self.files()) > len(TABLES))
        self.say("   Run the same command again: it finishes the interrupted steps with the same offsets.")
        self.stage.playhead("run", str(self.file))
        for table in TABLES:
            self.expect(f"demo_{table}")
        self.say("   Nothing lost, nothing duplicated.\n")
        self.bring_back_a_file()

    def bring_back_a_file(self) -> None:
        lost, *others = sorted(self.files())
        before = {path: path.stat().st_mtime_ns for path in others}
        lost.unlink()
        self.say(f"   Delete one of the files by hand, {lost.name}, and deliver exactly that part again:")
        self.stage.playhead("replay", "demo_lake", "--object", lost.name, "-f", str(self.file), "--execute")
        self.expect(f"demo_{TABLES[0]}")
        if before != {path: path.stat().st_mtime_ns for path in self.files() if path != lost}:
            raise PlayheadError("the demo expected that no other file was touched")
        self.say("   The file is back; no other file was touched.\n")

    def clear(self) -> None:
        """Removes what an earlier demo delivered: its topics no longer exist."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if "demo_lake" in self.stage.output_of("offsets", "list", "-o", "name"):
            self.stage.output_of("offsets", "delete", "demo_lake", "--all", "--execute")
        known = self.stage.output_of("groups", "list", "-o", "name")
        for group in {f"connect-{name}" for name in NAMES} & set(known):
            self.stage.output_of("groups", "delete", group, "--execute")
        self.lab.psql(f"DROP DATABASE IF EXISTS {DATABASE}")
        self.lab.psql(f"CREATE DATABASE {DATABASE}")
        place = self.lab.postgres_url.partition("@")[2].partition("/")[0]
        topics = ",".join(f"demo_{table}" for table in TABLES)
        url = f"jdbc:postgresql://{place}/{DATABASE}"
        lake, size = self.folder.as_uri(), self._flush_size
        self.file.write_text(FILE.format(topics=topics, lake=lake, url=url, flush_size=size))

    @property
    def _flush_size(self) -> int:
        """Many files per topic, so that a kill finds some of them written."""
        return self.rows // 15

    def files(self) -> list[Path]:
        return list((self.folder / "topics").rglob("*.parquet"))

    def expect(self, topic: str) -> None:
        """The rows of the source, once each, in both places; read by pyarrow and by psql."""
        wanted = set(map(int, self.lab.psql(f"SELECT id FROM {topic}").split()))  # noqa: S608
        rows = _ids_of(self.folder / "topics" / topic)
        copies = list(map(int, self.lab.psql(f"SELECT id FROM {topic}", DATABASE).split()))  # noqa: S608
        files = sum(path.is_relative_to(self.folder / "topics" / topic) for path in self.files())
        self.say(f"   {topic}: pyarrow reads {len(rows)} rows in {files} files; psql counts {len(copies)} in the copy")
        for found in (rows, copies):
            if len(found) != len(wanted) or set(found) != wanted:
                raise PlayheadError(f"the demo expected each of {len(wanted)} rows of {topic} once")


def _ids_of(folder: Path) -> Sequence[int]:
    import pyarrow.dataset as ds

    found: list[int] = ds.dataset(folder, format="parquet").to_table(columns=["id"])["id"].to_pylist()
    return found
