"""The second act: two tables of PostgreSQL into topics on Spark, from one file, killed in the middle and run again."""

from collections import Counter

import msgspec

from playhead.demo.stage import Stage
from playhead.errors import PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import topic_ends

TABLES = ("login", "purchase")
ROWS, MORE, CHUNK_ROWS = 300_000, 1_000, 30_000
FILE = """\
common:
  connector.class: io.confluent.connect.jdbc.JdbcSourceConnector
  connection.url: {url}
  connection.user: ${{env:DEMO_USER}}
  value.converter: org.apache.kafka.connect.json.JsonConverter
  value.converter.schemas.enable: true
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
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.lab = stage.lab
        self.say = stage.say
        self.file = stage.folder / "tables.yaml"
        self.settings = ClientSettings({"bootstrap.servers": stage.lab.bootstrap_servers})

    def run(self) -> None:
        self.clear()
        self.fill()
        self.say(f"4. {len(TABLES)} tables of PostgreSQL with {ROWS} rows each, and one file for the Spark engine:")
        for line in self.file.read_text().splitlines():
            self.say(f"     {line}")
        words = ("run", str(self.file), "--chunk-rows", str(CHUNK_ROWS))
        self.stage.kill_in_the_middle(words, lambda: self.sent() > CHUNK_ROWS)
        for table in TABLES:
            self.lab.psql(f"INSERT INTO demo_{table} (who) SELECT 'new' FROM generate_series(1, {MORE})")  # noqa: S608
        self.say(f"   {MORE} new rows in each table, and the same command again: it goes on from what is committed.")
        self.stage.playhead("run", str(self.file))
        self.expect(ROWS + MORE)
        self.say("   nothing lost, nothing doubled.\n")

    def clear(self) -> None:
        """What an earlier demo left would make this one's rows impossible to count."""
        known = self.stage.told("offsets", "list", "-o", "name")
        for name in {f"demo_{table}" for table in TABLES} & set(known):
            self.stage.told("offsets", "delete", name, "--execute")
        self.stage.empty_topics([f"demo_{table}" for table in TABLES], 2)

    def fill(self) -> None:
        place = self.lab.postgres_url.removeprefix("postgresql://").partition("@")[2]
        self.file.write_text(FILE.format(url=f"jdbc:postgresql://{place}"))
        for table in TABLES:
            self.lab.psql(f"DROP TABLE IF EXISTS demo_{table}")
            self.lab.psql(f"CREATE TABLE demo_{table} (id bigserial PRIMARY KEY, who text, at timestamp DEFAULT now())")
            self.lab.psql(
                f"INSERT INTO demo_{table} (who) SELECT md5(i::text) FROM generate_series(1, {ROWS}) i"  # noqa: S608
            )

    def sent(self) -> int:
        with Admin(self.settings, self.stage.deadline) as admin:
            ends = [topic_ends(admin, f"demo_{table}", (0, 1), self.stage.deadline) for table in TABLES]
        return sum(end.stable for found in ends for end in found.values())

    def expect(self, wanted: int) -> None:
        for table in TABLES:
            lines = self.stage.consumed(f"demo_{table}")
            ids = Counter(msgspec.json.decode(line)["payload"]["id"] for line in lines)
            rows = self.lab.psql(f"SELECT count(*) FROM demo_{table}")  # noqa: S608
            once = sum(count == 1 for count in ids.values())
            self.say(f"   demo_{table}: psql counts {rows} rows; kafka-console-consumer shows {once} of them once")
            if ids != Counter(range(1, wanted + 1)) or rows != str(wanted):
                raise PlayheadError(f"the demo expected each of {wanted} rows of demo_{table} once")
