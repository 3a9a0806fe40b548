"""Part 2: two tables of PostgreSQL are read into topics on Spark, from one file. The run is killed and repeated."""

from collections import Counter

import msgspec

from playhead.demo.stage import Stage
from playhead.errors import PlayheadError

TABLES = ("login", "purchase")
ROWS, MORE, CHUNKS = 300_000, 1_000, 10
FILE = """\
common:
  connector.class: io.confluent.connect.jdbc.JdbcSourceConnector
  connection.url: {url}
  connection.user: ${{env:DEMO_USER}}
  value.converter: org.apache.kafka.connect.json.JsonConverter
  value.converter.schemas.enable: true
  topic.creation.default.partitions: -1
  topic.creation.default.replication.factor: -1
connectors:
  demo_{{table}}:
    for: {{table: [login, purchase]}}
    engine: spark
    config:
      mode: incrementing
      incrementing.column.name: id
      table.whitelist: demo_{{table}}
      topic.prefix: ""
"""


class TablesAct:
    def __init__(self, stage: Stage, rows: int = ROWS) -> None:
        self.stage = stage
        self.rows = rows
        self.lab = stage.lab
        self.say = stage.say
        self.file = stage.folder / "tables.yaml"

    def run(self) -> None:
        self.clear()
        self.fill()
        self.say(
            f"4. {len(TABLES)} tables of PostgreSQL with {self.rows} rows each, and one file for the Spark engine:"
        )
        for line in self.file.read_text().splitlines():
            self.say(f"     {line}")
        chunk_rows = self.rows // CHUNKS
        words = ("run", str(self.file), "--chunk-rows", str(chunk_rows))
        self.stage.kill_in_the_middle(words, lambda: self.sent() > chunk_rows)
        for table in TABLES:
            self.lab.psql(f"INSERT INTO demo_{table} (who) SELECT 'new' FROM generate_series(1, {MORE})")  # noqa: S608
        self.say(
            f"   {MORE} new rows in each table, and the same command again: it continues from the committed position."
        )
        self.stage.playhead("run", str(self.file))
        self.expect(self.rows + MORE)
        self.say("   Nothing lost, nothing duplicated.\n")

    def clear(self) -> None:
        """Removes what an earlier demo left, so that rows can be counted."""
        known = self.stage.output_of("offsets", "list", "-o", "name")
        for name in {f"demo_{table}" for table in TABLES} & set(known):
            self.stage.output_of("offsets", "delete", name, "--execute")
        self.stage.empty_topics([f"demo_{table}" for table in TABLES], 2)

    def fill(self) -> None:
        place = self.lab.postgres_url.removeprefix("postgresql://").partition("@")[2]
        self.file.write_text(FILE.format(url=f"jdbc:postgresql://{place}"))
        for table in TABLES:
            self.lab.psql(f"DROP TABLE IF EXISTS demo_{table}")
            self.lab.psql(f"CREATE TABLE demo_{table} (id bigserial PRIMARY KEY, who text, at timestamp DEFAULT now())")
            self.lab.psql(
                f"INSERT INTO demo_{table} (who) SELECT md5(i::text) FROM generate_series(1, {self.rows}) i"  # noqa: S608
            )

    def sent(self) -> int:
        return sum(self.stage.count_committed(f"demo_{table}", (0, 1)) for table in TABLES)

    def expect(self, wanted: int) -> None:
        for table in TABLES:
            lines = self.stage.consumed(f"demo_{table}", wanted)
            ids = Counter(msgspec.json.decode(line)["payload"]["id"] for line in lines)
            rows = self.lab.psql(f"SELECT count(*) FROM demo_{table}")  # noqa: S608
            once = sum(count == 1 for count in ids.values())
            self.say(f"   demo_{table}: psql counts {rows} rows; kafka-console-consumer shows {once} of them once")
            if ids != Counter(range(1, wanted + 1)) or rows != str(wanted):
                raise PlayheadError(f"the demo expected each of {wanted} rows of demo_{table} once")
