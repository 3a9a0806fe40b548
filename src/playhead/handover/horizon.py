"""Whether open transactions of PostgreSQL hold rows of a JDBC source back.

A run on Spark waits for them; Connect reads past them and never comes back. A transaction that holds a writer's lock on a table
may have an id that is below one which is visible already.
"""

import time

from playhead.errors import Invalid, Refused
from playhead.model import Deadline
from playhead.pipeline.deliver.jdbc.options import find_target
from playhead.pipeline.spec import Ready
from playhead.sql.address import parse_address
from playhead.sql.database import Database

POLL_SECONDS = 0.3
MOST_NAMED = 3
_LISTS = ("table.whitelist", "table.include.list")
_WRITERS = """
SELECT DISTINCT c.relname, l.pid, a.usename, a.application_name, a.xact_start::timestamptz(0)
FROM pg_locks l
JOIN pg_class c ON c.oid = l.relation AND c.relkind IN ('r', 'p')
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
ORDER BY 1, 2
"""


def find_held_back(ready: Ready, deadline: Deadline) -> str:
    """The open transactions in words; empty if there are none, or if the database is no PostgreSQL that can be asked."""
    url = ready.config.get("connection.url", "").strip().lower()
    if not url.startswith("jdbc:postgresql:"):
        return ""
    try:
        address = parse_address(find_target(ready.config).url)
    except Invalid:
        return ""
    tables = _tables(ready)
    database = Database(address, max(1.0, deadline.share().remaining()))
    try:
        with database.reading("listing open transactions") as connection:
            rows = connection.exec_driver_sql(_WRITERS).all()
    finally:
        database.close()
    found = [
        f"{row[0]} by pid {row[1]}" + (f" of {row[2]}" if row[2] else "") + (f" since {row[4]}" if row[4] else "")
        for row in rows
        if not tables or row[0].lower() in tables
    ]
    return ", ".join(found[:MOST_NAMED]) + (f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else "")


def await_writers(ready: Ready, deadline: Deadline) -> None:
    """Refused if they do not end in time."""
    while held := find_held_back(ready, deadline):
        if deadline.remaining() < POLL_SECONDS:
            raise Refused(
                f"open transactions hold rows of {ready.name} back, and Connect would skip them: {held}",
                "wait for them with a longer --wait, or end them",
            )
        time.sleep(POLL_SECONDS)


def _tables(ready: Ready) -> set[str]:
    """Their bare names; empty if they are not listed: then every table counts."""
    text = next((ready.config[key] for key in _LISTS if ready.config.get(key)), "")
    names = {name.strip().rpartition(".")[2].strip('"').lower() for name in text.split(",") if name.strip()}
    return set() if any(set(name) & set("*?[(|") for name in names) else names
