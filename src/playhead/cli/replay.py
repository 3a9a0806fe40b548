"""`playhead replay`: delivers a part of what a sink delivered again."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from playhead.cli.frame import Face, context_options, folded, output_option, pass_face, say
from playhead.cli.ledgers import ledger_option
from playhead.cli.runs import run_names
from playhead.config.extras import check_extra
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
_OF_SOURCE = (Column("table", "TABLE"), Column("range", "RANGE"), Column("topic", "TOPIC"))
SOURCE_PLAN_COLUMNS = (
    *_OF_SOURCE,
    Column("rows", "ROWS", right=True),
    Column("does", "WOULD"),
    Column("position", "POSITION", wide=True),
    Column("why", "NOTE", remark=True),
)
SOURCE_OUTCOME_COLUMNS = (
    *_OF_SOURCE,
    Column("rows", "ROWS", right=True),
    Column("offsets", "OFFSETS", wide=True),
    Column("result", "RESULT"),
    Column("detail", "DETAIL", remark=True),
)
_ASKED = (
    click.option(
        "--range",
        "ranges",
        multiple=True,
        metavar="T:P:START-END",
        help="Offsets; END is not included. T:P and T are whole, T-P[START,END) is taken too; repeatable. Of a source:"
        " incrementing:1000..2000 (both included) or timestamp:TIME..TIME (without the last), with TABLE: before it.",
    ),
    click.option(
        "--since",
        metavar="TIME",
        help="From the first record at or after 2026-01-31T08:00, milliseconds since 1970, or 1h for an hour ago.",
    ),
    click.option(
        "--until",
        metavar="TIME",
        help="Up to the first record at or after TIME; 04:00 without a date is on the day of --since.",
    ),
    click.option(
        "--last", type=click.IntRange(min=1), metavar="N", help="The newest N delivered records, or a few more."
    ),
    click.option("--object", "name", metavar="NAME", help="What this object holds; folders before it may be left out."),
)


def _asked_options(command: Any) -> Any:
    """The command gets them as `asked`."""

    def fold(words: dict[str, Any]) -> "Asked":
        from playhead.broker import moment_of
        from playhead.model.times import is_ago
        from playhead.pipeline.replay.asked import Asked, parse_range, parse_window
        from playhead.pipeline.replay.keys import looks_like_keys, parse_key_range

        texts = words.pop("ranges")
        ranges = tuple(parse_range(text) for text in texts if not looks_like_keys(text))
        keys = tuple(parse_key_range(text, moment_of) for text in texts if looks_like_keys(text))
        window = words.pop("since"), words.pop("until")
        moves = any(is_ago(text) for text in window if text is not None)
        return Asked(ranges, *parse_window(*window, moment_of), words.pop("last"), words.pop("name"), keys, moves)

    return folded(command, _ASKED, "asked", fold)


_GIVEN = (
    click.option(
        "-f",
        "--file",
        metavar="FILE",
        help="The connector's file [default: the config of its run on Spark, else the worker's].",
    ),
    click.option(
        "--to-dir",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Write exactly these offsets into another folder, with the same options; the ledger is not changed.",
    ),
    click.option(
        "--to-topic",
        metavar="TOPIC",
        help="Into another topic, which is created if it is missing: the records of a sink as they are, the rows of a source as"
        " records. What an earlier replay has written there is not written again.",
    ),
    click.option(
        "--to-table",
        metavar="TABLE",
        help="Of a JDBC sink: exactly these offsets into another table, with the same options; it is created if it is missing.",
    ),
    click.option("--again", is_flag=True, help="Of a source: once more, although these keys were replayed already."),
    click.option(
        "--accept-changes",
        is_flag=True,
        help="Replace what was delivered although the topic no longer holds all of its records, or although rows of a table may"
        " be of others or be there twice. The plan names what needs it.",
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
    names = ("file", "to_dir", "to_topic", "to_table", "again", "accept_changes", "master", "chunk_rows")
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
    """Deliver a part of what the sink NAME delivered again, or read keys of the source NAME again. Its position does not
    move, and it may be running.

    The part is widened to the ranges of the ledger. Their objects are rewritten under the same names, as a new generation;
    objects that the options no longer give are removed last. In a table every key of the part gets its last record up to the
    committed end, and rows that carry their coordinates are deleted and inserted. A range that has expired in part, or
    whose records are not those that were delivered, is left as it is. If a part cannot be delivered again, or records did not
    fit and were left out, the exit code is 1.
    """
    check_extra("spark")
    places = [name for name in ("to_dir", "to_topic", "to_table") if given[name] is not None]
    if len(places) > 1:
        raise click.UsageError(
            f"--{places[0].replace('_', '-')} and --{places[1].replace('_', '-')} exclude each other"
        )
    if asked.keys:
        _replay_source(face, connector, asked, given, execute=execute)
        return
    if given["again"]:
        raise click.UsageError("--again is for keys of a source; what a sink delivered is delivered again every time")
    from playhead.pipeline.replay.run import (
        check_fixed,
        execute_replay,
        fixed_ranges,
        outcome_row,
        planned_replay,
    )

    with planned_replay(face.context, connector, asked, _options(face, given)) as planned:
        if execute:
            check_fixed(asked, planned)
        _say(planned)
        impossible = planned.impossible
        if not execute:
            rows = planned.rows + [{**one, "does": "impossible"} for one in impossible]
            face.show(Listing(PLAN_COLUMNS, rows, name="topic", empty="nothing was delivered there"))
            _say_dry(fixed_ranges(asked, planned))
        else:
            rows = [outcome_row(one) for one in execute_replay(face.context, planned)]
            rows += [{**one, "result": "impossible", "detail": one["why"]} for one in impossible]
            face.show(Listing(OUTCOME_COLUMNS, rows, name="topic", empty="nothing was delivered there"))
    _exit(rows, is_part=bool(impossible))


def _replay_source(face: Face, connector: str, asked: "Asked", given: dict[str, Any], *, execute: bool) -> None:
    if given["to_dir"] is not None or given["to_table"] is not None:
        raise click.UsageError("the rows of a source are written to a topic: its own, or that of --to-topic")
    from playhead.pipeline.replay.keys import check_fixed, fixed_keys

    if execute:
        check_fixed(asked.keys)
    from playhead.pipeline.replay.source_run import execute_source, planned_source, source_rows

    with planned_source(face.context, connector, asked.keys, _options(face, given)) as (planned, found_in):
        say(f"config: {found_in}")
        for part in planned.parts:
            for note in part.notes:
                say(f"note: {note}")
        rows, impossible = source_rows(planned)
        if not execute:
            face.show(Listing(SOURCE_PLAN_COLUMNS, rows + impossible, name="table", empty="there is no such row"))
            _say_dry(fixed_keys(asked.keys))
        else:
            rows = list(execute_source(face.context, planned))
            rows += [{**one, "result": "impossible", "detail": one["why"]} for one in impossible]
            face.show(Listing(SOURCE_OUTCOME_COLUMNS, rows, name="table", empty="there is no such row"))
    _exit(rows, is_part=bool(impossible))


def _say_dry(fixed: str) -> None:
    """`fixed`: the options that --execute would ask for."""
    say(f"dry run: nothing was changed; {f'for --execute give {fixed}' if fixed else 'add --execute'}")


def _exit(rows: list[dict[str, object]], *, is_part: bool) -> None:
    from playhead.pipeline.replay.run import exit_code_of

    if code := exit_code_of(rows, is_part=is_part):
        raise click.exceptions.Exit(code)


def _say(planned: "PlannedReplay") -> None:
    say(f"config: {planned.found_in}; to: {planned.target}")
    if planned.run.is_alive and not planned.is_elsewhere:
        say(f"note: {planned.run.pipeline} is {planned.run.words}: it goes on, above what is replayed")
    for note in planned.notes:
        say(f"note: {note}")


def _options(face: Face, words: dict[str, Any]) -> Any:
    from playhead.pipeline.replay.run import ReplayOptions

    return replace(
        ReplayOptions.of_context(face.context, words["file"], words["master"]),
        to_dir=words["to_dir"],
        accepts=words["accept_changes"],
        offsets_per_claim=words["chunk_rows"],
        to_topic=words["to_topic"],
        to_table=words["to_table"],
        again=words["again"],
    )
