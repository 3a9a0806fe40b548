"""A table of PostgreSQL by pages of its id. It waits for a NOTIFY when there is nothing more, so new rows are read at once.

PLAYHEAD_PLUGIN_PATH=examples/connectors playhead run examples/connectors/postgres_pages.properties --continuous
"""

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from playhead.sdk import Option, RetriableException, Secret, SourceConnector, SourceRecord, SourceTask, between


class PagesTask(SourceTask):
    def start(self, config, offsets):
        self.config, self.partition = config, {"table": config["table"]}
        self.after = offsets.get(self.partition, {"id": 0})["id"]
        try:
            self.database = psycopg.connect(config["url"].reveal(), row_factory=dict_row, autocommit=True)
        except psycopg.OperationalError as error:
            raise RetriableException(str(error)) from None
        self.database.execute(sql.SQL("LISTEN {}").format(sql.Identifier(config["channel"])))

    def poll(self):
        try:
            rows = self.page()
            if not rows and self.config["wait.seconds"]:
                list(self.database.notifies(timeout=self.config["wait.seconds"], stop_after=1))
                rows = self.page()
        except psycopg.OperationalError as error:  # the connection is lost, or another transaction writes for long
            raise RetriableException(str(error)) from None
        for row in rows:
            self.after = row["id"]
            yield SourceRecord(self.config["topic"], row, row["id"], self.partition, {"id": row["id"]})

    def page(self):
        """Waits for open transactions that write: the row of one of them may have a smaller id than those that are seen."""
        table = sql.Identifier(*self.config["table"].split("."))
        page = sql.SQL("SELECT * FROM {} WHERE id > %s ORDER BY id LIMIT %s").format(table)
        with self.database.transaction():
            self.database.execute("SET LOCAL lock_timeout = '1s'")  # those who write wait behind this lock as well
            self.database.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(table))
            return self.database.execute(page, (self.after, self.config["page.size"])).fetchall()

    def stop(self):
        if hasattr(self, "database"):
            self.database.close()


class PostgresPages(SourceConnector):
    version = "1.0"
    config = [
        Option("url", Secret, doc="postgresql://user@host/database"),
        Option("table"),
        Option("topic"),
        Option("channel", str, "new_rows", doc="Named by the NOTIFY after an insert"),
        Option("page.size", int, 1000, check=between(1, 100_000)),
        Option("wait.seconds", float, 5.0, check=between(0, 30)),
    ]
    task = PagesTask
