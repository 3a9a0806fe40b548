"""The third act: the topics of the second one as Parquet files and as tables of another database, killed and run again."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from playhead.demo.stage import Stage
from playhead.demo.tables import TABLES
from playhead.errors import PlayheadError

NAMES = ("demo_lake", "demo_copies")
DATABASE, OFFSETS_PER_STEP = "demo_copies", 40_000
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
      flush.size: 20000
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
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.lab = stage.lab
        self.say = stage.say
        self.file = stage.folder / "lake.yaml"
        self.folder = stage.folder / "lake"

    def run(self) -> None:
        self.clear()
        self.say("5. Those topics become Parquet files and tables of another database:")
        for line in self.file.read_text().splitlines():
            self.say(f"     {line}")
        words = ("run", str(self.file), "--chunk-rows", str(OFFSETS_PER_STEP))
        self.stage.kill_in_the_middle(words, lambda: len(self.files()) > len(TABLES))
        self.say("   The same command again: what was begun is finished as it was begun.")
        self.stage.playhead("run", str(self.file))
        for table in TABLES:
            self.expect(f"demo_{table}")
        self.say("   nothing lost, nothing doubled.\n")

    def clear(self) -> None:
        """What an earlier demo delivered is of topics that are gone."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if "demo_lake" in self.stage.told("offsets", "list", "-o", "name"):
            self.stage.told("offsets", "delete", "demo_lake", "--all", "--execute")
        known = self.stage.told("groups", "list", "-o", "name")
        for group in {f"connect-{name}" for name in NAMES} & set(known):
            self.stage.told("groups", "delete", group, "--execute")
        self.lab.psql(f"DROP DATABASE IF EXISTS {DATABASE}")
        self.lab.psql(f"CREATE DATABASE {DATABASE}")
        place = self.lab.postgres_url.partition("@")[2].partition("/")[0]
        topics = ",".join(f"demo_{table}" for table in TABLES)
        url = f"jdbc:postgresql://{place}/{DATABASE}"
        self.file.write_text(FILE.format(topics=topics, lake=self.folder.as_uri(), url=url))

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
