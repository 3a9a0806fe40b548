"""SQL databases: the only place that imports SQLAlchemy and psycopg. SQLite and PostgreSQL, Core only.

Imported only when a database is used. Without the extra, the error message contains the install command.
"""

from importlib.util import find_spec

from playhead.errors import MissingExtra

try:
    _found = find_spec("sqlalchemy")  # not imported: tasks load values of the ledger, and no database
except (ModuleNotFoundError, ValueError):  # ValueError: it is blocked
    _found = None
if _found is None:
    raise MissingExtra("sql", "SQLAlchemy")
