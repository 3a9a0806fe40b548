"""`playhead topics copy`: a topic into another one with any number of partitions, on Spark."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from playhead.cli.frame import Face, context_options, folded, output_option, pass_face, say, to_context_option
from playhead.cli.ledgers import ledger_option
from playhead.cli.topics import execute_option, topic_names
from playhead.render import Column, Listing
from playhead.render.topics import PLAN_COLUMNS

if TYPE_CHECKING:
    from playhead.pipeline.copy.job import Job, Part, Side
    from playhead.pipeline.copy.run import CopyRunOptions
    from playhead.pipeline.spark import SparkOptions

COLUMNS = (
    Column("source", "SOURCE"),
    Column("target", "TARGET"),
    Column("state", "STATE"),
    Column("records", "RECORDS", right=True),
    Column("steps", "STEPS", right=True),
    Column("seconds", "SECONDS", right=True),
    Column("behind", "BEHIND", right=True),
    Column("detail", "DETAIL"),
    Column("notes", "NOTES", wide=True, show="; ".join),
)
_SPARK = (
    click.option("--master", metavar="URL", help="Spark master [default: the context's, else local[*]]."),
    click.option("--spark-conf", "settings", multiple=True, metavar="KEY=VALUE", help="A Spark setting; repeatable."),
    click.option(
        "--chunk-rows",
        type=click.IntRange(min=1),
        default=500_000,
        show_default=True,
        help="Offsets per source partition and transaction.",
    ),
    click.option(
        "--give-up-after",
        "give_up",
        default="2m",
        show_default=True,
        metavar="TIME",
        help="How long to retry while a broker is unavailable; --continuous retries without limit.",
    ),
    click.option("--interval", default="5s", show_default=True, metavar="TIME", help="Pause between rounds."),
    click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
)
map_option = click.option(
    "--map",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of the offset map [default: beside the ledger].",
)
_BOUND = re.compile(r"\s*(offset|time)\s*(>=|<)\s*(\S.*?)\s*")
CUT = "stopped before the end: the same command continues"
_NAMES = ("master", "settings", "chunk_rows", "give_up", "interval", "quiet")


def copy_options(command: Any) -> Any:
    """The options of the engine; the command gets them as `given`, still as text."""
    return folded(command, _SPARK, "given", lambda words: {name: words.pop(name) for name in _NAMES})


@click.command()
@click.argument("source", metavar="SRC", shell_complete=topic_names)
@click.argument("target", metavar="DST", shell_complete=topic_names)
@click.option("--partitions", type=click.IntRange(min=1), help="Partitions of a new DST [default: as many as SRC has].")
@click.option("--continuous", is_flag=True, help="Follow SRC until stopped, instead of ending when caught up.")
@click.option(
    "--where",
    multiple=True,
    metavar="BOUND",
    help="Only a part: 'offset>=N', 'offset<N', 'time>=T' or 'time<T'; repeatable.",
)
@map_option
@to_context_option
@execute_option
@copy_options
@ledger_option
@context_options
@output_option
@pass_face
def copy(face: Face, /, source: str, target: str, given: dict[str, Any], execute: bool, **words: Any) -> None:
    """Copy the records of SRC to DST, exactly once, with keys, values, headers and timestamps.

    DST may have any number of partitions: a key goes where Java's default partitioner puts it, and the records of a key stay
    in order. DST is created with the settings of SRC. The position is stored in the group playhead-copy-SRC-DST, in the
    transaction of the records: after a kill, run the same command again. Which offset became which is stored as Parquet, for
    `playhead groups translate`.
    """
    from playhead.config.extras import check_extra

    check_extra("spark")
    from playhead.pipeline.copy.job import Request, Side, plan_copy

    request = Request(source, target, words["partitions"], part_of(words["where"]), words["folder"])
    there = face.elsewhere(words["to_context"]) if words["to_context"] else face
    sides = Side.of(face.context), Side.of(there.context)
    job = plan_copy(request, *sides, face.deadline)
    if job.is_other_cluster:
        say(f"{target} is in context {there.context_name}: {sides[1].settings.bootstrap}")
    for note in job.notes:
        say(f"note: {note}")
    if not execute:
        face.show(Listing(PLAN_COLUMNS, _planned(job), name="topic", blocks=True))
        say(f"dry run: nothing was changed; up to {job.left} record(s) would be copied; add --execute")
        return
    _run(face, job, sides, given, is_continuous=words["continuous"])


def _run(face: Face, job: "Job", sides: "tuple[Side, Side]", given: dict[str, Any], *, is_continuous: bool) -> None:
    from playhead.cli.run_screen import RunScreen, one_line
    from playhead.ledger.model import RunState
    from playhead.pipeline.copy.run import left_after, run_copy

    screen = RunScreen(is_once=not is_continuous, is_quiet=given["quiet"])
    screen.start()
    try:
        end = run_copy(job, sides, run_options(face, given, is_continuous=is_continuous), screen.update)
    finally:
        screen.close()
    (done,) = end.connectors
    behind = left_after(job, sides, face.context.timeout_seconds)
    is_cut = done.state is RunState.STOPPED and not is_continuous and behind != 0
    row = {
        "source": job.request.source,
        "target": job.request.target,
        "state": done.state.value if done.state else "stopped",
        "records": done.rows,
        "steps": done.steps,
        "seconds": round(done.seconds, 2),
        "behind": behind,
        "detail": one_line(done.error.what) if done.error else done.held or (CUT if is_cut else None),
        "hint": done.error.hint if done.error else None,
        "notes": list(done.notes),
    }
    face.show(Listing(COLUMNS, [row], name="target"))
    if face.form == "table":
        for note in done.notes:
            say(f"note: {note}")
        if done.error is not None and done.error.hint:
            say(f"hint: {face.completed(done.error.hint)}")
    if end.log is not None:
        say(f"Spark log: {end.log}")
    if end.exit_code or is_cut:
        raise click.exceptions.Exit(end.exit_code or 1)


def _planned(job: "Job") -> list[dict[str, Any]]:
    from dataclasses import asdict

    request = job.request
    rows = [asdict(change) for change in job.creates.changes]
    copied = sum(one.offset for one in job.positions.values()) if job.positions else None
    note = f"{len(job.source.partitions)} -> {job.target_partitions} partition(s)"
    rows.append(
        {
            "topic": request.target,
            "what": "records",
            "before": None if copied is None else f"copied from {request.source} up to its offset sum {copied}",
            "after": f"up to {job.left} more of {request.source}",
            "note": note,
        }
    )
    return rows


def part_of(bounds: tuple[str, ...]) -> "Part":
    from datetime import timedelta

    from playhead.broker import moment_of
    from playhead.model.times import parse_moment
    from playhead.pipeline.copy.job import Part

    found: dict[str, int] = {}
    is_relative = False
    for bound in bounds:
        read = _BOUND.fullmatch(bound)
        side = "from" if read and read[2] == ">=" else "to"
        moment = moment_of(read[3]) if read and read[1] == "time" else None
        if read and moment is not None:
            name, number = f"{side}_ms", int(moment.timestamp() * 1000)
            is_relative = is_relative or isinstance(parse_moment(read[3]), timedelta)
        elif read and read[3].isdigit():
            name, number = f"{side}_offset", int(read[3])
        else:
            raise click.UsageError(f"--where {bound!r} is none of 'offset>=N', 'offset<N', 'time>=T', 'time<T'")
        if name in found:
            raise click.UsageError(f"--where {bound!r}: this bound is given twice")
        found[name] = number
    return Part(**found, is_relative=is_relative)


def run_options(face: Face, given: dict[str, Any], *, is_continuous: bool) -> "CopyRunOptions":
    from playhead.config.contexts import parse_duration
    from playhead.pipeline.copy.run import CopyRunOptions

    return CopyRunOptions(
        _spark_options(face, given),
        parse_duration(given["interval"]) if is_continuous else None,
        parse_duration(given["give_up"]),
        given["chunk_rows"],
        face.context.timeout_seconds,
    )


def _spark_options(face: Face, given: dict[str, Any]) -> "SparkOptions":
    from playhead.cli.run import spark_settings
    from playhead.pipeline.spark import SparkOptions

    master, settings = spark_settings(face, given)
    return SparkOptions(master, settings)
