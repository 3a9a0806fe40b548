"""`playhead groups translate`: a group moved to the copy of a topic."""

from dataclasses import asdict
from typing import Any

import click

from playhead.cli.frame import Face, context_options, output_option, pass_face, say, to_context_option
from playhead.cli.groups import group_names, opened_groups, warn_of_members
from playhead.cli.ledgers import ledger_option
from playhead.cli.topic_copy import map_option
from playhead.cli.topics import topic_names
from playhead.cli.writes import WriteOptions, carry_out, plan_options
from playhead.render import Column, Listing

COLUMNS = (
    Column("owner", "GROUP"),
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", right=True),
    Column("before", "BEFORE", right=True),
    Column("after", "AFTER", right=True),
    Column("repeats", "REPEATS", right=True),
    Column("log_end", "LOG-END", right=True),
)


@click.command()
@click.argument("group", shell_complete=group_names)
@click.option("--from", "source", required=True, metavar="SRC", shell_complete=topic_names, help="The copied topic.")
@click.option("--to", "target", required=True, metavar="DST", shell_complete=topic_names, help="Its copy.")
@click.option(
    "--assume-own",
    "assumes_own",
    is_flag=True,
    help="Only the copy has written to DST: do not look for records of others, which the group would skip.",
)
@map_option
@to_context_option
@plan_options
@ledger_option
@context_options
@output_option
@pass_face
def translate(face: Face, /, group: str, to_context: str | None, options: WriteOptions, **words: Any) -> None:
    """Give GROUP, in DST, the position that it has in SRC. DST is a copy by `playhead topics copy`.

    In each partition of DST the group continues at the first record that it has not read. REPEATS is how many records after
    that it has read already; none if it has read all of SRC. Its members must be stopped. Its commits in SRC stay.
    """
    from playhead.config.extras import check_extra

    check_extra("spark")
    from playhead.pipeline.copy.job import Request
    from playhead.pipeline.copy.translate import plan_translation

    there = face.elsewhere(to_context) if to_context else face
    here_store = opened_groups(face)
    store = opened_groups(there) if to_context else here_store
    request = Request(words["source"], words["target"], map=words["folder"])
    with here_store.session(), store.session():
        own = words["assumes_own"]
        found = plan_translation(here_store, store, group, request, face.context, face.deadline, assumes_own=own)
        warn_of_members(there, store, [group], options)
        say(f"{found.repeats} record(s) would be read again" if found.repeats else "no record would be read again")
        rows = Listing(COLUMNS, [asdict(row) for row in found.rows], name="owner", names=("topic",))
        carry_out(there, store, found.plan, options, show=lambda: face.show(rows))
