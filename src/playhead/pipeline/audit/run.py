"""`playhead audit`: finds the connectors, compares the tiers of each, and gathers what differs."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from playhead.config import Context
from playhead.connect.rest import open_rest
from playhead.connectors.files import read_files
from playhead.errors import Invalid, NotFound, PlayheadError, Refused
from playhead.ledger.runs import open_context_ledger
from playhead.model import ConnectorSpec, Deadline
from playhead.model.times import to_iso
from playhead.pipeline.audit.compare import MOST
from playhead.pipeline.audit.kept import keep_audit
from playhead.pipeline.audit.model import Audit, Pair, Verdict
from playhead.pipeline.audit.row_hash import VERSION
from playhead.pipeline.audit.scene import Scene
from playhead.pipeline.classes import CLASSES, ConnectorKind
from playhead.pipeline.connect_home import find_home
from playhead.pipeline.replay.configs import find_spec
from playhead.pipeline.spark import SparkOptions, new_log, spark_session
from playhead.pipeline.spec import Ready, check_specs


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """`file`: a connector file. `against`: another target than the connector's own. `key`: the fields that identify a row.
    `most`: how many rows that differ are listed."""

    file: str | None = None
    level: int = 2
    against: str | None = None
    values: bool = False
    key: Sequence[str] = ()
    columns: Sequence[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    spark: SparkOptions = field(default_factory=SparkOptions)
    seconds: float = 30.0
    most: int = MOST


_ASKED = ("against", "values", "key", "since", "until", "most")  # what a repair asks again


def _asked(options: AuditOptions) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins({name: getattr(options, name) for name in _ASKED})
    return found


def asked_of(pair: Pair) -> AuditOptions:
    """How a pair was asked for, whatever else was. An older audit does not say it: contents count then, if some
    were found changed."""
    asked = pair.facts.get("asked")
    if not isinstance(asked, dict):
        return AuditOptions(values=any(item.verdict is Verdict.CHANGED for item in pair.items))
    try:
        return msgspec.convert({name: asked[name] for name in _ASKED if name in asked}, AuditOptions)
    except msgspec.ValidationError as error:
        raise Invalid(f"the audit does not say how {pair.pipeline} was compared: {error}", "audit again") from None


Say = Callable[[str], None]


def is_folder(name: str) -> bool:
    """A name with a slash is a folder: connectors have none."""
    return "/" in name or name in (".", "..")


def run_audit(
    context: Context,
    names: Sequence[str],
    options: AuditOptions,
    *,
    spark: SparkSession | None = None,
    say: Say = lambda _text: None,
) -> Audit:
    """`spark`: a session that is open already."""
    with open_session(options, spark) as opened:
        pairs = list(_pairs(context, names, options, opened, say))
    now = datetime.now(UTC)
    made = f"{now:%Y%m%dT%H%M%S}-{os.urandom(3).hex()}"
    cluster = next((str(pair.facts["cluster"]) for pair in pairs if "cluster" in pair.facts), "")
    found = Audit(made, to_iso(now), cluster, VERSION, pairs)
    return keep_audit(context, found) if cluster else found  # two folders belong to no pipeline


@contextmanager
def open_session(options: AuditOptions, spark: SparkSession | None) -> Iterator[Callable[[], SparkSession]]:
    """Opened when it is first asked for: the ledger's arithmetic needs none."""
    with ExitStack() as parts:
        opened: list[SparkSession] = [] if spark is None else [spark]

        def session() -> SparkSession:
            if not opened:
                log = new_log()
                opened.append(parts.enter_context(spark_session(replace(options.spark, log=log))))
                parts.callback(log.unlink, missing_ok=True)
            return opened[0]

        yield session


def _pairs(
    context: Context,
    names: Sequence[str],
    options: AuditOptions,
    spark: Callable[[], SparkSession],
    say: Say,
) -> Iterator[Pair]:
    folders = [name for name in names if is_folder(name)]
    if folders:
        from playhead.pipeline.audit.of_folders import audit_folders

        if len(folders) != len(names) or len(folders) != 1 or options.against is None:
            raise Invalid("a folder is compared with another one", "playhead audit FOLDER --against FOLDER [--key id]")
        yield audit_folders(
            spark, folders[0], options.against, options.key, options.columns, options.level, options.most, say
        )
        return
    deadline = Deadline(options.seconds)
    home = find_home(context, deadline)
    with open_context_ledger(context, options.seconds) as ledger:
        scene = Scene(
            context,
            home,
            ledger,
            spark,
            options.level,
            options.values,
            options.since,
            options.until,
            options.seconds,
            options.most,
            say,
        )
        for spec in _specs(scene, names, options.file):
            for pair in _pairs_of(scene, spec, options):
                facts = {**pair.facts, "cluster": home.cluster_id}
                facts |= {"file": str(Path(options.file).absolute())} if options.file is not None else {}
                facts["asked"] = _asked(options)
                yield replace(pair, facts=facts)


def find_specs(context: Context, names: Sequence[str], file: str | None, seconds: float) -> list[ConnectorSpec]:
    """As an audit finds them."""
    home = find_home(context, Deadline(seconds))
    with open_context_ledger(context, seconds) as ledger:
        return _specs(Scene(context, home, ledger, _no_session, seconds=seconds), names, file)


def _no_session() -> SparkSession:
    raise AssertionError("no data is read here")


def _specs(scene: Scene, names: Sequence[str], file: str | None) -> list[ConnectorSpec]:
    if file is not None:
        specs = {spec.name: spec for spec in read_files([file], shared_topics=True).specs}
        if missing := [name for name in names if name not in specs]:
            raise NotFound("connector", missing[0], sorted(specs), where=file)
        return [specs[name] for name in names] if names else list(specs.values())
    if not names:
        raise Invalid("nothing is named to compare", "playhead audit NAME..., or -f FILE")
    return [_found(scene, name) for name in names]


def _found(scene: Scene, name: str) -> ConnectorSpec:
    """By its run in the ledger, if Playhead ran it; else as a Connect worker has it."""
    run = scene.find_run(name)
    if run is not None:
        try:
            return find_spec(scene.context, name, None, run, scene.deadline())[0]
        except Refused as error:
            raise Refused(error.what, f"name its file: playhead audit {name} -f FILE") from None
    if not scene.context.connect_urls:
        raise NotFound(
            "connector", name, hint=f"the ledger has no run of it; name its file: playhead audit {name} -f FILE"
        )
    with open_rest(scene.context, scene.deadline()) as rest:
        found = rest.get_config(name)
    config = {key: value for key, value in found.items() if value is not None and key != "name"}
    return ConnectorSpec(name, config)


def _pairs_of(scene: Scene, spec: ConnectorSpec, options: AuditOptions) -> Iterator[Pair]:
    """A connector that cannot be compared is a pair with an error: the others are compared."""
    try:
        kind = CLASSES.get(spec.connector_class)
        if kind is None or kind is ConnectorKind.FILE_SINK:
            raise Refused(f"{spec.connector_class or 'a connector without a class'} cannot be compared yet", None)
        (ready,) = check_specs([spec], scene.home.worker)
        yield from _of_kind(scene, ready, kind, options)
    except PlayheadError as error:
        what = f"{error.what}; {error.hint}" if error.hint else error.what
        yield Pair(spec.name, "-", "-", error=what)


def _of_kind(scene: Scene, ready: Ready, kind: ConnectorKind, options: AuditOptions) -> Iterator[Pair]:
    if kind in (ConnectorKind.JDBC_SOURCE, ConnectorKind.FILE_SOURCE) and options.against is not None:
        raise Refused(f"{ready.name} is a source: it is compared with its topic", "leave out --against")
    if kind is ConnectorKind.JDBC_SOURCE:
        from playhead.pipeline.audit.of_source import audit_source

        yield from audit_source(scene, ready)
    elif kind is ConnectorKind.FILE_SOURCE:
        from playhead.pipeline.audit.of_lines import audit_lines

        yield audit_lines(scene, ready)
    elif kind is ConnectorKind.FILES_SINK:
        from playhead.pipeline.audit.of_files import audit_files_sink

        yield from audit_files_sink(scene, ready, options.against, options.key)
    else:
        from playhead.pipeline.audit.of_jdbc import audit_jdbc_sink

        if options.against is not None:
            raise Refused(f"{ready.name} writes to a table, which is compared with its topic", "leave out --against")
        yield from audit_jdbc_sink(scene, ready)
