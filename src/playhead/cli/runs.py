"""`playhead runs`: runs on Spark, their host and start time, as recorded in the ledger."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from playhead.cli.complete import SECONDS, matching
from playhead.cli.connector_verbs import Doing, doing_options
from playhead.cli.frame import Face, LazyGroup, context_options, output_option, pass_face, say
from playhead.cli.ledgers import ledger_option
from playhead.render import Column, Details, Listing
from playhead.render.runs import chunk_row, range_row, run_row

if TYPE_CHECKING:
    from playhead.ledger.runs import Ledger

LIST_COLUMNS = (
    Column("pipeline", "PIPELINE"),
    Column("status", "STATE"),
    Column("host", "HOST", hide=2),
    Column("started", "SINCE", hide=1),
    Column("rows", "ROWS", right=True),
    Column("stream", "STREAM"),
    Column("position", "POSITION"),
    Column("cluster", "CLUSTER", wide=True),
    Column("run", "RUN", wide=True, right=True),
    Column("pid", "PID", wide=True, right=True),
    Column("user", "USER", wide=True),
    Column("heartbeat", "HEARTBEAT", wide=True),
    Column("settings", "SETTINGS", wide=True),
    Column("detail", "DETAIL", wide=True),
)
CHUNK_COLUMNS = (
    Column("committed_at", "COMMITTED"),
    Column("stream", "STREAM"),
    Column("seq", "SEQ", right=True),
    Column("run", "RUN", right=True),
    Column("source_range", "RANGE"),
    Column("end_position", "POSITION"),
    Column("topic", "TOPIC"),
    Column("offsets", "OFFSETS"),
    Column("count", "ROWS", right=True),
    Column("start_position", "FROM", wide=True),
    Column("generation", "GENERATION", wide=True, right=True),
    Column("state", "STATE", wide=True),
    Column("hash_xor", "XOR", wide=True, right=True),
    Column("hash_sum", "SUM", wide=True, right=True),
)
POSITION_COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", right=True),
    Column("position", "POSITION", right=True),
    Column("end", "END", right=True),
    Column("lag", "LAG", right=True),
    Column("published", "PUBLISHED", right=True),
    Column("ranges", "RANGES", right=True),
    Column("count", "ROWS", right=True),
    Column("rejected", "REJECTED", right=True),
    Column("claimed", "OPEN CLAIM"),
    Column("skipped", "SKIPPED", wide=True, right=True),
    Column("generation", "GENERATION", wide=True, right=True),
    Column("written_by", "BY", wide=True),
)
RANGE_COLUMNS = (
    Column("committed_at", "COMMITTED"),
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", right=True),
    Column("start", "START", right=True),
    Column("end", "END", right=True),
    Column("run", "RUN", right=True),
    Column("state", "STATE"),
    Column("count", "ROWS", right=True),
    Column("rejected", "REJECTED", right=True),
    Column("outputs", "OUTPUTS", show=lambda outputs: ", ".join(one["name"] for one in outputs) or "-"),
    Column("generation", "GENERATION", wide=True, right=True),
    Column("note", "NOTE", wide=True),
    Column("hash_xor", "XOR", wide=True, right=True),
    Column("hash_sum", "SUM", wide=True, right=True),
)
STOP_COLUMNS = (
    Column("pipeline", "PIPELINE"),
    Column("status", "STATE"),
    Column("does", "WOULD"),
    Column("note", "NOTE", remark=True),
)
STOPPED_COLUMNS = (
    Column("pipeline", "PIPELINE"),
    Column("before", "BEFORE"),
    Column("after", "AFTER"),
    Column("result", "RESULT"),
    Column("detail", "DETAIL", remark=True),
)


def run_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    def names() -> list[str]:
        from playhead.ledger.runs import open_context_ledger

        face = ctx.find_object(Face) or Face()
        with open_context_ledger(face.context, SECONDS) as ledger:
            return [run.pipeline for run in ledger.list_runs() if run.forgotten_by is None]

    return matching(names, incomplete)


_NAME = click.argument("name", shell_complete=run_names)
_CLUSTER = click.option("--cluster", metavar="ID", help="The Kafka cluster, if several have a run of that name.")
_CLUSTER_HERE = click.option(
    "--cluster", metavar="ID", help="The run's Kafka cluster [default: the context's, which is asked for its id]."
)


@click.group(cls=LazyGroup, instead={"create": "a run is started with: playhead run FILE"})
def runs() -> None:
    """Runs on Spark: list them, show details, stop or forget one."""


@runs.command("list")
@click.option("--all", "everything", is_flag=True, help="Include runs that were forgotten.")
@ledger_option
@context_options
@output_option
@pass_face
def list_(face: Face, everything: bool) -> None:
    """List the newest run of every pipeline, including runs on other hosts that share the ledger.

    ROWS counts this run only. STREAM and POSITION are those of the last committed chunk or range.
    """
    with _ledger(face) as ledger:
        rows = [run_row(run) for run in ledger.list_runs() if everything or run.forgotten_by is None]
    face.show(Listing(LIST_COLUMNS, rows, name="pipeline", empty=f"no run in {ledger.place} yet"))


@runs.command()
@_NAME
@_CLUSTER
@click.option(
    "--chunks", type=click.IntRange(min=0), default=20, show_default=True, help="How many to show, newest first."
)
@ledger_option
@context_options
@output_option
@pass_face
def show(face: Face, name: str, cluster: str | None, chunks: int) -> None:
    """Show the run NAME as recorded in the ledger, and what was committed for it, newest first.

    For a source: its chunks. For a sink: its position in every topic partition, and the delivered ranges. END and LAG are
    shown if the brokers answer. ROWS and REJECTED are totals over all valid ranges.
    """
    from playhead.errors import PlayheadError
    from playhead.ledger.ranges import open_ranges
    from playhead.offsets.spark_sinks import SeenEnds, SinkRow, list_sink_rows
    from playhead.pipeline.stop import find_run, list_run_chunks

    positions: list[SinkRow] = []
    ranges: list[dict[str, Any]] = []
    seen = SeenEnds()
    with _ledger(face) as ledger:
        run = find_run(ledger, name, cluster)
        rows = [chunk_row(chunk) for chunk in list_run_chunks(ledger, run, chunks)]
        try:
            with open_ranges(ledger, run, face.deadline.remaining()) as kept:
                positions, seen = list_sink_rows(kept, run.cluster, name, face.access)
                ranges = [range_row(one) for one in kept.list_ranges(run.cluster, name, newest=chunks)]
        except PlayheadError as error:
            seen = SeenEnds(why=f"its ranges cannot be read: {error.what}")
    fields = {**run_row(run), "ledger": ledger.place.removeprefix("the ledger ")}
    if positions or ranges:
        listing = Listing(POSITION_COLUMNS, [asdict(row) for row in positions], name="topic", empty="no position")
        fields |= {"positions": listing, "ranges": Listing(RANGE_COLUMNS, ranges, empty="no range was committed")}
    else:
        listing = Listing(CHUNK_COLUMNS, rows, name="stream", empty="no chunk was committed")
        fields |= {"chunks": listing}
    face.show(listing if face.form == "csv" else Details(fields, name="pipeline"))
    if seen.why:
        say(f"note: the lag is unknown: {seen.why}")
    for note in seen.hidden:
        say(f"note: {note}")


@runs.command()
@_NAME
@_CLUSTER_HERE
@doing_options
@ledger_option
@context_options
@output_option
@pass_face
def stop(face: Face, name: str, cluster: str | None, doing: Doing) -> None:
    """Stop the run NAME after its open step, and wait until it has ended. The next run continues there: nothing is lost."""
    from playhead.pipeline.stop import find_run_here, plan_stop, stop_run

    with _ledger(face) as ledger:
        plan = plan_stop(find_run_here(face.context, ledger, name, face.deadline, cluster))
        if not doing.execute:
            row = {"pipeline": name, "status": plan.run.words, "does": plan.does, "note": plan.note}
            face.show(Listing(STOP_COLUMNS, [row], name="pipeline"))
            say("dry run: nothing was changed; add --execute")
            return
        done = stop_run(ledger, plan, doing.wait)
    row = {
        "pipeline": name,
        "before": done.before.words,
        "after": done.after.words,
        "result": done.result.value,
        "detail": done.detail,
    }
    face.show(Listing(STOPPED_COLUMNS, [row], name="pipeline"))
    if done.exit_code:
        raise click.exceptions.Exit(done.exit_code)


@runs.command()
@_NAME
@_CLUSTER_HERE
@click.option("--execute", is_flag=True, help="Make the change. Without it nothing is changed.")
@ledger_option
@context_options
@output_option
@pass_face
def forget(face: Face, name: str, cluster: str | None, execute: bool) -> None:
    """List the run NAME no more. It must have ended, or be silent.

    Its positions, and what it delivered, stay in the ledger: its next run continues there and is listed again. To remove
    positions, use `playhead offsets delete`.
    """
    from playhead.pipeline.stop import find_run_here, forget_run, plan_forget

    with _ledger(face) as ledger:
        plan = plan_forget(find_run_here(face.context, ledger, name, face.deadline, cluster))
        if not execute:
            row = {"pipeline": name, "status": plan.run.words, "does": plan.does, "note": plan.note}
            face.show(Listing(STOP_COLUMNS, [row], name="pipeline"))
            say("dry run: nothing was changed; add --execute")
            return
        done = forget_run(ledger, plan)
    row = {
        "pipeline": name,
        "before": done.before.words,
        "after": "forgotten",
        "result": done.result.value,
        "detail": done.detail,
    }
    face.show(Listing(STOPPED_COLUMNS, [row], name="pipeline"))


def _ledger(face: Face) -> "Ledger":
    from playhead.ledger.runs import open_context_ledger

    return open_context_ledger(face.context, face.deadline.remaining())
