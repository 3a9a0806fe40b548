"""Consumer groups as tables, for the command line and the Python prompt."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from playhead.model.times import in_words
from playhead.render.listing import Column, Details, Listing

if TYPE_CHECKING:
    from playhead.offsets.groups import GroupRow, ShownGroup

LIST_COLUMNS = (
    Column("group", "GROUP"),
    Column("type", "TYPE", hide=1),
    Column("state", "STATE"),
    Column("members", "MEMBERS", right=True),
    Column("topics", "TOPICS", show=lambda topics: "-" if not topics else ", ".join(topics)),
)
LAG_COLUMN = Column("lag", "LAG", right=True)
SHOW_COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", right=True),
    Column("committed", "COMMITTED", right=True),
    Column("log_start", "LOG-START", right=True, hide=1),
    Column("log_end", "LOG-END", right=True),
    Column("lag", "LAG", right=True),
    Column("lag_seconds", "LAG-TIME", right=True, show=in_words),
    Column("client_id", "CLIENT", hide=2),
    Column("host", "HOST", hide=3),
    Column("member", "MEMBER", wide=True),
    Column("leader_epoch", "EPOCH", wide=True, right=True),
    Column("metadata", "METADATA", wide=True),
    Column("note", "NOTE", remark=True),
)


def group_listing(rows: "Sequence[GroupRow]", *, with_lag: bool) -> Listing:
    columns = (*LIST_COLUMNS, LAG_COLUMN) if with_lag else LIST_COLUMNS
    found = [asdict(row) for row in rows]
    return Listing(columns, found, name="group", empty="the cluster has no consumer group")


def lag_listing(found: "ShownGroup") -> Listing:
    return Listing(SHOW_COLUMNS, [asdict(row) for row in found.rows], name="topic", empty="no commit")


def group_details(found: "ShownGroup") -> Details:
    members = None if found.members is None else len(found.members)
    fields = {"group": found.group, "type": found.type, "state": found.state, "members": members}
    return Details({**fields, "partitions": lag_listing(found)}, name="group")
