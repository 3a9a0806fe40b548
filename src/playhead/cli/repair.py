"""`playhead repair`: mends what an audit found."""

import sys
from pathlib import Path
from typing import Any

import click

from playhead.cli.frame import Face, context_options, output_option, pass_face, say
from playhead.cli.ledgers import ledger_option
from playhead.config.extras import check_extra
from playhead.render import Column, Listing
from playhead.render.progress import ProgressLine

PLAN_COLUMNS = (
    Column("pipeline", "PIPELINE"),
    Column("does", "WOULD"),
    Column("what", "WHAT"),
    Column("rows", "ROWS", right=True),
    Column("sees", "WHAT READERS SEE"),
    Column("note", "NOTE"),
)
DONE_COLUMNS = (
    Column("pipeline", "PIPELINE"),
    Column("does", "DID"),
    Column("what", "WHAT"),
    Column("rows", "ROWS", right=True),
    Column("result", "RESULT"),
    Column("detail", "DETAIL"),
)


@click.command()
@click.argument("path", metavar="AUDIT.json", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-f", "--file", metavar="FILE", help="The connector file [default: the one of the audit].")
@click.option("--delete-extra", is_flag=True, help="Delete rows and files that only the target has.")
@click.option("--master", metavar="URL", help="Spark master [default: the context's, else local[*]].")
@click.option("--execute", is_flag=True, help="Execute the plan. Without it nothing is changed.")
@ledger_option
@context_options
@output_option
@pass_face
def repair(face: Face, path: Path, file: str | None, delete_extra: bool, master: str | None, execute: bool) -> None:
    """Mend what `playhead audit -o json` found: produce missing rows, deliver ranges again, delete doubled ones.

    With --execute the tiers are compared once more before anything is changed: a plan whose facts have changed is refused,
    and what is mended already is left alone. Afterwards they are audited again. Exit code 0: clean. 1: findings are left.
    """
    check_extra("spark")
    from playhead.pipeline.audit.file import read_audit
    from playhead.pipeline.audit.repair import action_row, execute_repair, plan_repair
    from playhead.pipeline.audit.repair_actions import RepairOptions
    from playhead.pipeline.spark import SparkOptions

    audit = read_audit(path)
    spark = SparkOptions.of_context(face.context, master)
    options = RepairOptions(file, delete_extra, spark, face.context.timeout_seconds)
    if not execute:
        rows: list[dict[str, Any]] = [action_row(action) for action in plan_repair(face.context, audit, options)]
        face.show(Listing(PLAN_COLUMNS, rows, name="what", empty="the audit has no findings: nothing to repair"))
        if rows:
            say("dry run: nothing was changed; add --execute")
        return
    progress = ProgressLine(sys.stderr)
    try:
        done = execute_repair(face.context, audit, options, say=progress.update)
    finally:
        progress.clear()
    rows = [{**action_row(one.action), "result": one.result.value, "detail": one.detail or None} for one in done.mended]
    face.show(Listing(DONE_COLUMNS, rows, name="what", empty="nothing is left to repair"))
    if done.after is not None:
        left = sum(pair.findings for pair in done.after.pairs)
        say(f"audited again: {'clean' if done.after.exit_code == 0 else f'{left} finding(s) are left'}")
    if done.exit_code:
        raise click.exceptions.Exit(done.exit_code)
