"""SQL databases: the only place that imports SQLAlchemy and psycopg. SQLite and PostgreSQL, Core only.

Nothing here is imported before a database is really asked for; without the extra the answer is the install command.
"""

from playhead.errors import MissingExtra

try:
    import sqlalchemy as sqlalchemy
except ImportError:
    raise MissingExtra("sql", "SQLAlchemy") from None
