"""`playhead audit`: compares the tiers of pipelines, and reports what differs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from playhead.cli.frame import Face, context_options, folded, output_option, pass_face, say, write
from playhead.cli.ledgers import ledger_option
from playhead.cli.runs import run_names
from playhead.config.extras import check_extra
from playhead.errors import PlayheadError
from playhead.render import Column, Details, Listing
from playhead.render.progress import ProgressLine

if TYPE_CHECKING:
    from playhead.pipeline.audit.model import Audit
    from playhead.pipeline.audit.run import AuditOptions

SHOWN = 20  # items in a table; JSON has all of them
PAIR_COLUMNS = (
    Column("pipeline", "PIPELINE"),
    Column("source", "SOURCE"),
    Column("target", "TARGET"),
    Column("source_rows", "ROWS", right=True),
    Column("target_rows", "IN TARGET", right=True),
    *(Column(name, name.upper(), right=True) for name in ("missing", "duplicate", "changed", "extra")),
    *(Column(name, name.upper(), right=True) for name in ("late", "expired", "benign gap")),
    Column("verdict", "VERDICT"),
    Column("level", "LEVEL", wide=True, right=True),
    Column("suspects", "BUCKETS", wide=True, right=True),
    Column("seconds", "SECONDS", wide=True, right=True),
    Column("line", "COMPARED UP TO", wide=True),
    Column("error", "NOTE", remark=True),
)
ITEM_COLUMNS = (
    Column("verdict", "VERDICT"),
    Column("pipeline", "PIPELINE"),
    Column("key", "KEY"),
    Column("count", "ROWS", right=True),
    Column("from", "IN SOURCE"),
    Column("to", "IN TARGET"),
    Column("hop", "HOP"),
    Column("run", "RUN"),
    Column("range", "RANGE"),
    Column("detail", "DETAIL"),
)

_OPTIONS = (
    click.option("-f", "--file", metavar="FILE", help="Connector file; without NAME all of its connectors."),
    click.option("--since", metavar="TIME", help="Only what was moved since then: 2026-11-15T03:00, or 1h ago."),
    click.option("--until", metavar="TIME", help="Only what was moved before."),
    click.option(
        "--level",
        type=click.IntRange(0, 2),
        default=2,
        show_default=True,
        help="0: the ledger's arithmetic, no data. 1: digests of buckets. 2: the rows of buckets that differ.",
    ),
    click.option("--against", metavar="TARGET", help="Compare with this folder instead of the connector's own."),
    click.option(
        "--values", is_flag=True, help="Contents count also where a source reads new keys only (incrementing)."
    ),
    click.option("--key", metavar="FIELDS", help="Fields that identify a row of files, with commas [default: id]."),
    click.option("--columns", metavar="NAMES", help="Only these columns of two folders, with commas."),
    click.option(
        "--limit",
        type=click.IntRange(1),
        default=200_000,
        show_default=True,
        help="How many rows that differ are listed; the others are counted.",
    ),
    click.option("--master", metavar="URL", help="Spark master [default: the context's, else local[*]]."),
)


def _asked(command: Any) -> Any:
    """The command gets them as `options`, a function of the face."""

    def fold(words: dict[str, Any]) -> Callable[[Face], "AuditOptions"]:
        given = {name: words.pop(name) for name in ("file", "level", "against", "values", "limit", "master")}
        times = {name: words.pop(name) for name in ("since", "until")}
        lists = {name: words.pop(name) for name in ("key", "columns")}
        return lambda face: _options(face, given, times, lists)

    return folded(command, _OPTIONS, "options", fold)


def _options(face: Face, given: dict[str, Any], times: dict[str, Any], lists: dict[str, Any]) -> "AuditOptions":
    from playhead.broker import moment_of
    from playhead.pipeline.audit.run import AuditOptions
    from playhead.pipeline.spark import SparkOptions

    split = {name: [part.strip() for part in text.split(",")] if text else None for name, text in lists.items()}
    return AuditOptions(
        given["file"],
        given["level"],
        given["against"],
        given["values"],
        split["key"] or (),
        split["columns"],
        moment_of(times["since"]),
        moment_of(times["until"]),
        SparkOptions.of_context(face.context, given["master"]),
        face.context.timeout_seconds,
        given["limit"],
    )


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=run_names)
@_asked
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.html",
    help="Write one page, to be attached to a ticket.",
)
@click.option(
    "--watch", metavar="TIME", help="Compare again and again, after this time; each new finding is a line of JSON."
)
@ledger_option
@context_options
@output_option
@pass_face
def audit(face: Face, names: tuple[str, ...], options: Any, report: Path | None, watch: str | None) -> None:
    """Compare the tiers of pipelines: a source's table with its topic, a topic with what its sink wrote.

    NAME is a connector of any engine, or a folder together with --against. Everything is compared up to one line, so
    pipelines may be running: what lies above it is late and no finding. Exit code 0: the tiers hold the same. 1: there are
    findings. 3: something could not be compared.
    """
    check_extra("spark")
    from playhead.pipeline.audit.run import run_audit

    wanted = options(face)
    progress = ProgressLine(sys.stderr)

    def once() -> "Audit":
        try:
            return run_audit(face.context, names, wanted, say=progress.update)
        finally:
            progress.clear()

    if watch is not None:
        _watch(face, once, watch, report)
        return
    found = once()
    if report is not None:
        _write_report(face, found, report)
        say(f"report: {report}")
    _show(face, found)
    if found.exit_code:
        raise click.exceptions.Exit(found.exit_code)


def _watch(face: Face, once: Callable[[], "Audit"], interval: str, report: Path | None) -> None:
    from playhead.config.contexts import parse_duration
    from playhead.pipeline.audit.watching import watch as watched

    def audited() -> "Audit":
        found = once()
        if report is not None:
            _write_report(face, found, report)
        return found

    for line in watched(audited, parse_duration(interval)):
        write(json.dumps(line, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def _write_report(face: Face, found: "Audit", path: Path) -> None:
    """With what a repair would do, or why it would do nothing."""
    from playhead.pipeline.audit.file import audit_fields
    from playhead.pipeline.audit.repair import action_row, plan_repair
    from playhead.pipeline.audit.repair_actions import RepairOptions
    from playhead.render.audit_page import audit_page

    plan: list[dict[str, Any]] = []
    refusal = ""
    if found.exit_code == 1:
        try:
            plan = [action_row(one) for one in plan_repair(face.context, found, RepairOptions())]
        except PlayheadError as error:
            refusal = f"{error.what}; {error.hint}" if error.hint else error.what
    path.write_text(audit_page(audit_fields(found), plan, refusal), encoding="utf-8")


def _show(face: Face, found: "Audit") -> None:
    from playhead.pipeline.audit.file import audit_fields

    fields = audit_fields(found)
    if face.form in ("json", "yaml"):
        face.show(Details(fields, name="id"))
        return
    pairs = [{**pair, **pair["counts"]} for pair in fields["pairs"]]
    items = [{**item, "pipeline": pair["pipeline"], **_places(item)} for pair in pairs for item in pair["items"]]
    faults = [
        {"verdict": "fault", "pipeline": pair["pipeline"], "range": fault["range"], "detail": fault["what"]}
        for pair in pairs
        for fault in pair["faults"]
    ]
    for note in dict.fromkeys(f"{pair['pipeline']}: {note}" for pair in pairs for note in pair["notes"]):
        say(f"note: {note}")
    listed = [*faults, *items]
    if face.form in ("csv", "name"):
        face.show(Listing(ITEM_COLUMNS, listed, name="key"))
        return
    shown = {
        "verdict": fields["verdict"],
        "audit": fields["id"],
        "tiers": Listing(PAIR_COLUMNS, pairs, name="pipeline"),
    }
    if listed:
        shown["items"] = Listing(ITEM_COLUMNS, listed[:SHOWN], name="key")
    face.show(Details(shown, name="verdict"))
    if len(listed) > SHOWN:
        say(f"{len(listed) - SHOWN} more; -o json has all of them")


def _places(item: dict[str, Any]) -> dict[str, str | None]:
    return {name: _first(item[key]) for name, key in (("from", "source"), ("to", "target"))}


def _first(places: list[str]) -> str | None:
    found = [place for place in places if place]
    if not found:
        return None
    return found[0] if len(found) == 1 else f"{found[0]}, and {len(found) - 1} more"
