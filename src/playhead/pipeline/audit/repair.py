"""`playhead repair`: mends what an audit found, by the means of replay, and audits again.

First the same tiers are compared once more. What the audit found and is mended meanwhile is left alone, so it is safe to run a
repair twice, and after a kill. A finding that the audit did not have means that the facts have changed: nothing is done then. The
journal has an entry before the first change.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.errors import Invalid, NotFound, PlayheadError, Refused
from playhead.kafka.transactions import TransactionalProducer
from playhead.ledger.model import RecordedRange
from playhead.ledger.ranges import open_ranges
from playhead.ledger.runs import open_context_ledger
from playhead.model import Deadline, Result
from playhead.model.outcome import result_of
from playhead.model.times import to_iso
from playhead.offsets.journal import Journal, save_entry, who_am_i
from playhead.pipeline.audit.folder import PARQUET, kind_of, list_files
from playhead.pipeline.audit.model import FINDINGS, Audit, Pair, Verdict
from playhead.pipeline.audit.of_files import place_of
from playhead.pipeline.audit.repair_plan import Action, Does, Files, plan_pair
from playhead.pipeline.audit.run import AuditOptions, find_specs, open_session, run_audit
from playhead.pipeline.connect_home import find_home
from playhead.pipeline.deliver.files.sink import FilesSink, storage_of
from playhead.pipeline.deliver.jdbc.options import find_target
from playhead.pipeline.ingest.encoding import Encoded
from playhead.pipeline.ingest.jdbc.source import open_jdbc_source
from playhead.pipeline.ingest.jdbc.stream import JdbcStep
from playhead.pipeline.replay.asked import Asked, parse_range
from playhead.pipeline.replay.run import ReplayOptions, planned_replay, replay_on
from playhead.pipeline.spark import SparkOptions
from playhead.pipeline.spec import Ready, check_specs
from playhead.pipeline.stop import find_run
from playhead.sql.address import parse_address
from playhead.sql.database import Database
from playhead.sql.target_tables import TargetTableName, delete_copies, delete_keys

FOLDER = "repairs"
_KEYS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """`file`: the connector file, if the audit does not name one."""

    file: str | None = None
    deletes_extra: bool = False
    spark: SparkOptions = field(default_factory=SparkOptions)
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Mended:
    action: Action
    result: Result
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Repaired:
    """`after`: the audit that followed; None if there was nothing to mend."""

    mended: Sequence[Mended]
    after: Audit | None

    @property
    def exit_code(self) -> int:
        results = {one.result for one in self.mended}
        if Result.UNKNOWN in results:
            return 5
        if self.after is not None and self.after.exit_code:
            return self.after.exit_code
        return 1 if results & {Result.FAILED, Result.REFUSED} else 0


def action_row(action: Action) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(action)
    return {**made, "what": action.what}


def plan_repair(context: Context, audit: Audit, options: RepairOptions) -> list[Action]:
    """Reads the ledger and the files of sinks; changes nothing. A pair that could not be compared is refused."""
    if failed := [pair for pair in audit.pairs if pair.error is not None]:
        raise Refused(f"{failed[0].pipeline} could not be compared: {failed[0].error}", "audit it again first")
    actions: list[Action] = []
    for pair in audit.pairs:
        if pair.findings:
            actions += _planned(context, pair, options)
    return actions


def _planned(context: Context, pair: Pair, options: RepairOptions) -> list[Action]:
    if pair.kind != "files sink":
        return plan_pair(pair, deletes_extra=options.deletes_extra)
    ready = _ready(context, pair, options)
    home = find_home(context, Deadline(options.seconds))
    sink = FilesSink(ready.config, home.worker)
    place = place_of(sink)
    with ExitStack() as parts:
        ledger = parts.enter_context(open_context_ledger(context, options.seconds))
        try:
            run = find_run(ledger, pair.pipeline, home.cluster_id)
        except NotFound:
            raise Refused(
                f"{pair.pipeline} was not run by Playhead: no ledger knows its ranges",
                "move its position back with playhead offsets set, and let its own engine deliver again",
            ) from None
        ranges = parts.enter_context(open_ranges(ledger, run, options.seconds))

        def is_own(name: str) -> bool:
            found: list[RecordedRange] = ranges.list_with_output(run.cluster, pair.pipeline, name)
            return any(output.name == name for one in found for output in one.closed.outputs)

        def rows(name: str) -> int:
            with place.system.open_input_file(place.path(name)) as file:
                if kind_of(name) == PARQUET:
                    return int(pq.ParquetFile(file).metadata.num_rows)
                return len(bytes(file.read()).rstrip(b"\n").split(b"\n"))

        return plan_pair(pair, deletes_extra=options.deletes_extra, files=Files(is_own, rows))


def _ready(context: Context, pair: Pair, options: RepairOptions) -> Ready:
    found = find_specs(context, [pair.pipeline], _file(pair, options), options.seconds)
    (ready,) = check_specs(found, find_home(context, Deadline(options.seconds)).worker)
    return ready


def _file(pair: Pair, options: RepairOptions) -> str | None:
    named = pair.facts.get("file")
    return options.file or (str(named) if named else None)


def execute_repair(
    context: Context,
    audit: Audit,
    options: RepairOptions,
    *,
    spark: SparkSession | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Repaired:
    wanted = AuditOptions(level=2, spark=options.spark, seconds=options.seconds)
    with open_session(wanted, spark) as opened:

        def audited() -> Audit:
            pairs = []
            for pair in audit.pairs:
                if pair.findings:
                    values = any(item.verdict is Verdict.CHANGED for item in pair.items)
                    asked = replace(wanted, file=_file(pair, options), values=values)
                    found = run_audit(context, [pair.pipeline], asked, spark=opened(), say=say).pairs
                    pairs += [one for one in found if one.source == pair.source or one.error is not None]
            return replace(audit, pairs=pairs)

        if not any(pair.findings for pair in audit.pairs):
            return Repaired([], None)
        now = audited()
        _check_facts(audit, now)
        actions = plan_repair(context, now, options)
        entry = _begin(context, audit, actions)
        mended = [
            _mended(context, now, action, options, opened()) for action in actions if action.does is not Does.NOTHING
        ]
        _finish(entry, mended)
        left = [action for action in actions if action.does is Does.NOTHING]
        mended += [Mended(action, Result.REFUSED, action.note) for action in left]
        return Repaired(mended, audited() if mended else now)


def _check_facts(before: Audit, now: Audit) -> None:
    """Findings may have gone; there must be none that the audit did not have, and the topics must be the same ones."""
    known = {mark for pair in before.pairs for mark in _marks(pair)}
    for pair in now.pairs:
        if pair.error is not None:
            raise Refused(f"{pair.pipeline} cannot be compared now: {pair.error}", "repair it when it can be")
        topic_ids = {old.facts.get("topic_id") for old in before.pairs if old.source == pair.source}
        if "topic_id" in pair.facts and pair.facts["topic_id"] not in topic_ids:
            raise Refused(f"{pair.source} was deleted and recreated since the audit", "audit again")
        if new := [mark for mark in _marks(pair) if mark not in known]:
            raise Refused(
                f"{pair.pipeline} has findings that the audit did not have, the first: {new[0][2]} {new[0][3] or ''}",
                "the facts have changed: audit again, and repair that",
            )


Mark = tuple[str, str, str, str | None, tuple[str, ...], tuple[str, ...]]


def _marks(pair: Pair) -> list[Mark]:
    return [
        (pair.pipeline, pair.source, item.verdict.value, item.key, tuple(item.source), tuple(item.target))
        for item in pair.items
        if item.verdict in FINDINGS
    ]


# The journal


def _begin(context: Context, audit: Audit, actions: Sequence[Action]) -> tuple[Path, dict[str, Any]]:
    now = datetime.now(UTC)
    name = f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}-{os.urandom(4).hex()}"
    planned = [action_row(action) for action in actions]
    content = {
        "playhead_repair": 1,
        "id": name,
        "who": who_am_i(),
        "started": to_iso(now),
        "audit": audit.id,
        "planned": planned,
    }
    path = Journal.of_context(context).folder / FOLDER / f"{name}.json"
    save_entry(path, _encoded(content), is_new=True)
    return path, content


def _finish(entry: tuple[Path, dict[str, Any]], mended: Sequence[Mended]) -> None:
    path, content = entry
    done = [
        {"does": one.action.does.value, "what": one.action.what, "result": one.result.value, "detail": one.detail}
        for one in mended
    ]
    save_entry(path, _encoded({**content, "finished": to_iso(datetime.now(UTC)), "outcomes": done}), is_new=False)


def _encoded(content: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


# The actions


def _mended(context: Context, now: Audit, action: Action, options: RepairOptions, spark: SparkSession) -> Mended:
    pair = next(
        pair for pair in now.pairs if pair.pipeline == action.pipeline and pair.facts.get("topic") == action.topic
    )
    acts = {
        Does.DELIVER: _deliver,
        Does.PRODUCE: _produce,
        Does.DELETE_FILE: _delete_file,
        Does.DELETE_ROWS: _delete_rows,
    }
    try:
        return acts[action.does](context, pair, action, options, spark)
    except PlayheadError as error:
        return Mended(action, result_of(error), f"{error.what}; {error.hint}" if error.hint else error.what)


def _deliver(context: Context, pair: Pair, action: Action, options: RepairOptions, spark: SparkSession) -> Mended:
    asked = Asked(tuple(map(parse_range, action.ranges)))
    how = ReplayOptions(_file(pair, options), spark=options.spark, seconds=options.seconds)
    with planned_replay(context, pair.pipeline, asked, how) as planned:
        if planned.impossible:
            return Mended(action, Result.REFUSED, "; ".join(str(one["why"]) for one in planned.impossible))
        done = list(replay_on(context, planned, spark))
    worst = next((one for one in done if one.result not in (Result.CHANGED, Result.UNCHANGED)), None)
    if worst is not None:
        return Mended(action, worst.result, worst.detail)
    return Mended(action, Result.CHANGED, f"{len(done)} range(s), {sum(one.count for one in done)} record(s)")


def _produce(context: Context, pair: Pair, action: Action, options: RepairOptions, spark: SparkSession) -> Mended:
    """One transaction: all of them, or none. The rows lie below the position, so a live source does not read them."""
    ready = _ready(context, pair, options)
    home = find_home(context, Deadline(options.seconds))
    source = open_jdbc_source(spark, ready.config, home.worker)
    try:
        stream = next(one for one in source.streams() if one.name == pair.facts["stream"])
        view, count = stream.view, 0
        settings, patience = home.producer_settings(ready.config), Deadline(options.seconds)
        with (
            TransactionalProducer(settings, f"playhead-repair-{ready.name}", patience) as producer,
            producer.transaction(),
        ):
            for at in range(0, len(action.keys), _KEYS_AT_ONCE):
                some = ", ".join(str(int(key)) for key in action.keys[at : at + _KEYS_AT_ONCE])
                step = JdbcStep(view, stream.encoder, [f"{view.id} IN ({some})"], "", True)
                count += sum(_send(producer, stream.topic, made) for made in _encoded_rows(step, spark))
    finally:
        source.close()
    if count != len(action.keys):
        return Mended(action, Result.CHANGED, f"{count} record(s): the other rows are gone or dropped by a transform")
    return Mended(action, Result.CHANGED, f"{count} record(s) produced")


def _encoded_rows(step: JdbcStep, spark: SparkSession) -> Iterator[Encoded]:
    records = step.records
    if records.read is not None:  # the rows are read here, by the number of the chunk
        yield from records(iter([pa.RecordBatch.from_pydict({"id": [0]})]))
    else:
        yield from records(iter(step.read(spark).toArrow().to_batches()))


def _send(producer: TransactionalProducer, topic: str, made: Encoded) -> int:
    keys = [None] * len(made.values) if made.keys is None else made.keys.to_pylist()
    for at, (key, value) in enumerate(zip(keys, made.values.to_pylist(), strict=True)):
        headers = None if made.headers is None else [(name, one or b"") for name, one in made.headers[at]]
        producer.produce(topic, key, value, headers=headers)
    return len(made.values)


def _delete_file(context: Context, pair: Pair, action: Action, options: RepairOptions, _spark: SparkSession) -> Mended:
    ready = _ready(context, pair, options)
    sink = FilesSink(ready.config, find_home(context, Deadline(options.seconds)).worker)
    storage_of(sink.options).connect().remove(action.names[0])
    if any(file.name == action.names[0] for file in list_files(place_of(sink))):
        return Mended(action, Result.FAILED, "it is still there")
    return Mended(action, Result.CHANGED)


def _delete_rows(context: Context, pair: Pair, action: Action, options: RepairOptions, _spark: SparkSession) -> Mended:
    """A doubled row goes only if a row with the same content stays, an extra one only if it still has its key."""
    ready = _ready(context, pair, options)
    table, keys = _table(pair), [str(key) for key in _list(pair.facts.get("keys"))]
    extra = {place: item.key or "" for item in pair.items if item.verdict is Verdict.EXTRA for place in item.target}
    copies = [place for place in action.names if place not in extra]
    rows = {place: key for place, key in extra.items() if place in action.names}
    if rows and not keys:
        raise Refused(f"{table} has no key by which extra rows could be deleted safely", "delete them by hand")
    doing = f"deleting rows of {table}"
    with (
        Database(parse_address(find_target(ready.config).url), options.seconds) as database,
        database.transaction(doing) as connection,
    ):
        count = delete_copies(connection, table, copies) if copies else 0
        count += delete_keys(connection, table, keys, rows) if rows else 0
        if count != len(action.names):
            raise Refused(
                f"{count} of {len(action.names)} rows are still as they were found: nothing is deleted", "audit again"
            )
    return Mended(action, Result.CHANGED, f"{count} row(s) deleted")


def _table(pair: Pair) -> TargetTableName:
    parts = _list(pair.facts.get("table"))
    if len(parts) != 2:
        raise Invalid("the audit does not name the table", "audit again")
    return TargetTableName(None if parts[0] is None else str(parts[0]), str(parts[1]))


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
