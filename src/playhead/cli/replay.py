"""`playhead replay`: delivers a part of what a sink delivered again."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from playhead.cli.extras import check_extra
from playhead.cli.frame import Face, context_options, folded, output_option, pass_face, say
from playhead.cli.ledgers import ledger_option
from playhead.cli.runs import run_names
from playhead.render import Column, Listing

if TYPE_CHECKING:
    from playhead.pipeline.replay.asked import Asked
    from playhead.pipeline.replay.run import PlannedReplay

_PLACE = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", right=True),
    Column("start", "START", right=True),
    Column("end", "END", right=True),
)
PLAN_COLUMNS = (
    *_PLACE,
    Column("ranges", "RANGES", right=True),
    Column("count", "ROWS", right=True),
    Column("objects", "OBJECTS", right=True, show=lambda names: str(len(names or ()))),
    Column("does", "WOULD"),
    Column("asked", "ASKED", wide=True),
    Column("generation", "GENERATION", wide=True, right=True),
    Column("why", "NOTE", remark=True),
)
OUTCOME_COLUMNS = (
    *_PLACE,
    Column("count", "ROWS", right=True),
    Column("objects", "OBJECTS", right=True, show=lambda names: str(len(names or ()))),
    Column("removed", "REMOVED", right=True, show=lambda names: str(len(names or ()))),
    Column("generation", "GENERATION", right=True),
    Column("result", "RESULT"),
    Column("detail", "DETAIL", remark=True),
)
_ASKED = (
    click.option(
        "--range",
        "ranges",
        multiple=True,
        metavar="T:P:START-END",
        help="Offsets; END is not included. T:P and T are whole, T-P[START,END) is taken too; repeatable.",
    ),
    click.option(
        "--since",
        metavar="TIME",
        help="From the first record at or after 2026-01-31T08:00, milliseconds since 1970, or 1h for an hour ago.",
    ),
    click.option("--until", metavar="TIME", help="Up to the first record at or after TIME."),
    click.option(
        "--last", type=click.IntRange(min=1), metavar="N", help="The newest N delivered records, or a few more."
    ),
    click.option("--object", "name", metavar="NAME", help="What this object holds; folders before it may be left out."),
)


def _asked_options(command: Any) -> Any:
    """The command gets them as `asked`."""

    def fold(words: dict[str, Any]) -> "Asked":
        from playhead.broker import moment_of
        from playhead.pipeline.replay.asked import Asked, parse_range

        ranges = tuple(parse_range(text) for text in words.pop("ranges"))
        since, until = (moment_of(words.pop(name)) for name in ("since", "until"))
        return Asked(ranges, since, until, words.pop("last"), words.pop("name"))

    return folded(command, _ASKED, "asked", fold)


_GIVEN = (
    click.option(
        "-f", "--file", metavar="FILE", help="The connector's file [default: the worker's config, else the ledger's]."
    ),
    click.option(
        "--to-dir",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Write exactly these offsets into another folder, with the same options; the ledger is not changed.",
    ),
    click.option(
        "--accept-changes",
        is_flag=True,
        help="Replace objects although the topic no longer holds all records that they hold.",
    ),
    click.option("--master", metavar="URL", help="Spark master [default: the context's, else local[*]]."),
    click.option(
        "--chunk-rows",
        type=click.IntRange(min=1),
        default=500_000,
        show_default=True,
        help="Offsets per partition and step.",
    ),
)


def _given_options(command: Any) -> Any:
    """The command gets them as `given`."""
    names = ("file", "to_dir", "accept_changes", "master", "chunk_rows")
    return folded(command, _GIVEN, "given", lambda words: {name: words.pop(name) for name in names})


@click.command()
@click.argument("connector", metavar="NAME", shell_complete=run_names)
@_asked_options
@_given_options
@click.option("--execute", is_flag=True, help="Execute the plan. Without it nothing is changed.")
@ledger_option
@context_options
@output_option
@pass_face
def replay(face: Face, connector: str, asked: "Asked", given: dict[str, Any], execute: bool) -> None:
    """Deliver a part of what the sink NAME delivered again. Its position does not move, and it may be running.

    The part is widened to the ranges of the ledger. Their objects are rewritten under the same names, as a new generation;
    objects that the options no longer give are removed last. A range that has expired in part, or whose records are not
    those that were delivered, is left as it is. If a part cannot be delivered again, the exit code is 1.
    """
    check_extra("spark")
    from playhead.pipeline.replay.run import execute_replay, outcome_row, planned_replay

    with planned_replay(face.context, connector, asked, _options(face, given)) as planned:
        _say(planned)
        impossible = planned.impossible
        if not execute:
            rows = planned.rows + [{**one, "does": "impossible"} for one in impossible]
            face.show(Listing(PLAN_COLUMNS, rows, name="topic", empty="nothing was delivered there"))
            say("dry run: nothing was changed; add --execute")
        else:
            rows = [outcome_row(one) for one in execute_replay(face.context, planned)]
            rows += [{**one, "result": "impossible", "detail": one["why"]} for one in impossible]
            face.show(Listing(OUTCOME_COLUMNS, rows, name="topic", empty="nothing was delivered there"))
    results = {str(row.get("result")) for row in rows}
    if code := 5 if "unknown" in results else 1 if impossible or results & {"refused", "failed"} or not rows else 0:
        raise click.exceptions.Exit(code)


def _say(planned: "PlannedReplay") -> None:
    say(f"config: {planned.found_in}; to: {planned.target}")
    if planned.run.is_alive and not planned.is_elsewhere:
        say(f"note: {planned.run.pipeline} is {planned.run.words}: it goes on, above what is replayed")
    for note in planned.notes:
        say(f"note: {note}")


def _options(face: Face, words: dict[str, Any]) -> Any:
    from playhead.pipeline.replay.run import ReplayOptions
    from playhead.pipeline.spark import SparkOptions

    settings = {
        key if key.startswith("spark.") else f"spark.{key}": setting.text
        for key, setting in face.context.table("spark").items()
    }
    of_context = settings.pop("spark.master", None)
    return ReplayOptions(
        words["file"],
        words["to_dir"],
        words["accept_changes"],
        SparkOptions(words["master"] or of_context or "local[*]", settings),
        words["chunk_rows"],
        face.context.timeout_seconds,
    )
