"""The plan of a hand-over: both sides as they are now, what would be done, and what speaks against it. Nothing is changed.

Whatever the other engine does not honour is found here, before anything is stopped: for Spark by its own check of the config, for
Connect by the worker's validation.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from playhead.config import Context
from playhead.config.secrets import masked_config
from playhead.connect.keys import OWN_TOPIC
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.files.engine import plan_engines
from playhead.connectors.files.read import topics_of
from playhead.connectors.journal import ApplyEntry, ApplyRecord, Book
from playhead.connectors.names import find_names
from playhead.connectors.plan.check import KeyFinding, PluginKeys, Severity, check_specs
from playhead.connectors.plan.make import observe
from playhead.connectors.plan.model import ClusterState, Running, diff_config, normalised
from playhead.connectors.status import secret_keys
from playhead.connectors.undo import HANDOVER
from playhead.errors import Invalid, PlayheadError, Refused
from playhead.handover.horizon import find_held_back
from playhead.handover.model import ACCEPTED, Handover, HandoverOptions, HandoverPlan, as_fault
from playhead.handover.sinks import open_side, refused_claims
from playhead.handover.sources import PositionsOnce
from playhead.kafka.client import Admin
from playhead.kafka.groups import Commits, list_committed_of, list_groups
from playhead.ledger.model import SILENT_SECONDS, Host, Run
from playhead.ledger.runs import Ledger, open_context_ledger
from playhead.model import ConnectorSpec, Deadline, Engine, Result
from playhead.model.connector import WantedState
from playhead.model.host import is_process
from playhead.offsets.plugins import use_plugins
from playhead.offsets.workers import ConfiguredConnector
from playhead.pipeline.classes import ConnectorKind
from playhead.pipeline.connect_home import ConnectHome, find_home
from playhead.pipeline.run import check_place
from playhead.pipeline.spec import Ready, sort_specs

_OPEN = (None, Result.UNKNOWN.value)
MOST_NAMED = 4
ISOLATION = "isolation.level"
GROUP = "consumer.override.group.id"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asks for. `specs`: of the files, whose names are `files`. Of an undo: `states`, those before, and `absent`,
    the names that Connect did not have."""

    to: Engine
    specs: Sequence[ConnectorSpec] = field(default=(), repr=False)
    files: Sequence[str] = ()
    options: HandoverOptions = field(default_factory=HandoverOptions)
    states: Mapping[str, WantedState] = field(default_factory=dict)
    absent: Collection[str] = ()
    undoes: str = ""


def plan_handover(context: Context, words: Sequence[str], wanted: Wanted, deadline: Deadline) -> HandoverPlan:
    use_plugins(context)
    home = find_home(context, deadline)
    specs = {spec.name.strip(): spec for spec in wanted.specs}
    with open_rest(context, deadline) as rest, open_context_ledger(context, deadline.remaining()) as ledger:
        cluster = ClusterState(rest.worker().kafka_cluster_id or "", tuple(context.connect_urls))
        if cluster.kafka_cluster_id not in ("", home.cluster_id):
            raise Refused(
                f"the worker belongs to the Kafka cluster {cluster.kafka_cluster_id}, and the worker file to {home.cluster_id}",
                "name worker and worker file of one cluster: --connect, --worker-config",
            )
        known, runs = observe(rest), _list_runs(ledger, home.cluster_id)
        names = _find_names(words, {*known, *specs}, runs)
        last = _last_handovers(Book.of_context(context), cluster, names, wanted.to)
        asked = _Asked(home, names)
        maker = _Maker(wanted, home, rest, ledger, PluginKeys(rest), known, asked, context.timeout_seconds)
        rows = [maker.row(name, specs.get(name), known.get(name), runs.get(name), last.get(name)) for name in names]
    edits = plan_engines(wanted.specs, {row.name: wanted.to for row in rows if not row.blocked_by})
    return HandoverPlan(
        wanted.to,
        cluster,
        home,
        tuple(rows),
        tuple(wanted.specs),
        tuple(edits),
        tuple(wanted.files),
        tuple(_notes(wanted, rows)),
        _same_record(last, rows),
        wanted.undoes,
    )


def _notes(wanted: Wanted, rows: Sequence[Handover]) -> list[str]:
    notes = []
    missing = [row.name for row in rows if row.name not in {spec.name.strip() for spec in wanted.specs}]
    if wanted.files and missing:
        what = "engine: is edited for the others only" if len(missing) < len(rows) else "no file is edited"
        notes.append(f"no file has {', '.join(missing)}: {what}")
    if not wanted.files:
        notes.append(f"without -f FILE no file is edited: write engine: {wanted.to} into it, if there is one")
    return notes


def _list_runs(ledger: Ledger, cluster: str) -> dict[str, Run]:
    """A copy of a topic is no connector."""
    return {run.pipeline: run for run in ledger.list_runs() if run.cluster == cluster and not run.is_copy}


def _find_names(words: Sequence[str], known: Collection[str], runs: Mapping[str, Run]) -> list[str]:
    """`known`: to Connect, or in a file. A pattern does not match a run that was forgotten."""
    listed = {name for name, run in runs.items() if run.forgotten_by is None or name in words}
    return find_names(words, {*known, *listed})


_Last = tuple[ApplyRecord, ApplyEntry]


def _last_handovers(book: Book, cluster: ClusterState, names: Sequence[str], to: Engine) -> dict[str, _Last]:
    """By name the newest hand-over of it in the journal of this machine, if it went to the same engine."""
    left, found = set(names), {}
    for record in book.newest_first():
        if not left:
            break
        if not record.what.startswith(HANDOVER) or record.kafka_cluster_id != cluster.kafka_cluster_id:
            continue
        for entry in record.entries:
            if entry.name in left:
                left.discard(entry.name)
                if record.what == f"{HANDOVER}{to}":
                    found[entry.name] = (record, entry)
    return found


def _same_record(last: Mapping[str, _Last], rows: Sequence[Handover]) -> ApplyRecord | None:
    """The record to continue, if it was not ended, nothing was handed over the other way since, and it has all that is to be done
    and nothing else than these connectors."""
    by_id = {last[row.name][0].id: last[row.name][0] for row in rows if row.is_unfinished and row.name in last}
    if len(by_id) != 1:
        return None
    [record] = by_id.values()
    entries = {entry.name for entry in record.entries}
    todo = {row.name for row in rows if not row.idle and not row.blocked_by}
    is_last = all(name in last and last[name][0].id == record.id for name in entries)
    is_same = todo <= entries <= {row.name for row in rows}
    return record if record.finished is None and is_last and is_same else None


class _Asked:
    """What is read once for all connectors of a plan."""

    def __init__(self, home: ConnectHome, names: Sequence[str]) -> None:
        self._home = home
        self.positions = PositionsOnce(home, names)
        self._commits: Mapping[str, Commits] | None = None

    def commits(self, deadline: Deadline) -> Mapping[str, Commits]:
        """Of every group."""
        if self._commits is None:
            with Admin(self._home.settings, deadline) as admin:
                names = [group.name for group in list_groups(admin, deadline)]
                self._commits = list_committed_of(admin, names, deadline)
        return self._commits


@dataclass(frozen=True, slots=True)
class _Maker:
    wanted: Wanted
    home: ConnectHome
    rest: Rest
    ledger: Ledger
    plugins: PluginKeys
    known: Mapping[str, Running]
    asked: _Asked
    seconds: float

    @property
    def deadline(self) -> Deadline:
        """For one question: many connectors do not share the time of one."""
        return Deadline(self.seconds)

    def row(
        self, name: str, spec: ConnectorSpec | None, running: Running | None, run: Run | None, last: _Last | None
    ) -> Handover:
        to, entry = self.wanted.to, last[1] if last else None
        is_open = entry is not None and entry.result in _OPEN
        was = running.state if running else None
        if is_open and entry and entry.before.state:
            was = WantedState(entry.before.state)
        config = spec or _spec_of(name, running, run)
        state = self.wanted.states.get(name) or (spec.state if spec else None) or WantedState.RUNNING
        secrets = secret_keys(self.plugins, config.config)
        row = Handover(
            name,
            to,
            config,
            running,
            run,
            state,
            was,
            secrets=secrets,
            is_unfinished=is_open or (to is Engine.CONNECT and run is not None and run.is_half_given),
            is_placed=self._is_placed(run, is_open=is_open),
            is_accepted=is_open and entry is not None and ACCEPTED in entry.steps,
        )
        if running is not None and spec is not None and not self._keeps_config(row):
            changes = diff_config(running.config, normalised(spec.config), secrets)
            row = replace(row, changes=tuple(changes))
        if idle := self._idle(row):
            return replace(row, idle=idle, down=_down(row))
        try:
            with self.rest.within(self.deadline):
                return self._to_spark(row) if to is Engine.SPARK else self._to_connect(row)
        except OSError as error:  # a file of this connector: the others go on
            return replace(row, findings=(_unasked(as_fault(error)),))

    def _is_placed(self, run: Run | None, *, is_open: bool) -> bool:
        """Connect has the position: a hand-over put it there, or Spark never owned what is given back."""
        if self.wanted.to is not Engine.CONNECT or not (is_open or self.wanted.undoes):
            return False
        if run is None or (run.owner is None and not run.is_alive):
            return bool(self.wanted.undoes)
        return run.is_with_connect

    def _idle(self, row: Handover) -> str:
        """Why there is nothing to do; empty if there is."""
        is_alive = row.run is not None and row.run.is_alive
        if row.to is Engine.SPARK:
            goes_on = "; it goes on" if self.wanted.undoes and is_alive else ""
            is_there = row.is_stopped and (row.owner is Engine.SPARK or is_alive)
            return f"it belongs to Spark already{goes_on}" if is_there else ""
        if row.name in self.wanted.absent and row.running is None:
            return (
                f"Connect did not have it before: it stays with Spark; playhead runs forget {row.name} lists it no more"
            )
        if is_alive or row.owner is Engine.SPARK:
            return ""
        is_as_user_left_it = row.is_stopped if row.is_accepted else row.owner is None and not row.is_stopped
        if row.is_unfinished and not is_as_user_left_it:
            return ""
        if self.wanted.undoes:
            is_as_before = row.running is not None and row.running.state is row.state
            return f"it belongs to Connect already, and is {row.state}" if is_as_before else ""
        return _with_connect(row)

    def _to_spark(self, row: Handover) -> Handover:
        findings, ready = self._on_spark(row)
        findings += _other_command(row)
        if row.run is not None and row.run.is_alive:
            what = f"Connect and a run on Spark both have it: run {row.run.epoch} is {row.run.words}, by {row.run.host}"
            findings.append(_refusal(what, f"playhead runs stop {row.name} --execute"))
        if row.changes:
            keys = ", ".join(change.key for change in row.changes[:MOST_NAMED])
            what = f"the file differs from what Connect has ({keys}): on Spark the file counts"
            findings.append(KeyFinding(Severity.WARNING, "", what))
        if row.running is not None:
            findings += self._elsewhere(row, row.running.config, "Connect")
        repeats = self._may_repeat(row)
        if repeats and not self.wanted.options.accept_repeats:
            findings.append(_refusal(repeats, "--accept-repeats goes on"))
        return self._complete(replace(row, findings=tuple(findings)), ready)

    def _on_spark(self, row: Handover) -> tuple[list[KeyFinding], Ready | None]:
        found = sort_specs([row.spec], self.home.worker)
        if row.name in found.refused:
            return [KeyFinding(Severity.ERROR, "", fault.what) for fault in found.refused[row.name].faults], None
        [ready] = found.ready
        try:
            check_place(ready, self.home)
        except PlayheadError as error:
            return [_refusal(error.what, error.hint or "")], ready
        return [], ready

    def _may_repeat(self, row: Handover) -> str:
        """Of a worker without exactly-once support, whose task did not save its position when it ended."""
        if self.home.exactly_once or row.is_sink or row.running is None or not row.running.is_failed:
            return ""
        return (
            "a task of it has failed, and a worker without exactly-once support may have sent rows after its position"
        )

    def _to_connect(self, row: Handover) -> Handover:
        spec = replace(row.spec, engine=Engine.CONNECT)
        checks = {} if self._keeps_config(row) else check_specs(self.rest, [spec], self.plugins)
        findings = [finding for one in checks.values() for finding in one.findings]
        checked, ready = self._on_spark(row)  # its positions are found by the rules of Spark
        findings += [] if ready is not None else checked
        findings += _other_command(row)
        if row.running is not None and row.running.state is not WantedState.STOPPED and not row.is_placed:
            what = f"Connect has it already: it is {row.in_connect}, and {_whose(row)}"
            hint = f"playhead connectors stop {row.name} --execute, then give the same command again"
            findings.append(_refusal(what, hint))
        if row.run is not None and row.run.config:
            findings += self._elsewhere(row, row.run.config, f"run {row.run.epoch} on Spark")
            findings += self._unlike_run(row, row.run)
        return self._complete(replace(row, findings=tuple(findings)), ready)

    def _elsewhere(self, row: Handover, there: Mapping[str, str], whose: str) -> list[KeyFinding]:
        """The position is in the group, or in the offsets topic, of the config that ran last."""
        key = GROUP if row.is_sink else OWN_TOPIC
        default = f"connect-{row.name}" if row.is_sink else self.home.topic
        new, old = (config.get(key, "").strip() or default for config in (row.spec.config, there))
        if new == old:
            return []
        what = f"{key} is {new}, and {whose} has its position in {old}"
        return [_refusal(what, "hand it over with the same value, then change it")]

    def _unlike_run(self, row: Handover, run: Run) -> list[KeyFinding]:
        """Without a file the config that Connect has counts, and a run may have had a file."""
        if row.running is None or row.name in {spec.name.strip() for spec in self.wanted.specs}:
            return []
        mine, ran = masked_config(row.running.config, {"query.masked"}), normalised(run.config)
        keys = sorted(key for key in {*mine, *ran} - {"name"} if mine.get(key) != ran.get(key))
        if not keys:
            return []
        more = "" if len(keys) <= MOST_NAMED else f" and {len(keys) - MOST_NAMED} more"
        what = f"run {run.epoch} on Spark had another config ({', '.join(keys[:MOST_NAMED])}{more}): that of Connect counts"
        return [KeyFinding(Severity.WARNING, "", f"{what}; with -f FILE that of the file")]

    def _keeps_config(self, row: Handover) -> bool:
        """A hand-over to Spark leaves the config that Connect has alone, and so does its undo."""
        return bool(self.wanted.undoes) and row.to is Engine.CONNECT and row.running is not None

    def _complete(self, row: Handover, ready: Ready | None) -> Handover:
        """Adds what needs the brokers and the ledger."""
        if ready is None:
            return row
        row = replace(row, promises=tuple(_promises(row, ready, self.home)), steps=tuple(_steps(row, ready, self.home)))
        try:
            row = self._with_sink(row, ready) if row.is_sink else self._with_source(row, ready)
        except PlayheadError as error:
            if isinstance(error, Invalid | Refused):
                return replace(row, findings=(*row.findings, _refusal(error.what, error.hint or "")))
            return replace(row, findings=(*row.findings, _unasked(error)))  # its own database: the others go on
        return row

    def _with_source(self, row: Handover, ready: Ready) -> Handover:
        stored = self.asked.positions.of(row.name, ready.config, self.deadline)
        words = [f"{partition.to_json()} {offset.to_json()}" for partition, offset in stored.items()]
        findings = row.findings
        if row.to is Engine.CONNECT and ready.kind is ConnectorKind.JDBC_SOURCE:
            held = find_held_back(ready, self.deadline)
            if held.writers:
                seconds = self.wanted.options.wait.wait_seconds
                what = f"open transactions hold rows back, which Connect would skip: {held.writers}; waited for ({seconds:g} s)"
                findings = (*findings, KeyFinding(Severity.WARNING, "", what))
            if held.unknown:
                what = f"whether open transactions hold rows back, which Connect would skip, is unknown: {held.unknown}"
                findings = (*findings, KeyFinding(Severity.WARNING, "", what))
        return replace(
            row, positions=words, consumers=self._consumers(topics_of(ready.config)[1], row), findings=findings
        )

    def _with_sink(self, row: Handover, ready: Ready) -> Handover:
        with open_side(self.home, ready, self.ledger, self.seconds) as side:
            with Admin(self.home.settings, self.deadline) as admin:
                commits = side.commits(admin, self.deadline)
                if row.to is Engine.SPARK and not self.wanted.options.accept_repeats:
                    side.check_known(admin, commits, self.deadline)
                if row.to is Engine.CONNECT:
                    side.present(admin, self.deadline)
            words = [f"{place}: group {at.offset}" for place, at in sorted(commits.items())]
            if row.run is not None:
                words += [f"{log.place}: ledger {at.next_offset}" for log, at in sorted(side.positions().items())]
                claims = side.open_claims()
                if row.to is Engine.CONNECT and claims and ready.kind is ConnectorKind.FILES_SINK:
                    row = self._with_claims(row, refused_claims(row.name, claims))
        return replace(row, positions=words)

    def _with_claims(self, row: Handover, refused: Refused) -> Handover:
        if self.wanted.options.accept_repeats or (row.run is not None and row.run.is_alive):
            return replace(row, promises=(*row.promises, refused.what))
        return replace(row, findings=(*row.findings, _refusal(refused.what, refused.hint or "")))

    def _consumers(self, topics: Sequence[str], row: Handover) -> list[str]:
        """The groups that read the topics of a source, and what changes for them."""
        if not topics:
            return ["unknown: its config does not name its topics"]
        try:
            commits = self.asked.commits(self.deadline)
        except PlayheadError as error:
            return [f"which groups read {', '.join(topics)} is unknown: {error.what}"]
        groups = {name for name, found in commits.items() if any(place.topic in topics for place in found)}
        careful = groups & self._read_committed()
        words = [f"{', '.join(sorted(careful))}: of transactions it reads committed ones only"] if careful else []
        if left := sorted(groups - careful):
            words.append(f"{', '.join(left)}: {_seen_by_consumers(row.to, self.home)}")
        return words or [f"no group: {_seen_by_consumers(row.to, self.home)}"]

    def _read_committed(self) -> set[str]:
        """The groups of sinks in Connect which are known to do so. Of other consumers it is not known."""
        found = set()
        for name, running in self.known.items():
            sink, own = (
                ConfiguredConnector.of(name, running.config),
                running.config.get(f"consumer.override.{ISOLATION}"),
            )
            if sink.is_sink and (own or self.home.worker.get(f"consumer.{ISOLATION}")) == "read_committed":
                found.add(sink.group)
        return found


def _seen_by_consumers(to: Engine, home: ConnectHome) -> str:
    if to is Engine.SPARK or home.exactly_once:
        return (
            "records come in transactions; without isolation.level=read_committed those of aborted ones are read, too"
        )
    return "records come without transactions; what a killed task had not saved is sent again"


def _spec_of(name: str, running: Running | None, run: Run | None) -> ConnectorSpec:
    """Without a file: the config that Connect has, else that of the newest run, whose secrets are masked."""
    config = running.config if running is not None else run.config if run is not None else {}
    return ConnectorSpec(name, {key: value for key, value in config.items() if key != "name"})


def _with_connect(row: Handover) -> str:
    """Of a connector that no run has: why Connect is not to get it; empty if it ran on Spark and Connect has it stopped, or not
    at all."""
    is_connect = row.owner is Engine.CONNECT
    if row.running is not None and row.running.state is not WantedState.STOPPED:
        return "it belongs to Connect already"
    if row.running is None and is_connect:
        return "it belongs to Connect already, which does not have it any more: playhead connectors apply creates it"
    has_no_run = row.run is None and row.spec.engine is not Engine.SPARK
    if row.running is None:
        return "neither engine has it: playhead connectors apply" if has_no_run else ""
    if is_connect or has_no_run:
        return f"it belongs to Connect already, and is stopped there: playhead connectors resume {row.name}"
    return ""


def _other_command(row: Handover) -> list[KeyFinding]:
    """Another process, which may live, gives it to Connect now."""
    run, here = row.run, Host.here()
    if run is None or not run.is_half_given:
        return []
    if run.host.name == here.name:
        may_live = run.host.pid != here.pid and is_process(run.host.pid)
    else:
        may_live = run.silent_seconds <= SILENT_SECONDS
    what = f"another command is giving it to Connect: {run.host}, since {run.silent_seconds:.0f} s"
    return [_refusal(what, "wait until it has ended, then give the same command again")] if may_live else []


def _whose(row: Handover) -> str:
    if row.owner is not Engine.CONNECT:
        return "it belongs to Spark"
    is_half_given = row.run is not None and row.run.is_half_given
    return "its position is not in place" if is_half_given else f"it was {row.state} before"


def _down(row: Handover) -> str:
    """Why a connector that belongs to Connect does not run there; empty if it does."""
    if row.to is not Engine.CONNECT or row.running is None or not row.running.is_failed:
        return ""
    return f"it belongs to Connect, and does not run there: {row.in_connect}; playhead connectors show {row.name} has the cause"


def _promises(row: Handover, ready: Ready, home: ConnectHome) -> list[str]:
    """What is exact, and what cannot be promised."""
    words = []
    if ready.config.get("mode") == "bulk":
        words.append("bulk has no position: the other engine begins the table anew")
    if row.is_sink:
        words.append("Connect delivers at least once: after a clean stop no record is delivered twice")
    elif home.exactly_once:
        words.append("the workers have exactly-once support: every record once, also after a kill")
    elif row.to is Engine.SPARK:
        words.append(
            "the workers have no exactly-once support: exact after a clean stop; after a killed task some records come twice"
        )
    else:
        words.append("the workers have no exactly-once support: from now on a killed task sends some records twice")
    if row.to is Engine.CONNECT and ready.kind is ConnectorKind.JDBC_SOURCE:
        words.append("Connect does not wait for open transactions: rows that are committed out of order may be skipped")
    return words


def _steps(row: Handover, ready: Ready, home: ConnectHome) -> list[str]:
    fence = (
        f"wait until group {ready.config.get(GROUP) or f'connect-{row.name}'} is empty"
        if row.is_sink
        else f"fence the transactional ids {home.transactional_id(row.name, 0)} and up"
    )
    if row.to is Engine.SPARK:
        first = f"stop it in Connect ({row.in_connect}) and wait until no task is left; its config stays there"
        if row.is_stopped:
            first = (
                "it is not in Connect" if row.running is None else "it is stopped in Connect; its config stays there"
            )
        ledger = "set the ledger to the position of the group" if row.is_sink else "read its position"
        return [first, fence, ledger, "record in the ledger that it belongs to Spark; start it with playhead run"]
    run = row.run
    first = f"stop run {run.epoch} ({run.words}) after its open step" if run and run.is_running else "no run is alive"
    put = "create it stopped" if row.running is None else "send its new config" if row.changes else "its config stays"
    position = "commit the ledger's position to the group" if row.is_sink else "write its position once more"
    steps = [first, "record in the ledger that it belongs to Connect: no run claims it any more", fence]
    steps += [position] if row.is_sink or not home.exactly_once else []
    steps.append(f"{put}; check that the worker shows the position that Spark committed")
    return [*steps, f"{_verb(row.state)}, and wait until it runs and its position moves or is at the end"]


def _verb(state: WantedState) -> str:
    return {WantedState.RUNNING: "resume it", WantedState.PAUSED: "pause it"}.get(state, "leave it stopped")


def _refusal(what: str, hint: str) -> KeyFinding:
    return KeyFinding(Severity.ERROR, "", _sentence(what, hint), refuses=True)


def _unasked(error: PlayheadError) -> KeyFinding:
    return KeyFinding(Severity.ERROR, "", _sentence(error.what, error.hint), is_unasked=True)


def _sentence(what: str, hint: str | None) -> str:
    return f"{what}; {hint}" if hint else what
