"""SQL databases: the only place that imports SQLAlchemy and psycopg. SQLite and PostgreSQL, Core only.

Imported only when a database is used. Without the extra, the error message contains the install command.
"""

from playhead.errors import MissingExtra

try:
    import sqlalchemy as sqlalchemy
except ImportError:
    raise MissingExtra("sql", "SQLAlchemy") from None
