"""The verbs of `playhead connectors` that work with connector files: plan, apply, validate, export."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from playhead.cli.complete import connector_names
from playhead.cli.frame import (
    Face,
    context_options,
    folded,
    output_option,
    pass_face,
    program,
    say,
    term_interrupts,
    width_of,
    write,
)
from playhead.cli.writes import command_line
from playhead.errors import Invalid, Unreachable
from playhead.render import Column, Listing, clean
from playhead.render.width import wrap_message

if TYPE_CHECKING:
    from playhead.connectors.apply import AppliedConnectors
    from playhead.connectors.export import Replaced
    from playhead.connectors.lifecycle import Wait
    from playhead.connectors.plan.check import Allowed
    from playhead.connectors.plan.model import ConnectorsPlan
    from playhead.model import ConnectorSpec

F = TypeVar("F", bound=Callable[..., Any])

PLAN_COLUMNS = (
    Column("name", "CONNECTOR"),
    Column("action", "ACTION"),
    Column("connector_class", "CLASS"),
    Column("state", "STATE"),
    Column("changes", "CHANGES"),
    Column("effects", "EFFECTS"),
    Column("findings", "FINDINGS"),
)
OUTCOME_COLUMNS = (
    Column("name", "CONNECTOR"),
    Column("action", "ACTION"),
    Column("state", "STATE"),
    Column("result", "RESULT"),
    Column("detail", "DETAIL", remark=True),
)
FINDING_COLUMNS = (
    Column("name", "CONNECTOR"),
    Column("level", "LEVEL"),
    Column("key", "KEY"),
    Column("what", "WHAT"),
    Column("origin", "WHERE", wide=True),
)


@dataclass(frozen=True, slots=True)
class Files:
    """The files to read, and the connectors outside of them that may be deleted."""

    paths: tuple[str, ...]
    shared_topics: bool
    prune: str | None = None
    show_origin: bool = False
    allow_missing_topics: bool = False
    allow_unvalidated: bool = False

    def read(self) -> "list[ConnectorSpec]":
        from playhead.connectors.files import read_files

        found = read_files(self.paths, stdin=self.stdin(), shared_topics=self.shared_topics)
        for note in found.notes:
            say(f"note: {note}")
        return found.specs

    @property
    def allowed(self) -> "Allowed":
        from playhead.connectors.plan.check import Allowed

        return Allowed(self.allow_missing_topics, self.allow_unvalidated)

    def stdin(self) -> bytes | None:
        """All of stdin, if one of the paths is `-`."""
        if "-" not in self.paths:
            return None
        if sys.stdin is None:
            raise Invalid("stdin is closed: there is nothing to read")
        return sys.stdin.buffer.read()


_FILE_OPTIONS = (
    click.option(
        "-f",
        "--file",
        "paths",
        multiple=True,
        metavar="PATH",
        type=click.Path(allow_dash=True),
        help="A connector file (YAML, JSON, .properties, .py), a folder of them, or - for stdin; repeatable.",
    ),
    click.option("--shared-topics", is_flag=True, help="Allow several sources to write to one topic."),
)
_ACCEPT_OPTIONS = (
    click.option(
        "--allow-missing-topics",
        is_flag=True,
        help="Accept a connector whose topic does not exist and that nobody creates: it runs, and nothing flows.",
    ),
    click.option(
        "--allow-unvalidated", is_flag=True, help="Accept a connector that the worker could not validate in time."
    ),
)
_PLAN_OPTIONS = (
    *_ACCEPT_OPTIONS,
    click.option("--prune", is_flag=True, help="Delete connectors that are in no file; only those that match --scope."),
    click.option("--scope", metavar="PATTERN", help="The names that --prune may delete, like 'orders-*'."),
    click.option("--show-origin", is_flag=True, help="Show which file, template or common block set a key."),
)
_SAVE = click.option(
    "--save-plan",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Save the plan for review and `playhead connectors apply FILE`.",
)


def _fold(words: dict[str, Any]) -> Files:
    prune, scope = words.pop("prune", False), words.pop("scope", None)
    if prune and not scope:
        raise click.UsageError("--prune needs a --scope: the pattern of names that it may delete")
    if scope and not prune:
        raise click.UsageError("--scope is for --prune")
    paths, shared, origin = words.pop("paths"), words.pop("shared_topics"), words.pop("show_origin", False)
    missing, unvalidated = words.pop("allow_missing_topics", False), words.pop("allow_unvalidated", False)
    return Files(paths, shared, scope, origin, missing, unvalidated)


def file_options(command: F) -> F:
    """Adds `-f` and `--shared-topics`; the command gets them as `files: Files`."""
    return folded(command, _FILE_OPTIONS, "files", _fold)


def _plan_options(command: F) -> F:
    return folded(command, (*_FILE_OPTIONS, *_PLAN_OPTIONS), "files", _fold)


def _check_options(command: F) -> F:
    return folded(command, (*_FILE_OPTIONS, *_ACCEPT_OPTIONS), "files", _fold)


def wait_options(command: F) -> F:
    """Adds `--wait` and `--settle`; the command gets them as `wait: Wait`."""

    def fold(words: dict[str, Any]) -> "Wait":
        from playhead.config.contexts import parse_duration
        from playhead.connectors.lifecycle import Wait

        return Wait(parse_duration(words.pop("settle")), parse_duration(words.pop("wait")))

    options = (
        click.option(
            "--wait", default="60s", show_default=True, metavar="TIME", help="How long to wait for running tasks."
        ),
        click.option(
            "--settle", default="2s", show_default=True, metavar="TIME", help="How long they must keep running."
        ),
    )
    return folded(command, options, "wait", fold)


@click.command()
@_plan_options
@_SAVE
@context_options
@output_option
@pass_face
def plan(face: Face, files: Files, save_plan: Path | None) -> None:
    """Show what applying connector files would change: keys, state, effects, and the worker's validation.

    Exit code 0: the cluster matches the files; 1: it differs; 2: something cannot be applied; 3: the worker could not be
    asked. Nothing is changed.
    """
    found = _planned(face, files)
    show_plan(face, found, show_origin=files.show_origin)
    _save_plan(found, save_plan)
    say(found.summary)
    if found.exit_code:
        raise click.exceptions.Exit(found.exit_code)


@click.command()
@click.argument("plan_file", required=False, metavar="[PLAN]", type=click.Path(dir_okay=False, path_type=Path))
@_plan_options
@_SAVE
@click.option("--execute", is_flag=True, help="Execute the plan. Without it nothing is changed.")
@wait_options
@context_options
@output_option
@pass_face
def apply(
    face: Face, plan_file: Path | None, files: Files, save_plan: Path | None, execute: bool, wait: "Wait"
) -> None:
    """Make the cluster match connector files, or execute a saved PLAN, which is refused if the cluster has changed.

    Every connector gets a result. The command waits until all of them run, with tasks and without a failure.
    """
    if (plan_file is None) == (not files.paths):
        raise click.UsageError("give connector files with -f, or a saved PLAN")
    found = _planned(face, files) if plan_file is None else _planned_again(face, plan_file, files)
    _save_plan(found, save_plan)
    if not execute:
        show_plan(face, found, show_origin=files.show_origin)
        say(found.summary)
        say("dry run: nothing was changed; add --execute" if not found.is_empty else "nothing to change")
        return
    _say_notes(found.notes)
    carry_out(face, found, wait)


@click.command()
@_check_options
@click.option("--strict", is_flag=True, help="Exit with code 1 on warnings, too.")
@context_options
@output_option
@pass_face
def validate(face: Face, files: Files, strict: bool) -> None:
    """Check connector files: the worker's validation of each key, unused keys, masks in place of secrets, missing topics.

    Exit code 1 if there is an error; 3 if the worker could not be asked. Running connectors are not checked.
    """
    from playhead.connectors.plan.check import Severity
    from playhead.connectors.plan.make import check_connectors
    from playhead.connectors.plan.model import finding_row

    specs = _specs(files)
    checks, notes = check_connectors(face.context, specs, face.deadline, files.allowed)
    rows = [{"name": name} | finding_row(finding) for name, check in checks.items() for finding in check.findings]
    face.show(Listing(FINDING_COLUMNS, rows, empty=f"{len(specs)} connector(s) checked: no problem found"))
    _say_notes(notes)
    counted = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    wrong = [f for check in checks.values() for f in check.findings if f.level in counted]
    if wrong:
        raise click.exceptions.Exit(Unreachable.exit_code if all(finding.is_unasked for finding in wrong) else 1)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=connector_names)
@click.option(
    "-o", "--output", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="The format."
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    help="Output file [default: stdout].",
)
@click.option(
    "--into",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A YAML file to edit instead: only keys that differ, comments are kept. Shows the diff; --execute writes it.",
)
@click.option("--execute", is_flag=True, help="With --into: write the file. Without it nothing is changed.")
@context_options
@pass_face
def export(face: Face, names: tuple[str, ...], form: str, file: Path, into: Path | None, execute: bool) -> None:
    """Write running connectors to a new file, or with --into to an existing one. Applying the file changes nothing.

    NAME is a name or a quoted pattern; without one all are written. Literal secrets become references like
    ${env:NAME_KEY}: set these variables on the workers before you apply the file.
    """
    if into is not None:
        if form == "json" or str(file) != "-":
            raise click.UsageError("--into edits a YAML file; it excludes --file and -o json")
        _export_into(face, names, into, execute=execute)
        return
    if execute:
        raise click.UsageError("--execute is for --into")
    from playhead.connectors.export import export_connectors
    from playhead.connectors.files import write_specs

    found = export_connectors(face.context, names, face.deadline)
    text = write_specs(found.specs, "json" if form == "json" else "yaml")
    if str(file) == "-":
        write(text)
    else:
        file.write_text(text, "utf-8")
        say(f"{len(found.specs)} connector(s) written to {file}")
    _say_replaced(found.replaced)


def _export_into(face: Face, names: tuple[str, ...], into: Path, *, execute: bool) -> None:
    from playhead.connectors.export import apply_into_file, plan_into_file

    edit = plan_into_file(face.context, names, into, face.deadline)
    write(clean(edit.diff, keep="\n"))
    _say_replaced(edit.replaced)
    for note in edit.notes:
        say(f"note: {note}")
    if edit.is_empty:
        say(f"nothing to change in {into}")
        return
    say(f"{len(edit.changed)} connector(s) changed, {len(edit.added)} added")
    if execute:
        apply_into_file(edit)
        say(f"written to {into}")
    else:
        say("dry run: nothing was changed; add --execute")


def _say_replaced(replaced: "Sequence[Replaced]") -> None:
    for item in replaced:
        why = "the server shows a mask" if item.masked else "a literal secret"
        say(f"note: {item.name}: {item.key} is {why}, written as {item.reference}")
    if replaced:
        say(
            "note: the workers need these variables, and config.providers=env in their own file, before this is applied"
        )


def _specs(files: Files) -> "list[ConnectorSpec]":
    if not files.paths:
        raise click.UsageError("give connector files with -f")
    return files.read()


def _planned(face: Face, files: Files) -> "ConnectorsPlan":
    from playhead.connectors.plan.make import plan_connectors

    return plan_connectors(face.context, _specs(files), face.deadline, prune=files.prune, allowed=files.allowed)


def _planned_again(face: Face, path: Path, files: Files) -> "ConnectorsPlan":
    from playhead.connectors.plan.file import from_json, plan_again

    saved = from_json(path.read_bytes(), str(path))
    return plan_again(face.context, saved, face.deadline, files.allowed)


def _save_plan(found: "ConnectorsPlan", path: Path | None) -> None:
    if path is None:
        return
    from playhead.connectors.plan.file import to_json
    from playhead.files import replace_file

    replace_file(path, to_json(found))
    say(f"plan saved: {program()} connectors apply {path}")


def show_plan(face: Face, found: "ConnectorsPlan", *, show_origin: bool = False) -> None:
    from playhead.connectors.plan.text import plan_text

    if face.form in ("table", "wide"):
        text = clean(plan_text(found, show_origin=show_origin or face.form == "wide"), keep="\n")
        width = width_of(sys.stdout) if face.form == "table" else None
        write(text if width is None else wrap_message(text, width))
    else:
        face.show(Listing(PLAN_COLUMNS, [row.to_row() for row in found.rows]))
    _say_notes(found.notes)


def _say_notes(notes: Sequence[str]) -> None:
    for note in notes:
        say(f"note: {note}")


def _applied(face: Face, found: "ConnectorsPlan", wait: "Wait") -> "AppliedConnectors":
    from playhead.connectors.apply import ApplyInterrupted, apply_connectors
    from playhead.render.progress import ProgressLine

    line = ProgressLine(sys.stderr)
    try:
        with term_interrupts():
            return apply_connectors(face.context, found, wait, line.update)
    except ApplyInterrupted as stopped:
        line.clear()
        show_outcomes(face, stopped.applied)
        raise
    finally:
        line.clear()


def carry_out(face: Face, found: "ConnectorsPlan", wait: "Wait") -> None:
    """Executes a plan, shows the outcomes and exits with the code of the worst. After an interrupt it shows what was done."""
    applied = _applied(face, found, wait)
    show_outcomes(face, applied)
    if applied.exit_code:
        raise click.exceptions.Exit(applied.exit_code)


def show_outcomes(face: Face, applied: "AppliedConnectors") -> None:
    rows: Sequence[dict[str, Any]] = [outcome.to_row() for outcome in applied.outcomes]
    face.show(Listing(OUTCOME_COLUMNS, rows, empty="the files contain no connector"))
    _say_notes(applied.notes)
    if applied.journal is not None:
        say_journal(face, applied.journal, applied.record_id)
    if applied.warning:
        say(f"warning: {applied.warning}", style="yellow")


def say_journal(face: Face, path: Path, record_id: str) -> None:
    say(f"journal: {path}; undo with: {command_line(face, ['connectors', 'undo', record_id])}")
