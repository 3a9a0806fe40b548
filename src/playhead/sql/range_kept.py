"""A text that a sink keeps in the ledger, and changes in the very transaction that commits its ranges."""

from sqlalchemy import Connection, update

from playhead.errors import Refused
from playhead.sql.range_ledger import Also
from playhead.sql.range_tables import KEPT
from playhead.sql.times import moment


def swap_kept(key: str, before: str, after: str) -> Also:
    """Compare and set. `before` is unique by itself (it carries a random part), so it need not be said whose row it is."""

    def swap(connection: Connection) -> None:
        wanted = update(KEPT).where(KEPT.c.key == key, KEPT.c.value == before)
        changed = connection.execute(wanted.values(value=after, kept_at=moment(connection))).rowcount
        if changed != 1:
            raise Refused(
                f"what the ledger keeps as the {key} was changed by somebody else", "nothing of this step is committed"
            )

    return swap
