"""The connectors of jdbc_tables.yaml, created by a program, e.g. if the list of tables comes from another system.

playhead connectors plan -f examples/jdbc_tables.py
"""

from collections.abc import Iterator

CODE_TABLES = ("countries", "currencies", "units")
LOG_TABLES = {"login": "id", "purchase": "purchase_id", "chat": "id"}  # table -> its incrementing column

DATABASE = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
    "connection.url": "jdbc:postgresql://db:5432/shop",
    "connection.user": "${env:DB_USER}",
    "connection.password": "${file:/etc/connect/db.properties:password}",
    "tasks.max": 1,
    "numeric.mapping": "best_fit",
}


def connectors() -> Iterator[dict[str, object]]:
    yield {
        "name": "code_tables",
        "state": "running",
        "config": {
            **DATABASE,
            "mode": "bulk",
            "table.whitelist": CODE_TABLES,
            "topic.prefix": "code_",
            "poll.interval.ms": 3_600_000,
        },
    }
    for table, key in LOG_TABLES.items():
        yield {
            "name": f"log_{table}",
            "config": {
                **DATABASE,
                "mode": "incrementing",
                "incrementing.column.name": key,
                "query": f"select * from log_{table}",  # noqa: S608 - the names are ours
                "topic.prefix": f"log_{table}",
                "poll.interval.ms": 5_000,
            },
        }
