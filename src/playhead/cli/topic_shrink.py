"""`playhead topics shrink`: fewer partitions for a topic, with everyone who reads and writes it."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from playhead.cli.frame import Face, context_options, output_option, pass_face, say
from playhead.cli.ledgers import ledger_option
from playhead.cli.topic_copy import copy_options, map_option, run_options
from playhead.cli.topics import execute_option, topic_names
from playhead.config.extras import check_extra
from playhead.errors import Refused
from playhead.render import Column, Listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playhead.shrink.change import Change, Standing
    from playhead.shrink.users import Movers

STANDING_COLUMNS = (
    Column("topic", "TOPIC"),
    Column("target", "NEW TOPIC"),
    Column("partitions", "PARTITIONS", right=True),
    Column("stage", "STAGE"),
    Column("behind", "BEHIND", right=True),
    Column("late", "LATE", right=True),
    Column("next", "NEXT", remark=True),
)
PLAN_COLUMNS = (
    Column("what", "WHAT"),
    Column("name", "NAME"),
    Column("before", "BEFORE"),
    Column("after", "AFTER"),
    Column("note", "NOTE", remark=True),
)


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.option("--partitions", type=click.IntRange(min=1), help="How many the new topic has.")
@click.option("--to", "target", metavar="NAME", help="Name of the new topic [default: TOPIC-pPARTITIONS].")
@click.option("--finish", is_flag=True, help="After the switch: delete the old topic.")
@click.option("--abort", is_flag=True, help="Go back: everyone reads and writes TOPIC, the new topic is deleted.")
@click.option(
    "--leave-late", is_flag=True, help="With --finish: also delete what was written to TOPIC after the switch."
)
@click.option(
    "--new-names",
    is_flag=True,
    help="Also move sink connectors whose output may depend on the name of the topic, or on its offsets: both are new."
    " Also take a new name that a pattern of a connector may match, if it cannot be read here.",
)
@map_option
@execute_option
@copy_options
@ledger_option
@context_options
@output_option
@pass_face
def shrink(face: Face, /, topic: str, given: dict[str, Any], execute: bool, **words: Any) -> None:
    """Give TOPIC fewer partitions: a new topic, copied and compared, to which everyone is moved.

    With --execute: creates the new topic, copies, compares both, stops the connectors that read or write TOPIC, moves groups
    and sinks to the same place in the new topic, changes the connectors' configs and starts them again. Refused at the switch
    while other groups have members; then the same command continues. The same command continues after a kill, too. Without
    options it shows where it stands. TOPIC stays until --finish.
    """
    check_extra("spark")
    from playhead.shrink.change import Change

    if words["finish"] and words["abort"]:
        raise click.UsageError("--finish and --abort exclude each other")
    if words["leave_late"] and not words["finish"]:
        raise click.UsageError("--leave-late belongs to --finish")
    if (words["finish"] or words["abort"]) and words["partitions"]:
        raise click.UsageError("--partitions belongs to the beginning, not to --finish or --abort")
    is_asked = bool(words["partitions"] or words["finish"] or words["abort"])
    if execute and not is_asked:
        raise click.UsageError("--execute needs --partitions, --finish or --abort")
    seconds, names = face.context.timeout_seconds, words["new_names"]
    work = Change(face.context, topic, words["folder"], seconds, accepts_names=names)
    if words["partitions"]:
        work.start(words["partitions"], words["target"])
    elif work.record is None and (words["finish"] or words["abort"]):
        raise Refused(
            f"{work.path} is not there: no change of {topic} was begun here",
            "a change is finished or undone where it was started: on the same host, with the same --map and --ledger",
        )
    elif work.record is None:
        raise click.UsageError("--partitions is needed: how many shall the new topic have?")
    if not (execute and is_asked):
        _show(face, work, is_asked=is_asked)
        return
    with work.held():
        _run(face, work, given, words)
    _stand(face, work.standing())


def _run(face: Face, work: "Change", given: dict[str, Any], words: dict[str, Any]) -> None:
    from playhead.cli.run_screen import RunScreen
    from playhead.shrink.ending import abort, finish
    from playhead.shrink.stages import execute, open_spark

    if words["abort"]:
        abort(work, _say_note)
        raise click.exceptions.Exit(0)
    screen = RunScreen(is_once=True, is_quiet=given["quiet"])
    screen.start()
    try:
        options = run_options(face, given, is_continuous=False)
        if words["finish"]:
            opened = partial(open_spark, work, options, screen.update)
            finish(work, opened, _say_note, leaves_late=words["leave_late"])
        else:
            with open_spark(work, options, screen.update) as spark:
                execute(work, spark, _say_note)
    finally:
        screen.close()


def _say_note(text: str) -> None:
    say(f"note: {text}")


def _show(face: Face, work: "Change", *, is_asked: bool) -> None:
    from playhead.shrink.record import Stage

    standing = work.standing()
    record = standing.record
    if is_asked and record is not None and record.stage in (Stage.STARTED, Stage.CREATED, Stage.VERIFIED):
        movers = standing.movers
        face.show(Listing(PLAN_COLUMNS, _planned(work, standing), name="name"))
        for line in movers.notes if movers else ():
            say(f"note: {line}")
        for line in movers.objections if movers else ():
            say(f"warning: the switch would be refused now: {line}", style="yellow")
    else:
        _stand(face, standing)
    if is_asked:
        say("dry run: nothing was changed; add --execute")


def _planned(work: "Change", standing: "Standing") -> list[dict[str, Any]]:
    from playhead.shrink.moves import expected_repeats
    from playhead.shrink.record import Stage

    record = standing.record
    assert record is not None  # noqa: S101  (the caller has one)
    made = f"with the settings of {record.topic}; a consumer whose pattern matches its name reads it while it is filled"
    rows: list[dict[str, Any]] = [
        _row("topic", record.target, None, f"{record.partitions} partition(s)", made),
        _row("records", record.target, None, f"up to {standing.left} of {record.topic}", "copied, then compared"),
    ]
    movers = standing.movers
    if movers is None:
        return rows
    repeats = expected_repeats(work, movers) if record.stage is Stage.VERIFIED else {}
    return rows + _moved(movers, record.topic, record.target, repeats)


def _moved(movers: "Movers", topic: str, target: str, repeats: "Mapping[str, int | None]") -> list[dict[str, Any]]:
    rows = [
        _row(
            "connector",
            one.name,
            f"{key}={one.before[key] or ''}",
            f"{key}={value or ''}",
            f"{one.type}, stopped meanwhile",
        )
        for one in movers.connectors
        for key, value in one.after.items()
    ]
    rows += [
        _row("group", name, topic, target, f"its position is translated{_again(repeats, name)}")
        for name in movers.groups
    ]
    return rows + [
        _row("sink", name, topic, target, f"its position in the ledger is translated{_again(repeats, name)}")
        for name in movers.sinks
    ]


def _again(repeats: "Mapping[str, int | None]", name: str) -> str:
    """Known once the topic is copied."""
    if name not in repeats:
        return ""
    count = repeats[name]
    return "; it has read more than is copied yet" if count is None else f"; now {count} record(s) would be read again"


def _row(what: str, name: str, before: str | None, after: str, note: str) -> dict[str, Any]:
    return {"what": what, "name": name, "before": before, "after": after, "note": note}


def _stand(face: Face, standing: "Standing") -> None:
    record = standing.record
    rows = []
    if record is not None:
        rows = [
            {
                "topic": record.topic,
                "target": record.target,
                "partitions": record.partitions,
                "stage": record.stage.value,
                "behind": standing.left,
                "late": standing.late,
                "next": _next(standing),
            }
        ]
    face.show(Listing(STANDING_COLUMNS, rows, name="topic"))
    if standing.late:
        say(f"note: last written to the old topic by {', '.join(standing.writers) or 'producers without an id'}")


def _next(standing: "Standing") -> str:
    from playhead.shrink.record import Stage

    record = standing.record
    if record is None or record.stage is Stage.FINISHED:
        return ""
    if record.stage is Stage.ABORTING:
        return f"playhead topics shrink {record.topic} --abort --execute continues"
    if record.stage is not Stage.SWITCHED:
        return f"playhead topics shrink {record.topic} --partitions {record.partitions} --execute continues; --abort goes back"
    return "--finish deletes the old topic; --abort goes back, as long as nothing else has written to the new one"
