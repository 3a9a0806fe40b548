"""Brings back what an apply, a delete or an undo of connectors changed, from the journal and from what is true now.

Created connectors are deleted, changed configs and states set back, deleted connectors created again with their state. Connect
keeps the offsets of a deleted connector; those of the journal are set only if none are stored. An undo is a plan like any other:
it is shown, sent by `apply`, waited for and recorded, and can be undone. What something else changed since is refused.

The journal has no secrets. A literal secret that a connector still has is kept; another one must be given again. A mask is
never sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from playhead.config import Context
from playhead.config.secrets import SecretKeys, is_reference
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.journal import ApplyEntry, ApplyRecord, Book
from playhead.connectors.plan.check import KeyFinding, PluginKeys, Severity
from playhead.connectors.plan.make import observe, plan_connectors
from playhead.connectors.plan.model import NAME, Action, ConnectorsPlan, PlanRow, Running
from playhead.connectors.status import secret_keys
from playhead.errors import Invalid, Refused
from playhead.model import ConnectorSpec, Deadline
from playhead.model.connector import Origin, WantedState

FORCE_HINT = "add --force to overwrite it"
RENAME = "rename"
HANDOVER = "handover to "  # and the engine


@dataclass(frozen=True, slots=True)
class Given:
    """The secrets that the user gives again: `--set KEY=VALUE`, and the connectors of `-f FILE`."""

    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    specs: Sequence[ConnectorSpec] = field(default=(), repr=False)

    def find(self, name: str, key: str) -> str | None:
        found = next((spec.config.get(key) for spec in self.specs if spec.name.strip() == name), None)
        return self.keys.get(key, found)


@dataclass(slots=True)
class _Wish:
    """What undoing one entry needs. `spec` None: the connector is deleted. `faults`: why it may not be sent."""

    entry: ApplyEntry
    spec: ConnectorSpec | None = None
    faults: list[KeyFinding] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)


def find_newest(book: Book, cluster_id: str, urls: Sequence[str]) -> ApplyRecord:
    """The newest record that may have changed something on this cluster.

    Two clusters of workers may share one Kafka cluster, and one cluster has several addresses: a record that was sent to one of
    these addresses comes first.
    """
    here = (record for record in book.newest_first() if record.kafka_cluster_id == cluster_id)
    changed = [record for record in here if record.may_have_changed]
    if not changed:
        raise Invalid(
            f"the journal {book.folder} has no change of connectors on this cluster",
            "give an ID listed by `playhead connectors journal`",
        )
    return next((record for record in changed if set(record.urls) & set(urls)), changed[0])


def get_record(context: Context, record_id: str | None, deadline: Deadline) -> ApplyRecord:
    book = Book.of_context(context)
    if record_id not in (None, "last"):
        return book.get(record_id)
    with open_rest(context, deadline) as rest:
        cluster_id = rest.worker().kafka_cluster_id or ""
    return find_newest(book, cluster_id, context.connect_urls)


def plan_undo(
    context: Context, record: ApplyRecord, deadline: Deadline, given: Given = Given(), *, force: bool = False
) -> ConnectorsPlan:
    """The plan that leads back. A row that something else changed since, or whose secret is missing, is blocked."""
    if record.what == RENAME:
        old, new = (
            next(entry.name for entry in record.entries if entry.action == action)
            for action in (Action.DELETE, Action.CREATE)
        )
        raise Refused(f"{record.id} renamed {old}", f"rename it back: playhead connectors rename {new} {old}")
    if record.what.startswith(HANDOVER):
        back = "connect" if record.what.endswith("spark") else "spark"
        raise Refused(
            f"{record.id} was a {record.what}",
            f"playhead handover {' '.join(entry.name for entry in record.entries)} --to {back}",
        )
    names = {entry.name for entry in record.entries if entry.may_have_changed}
    with open_rest(context, deadline) as rest:
        cluster_id = rest.worker().kafka_cluster_id or ""
        if cluster_id != record.kafka_cluster_id:
            raise Refused(
                f"{record.id} changed the cluster {record.kafka_cluster_id} at {', '.join(record.urls)}; this is {cluster_id}",
                "name the right workers with --connect or --context",
            )
        now = observe(rest, names)
        judged = _judged(rest, record, now, given, force=force)
    notes = [words for words in judged if isinstance(words, str)]
    wishes = {wish.entry.name: wish for wish in judged if isinstance(wish, _Wish)}
    if not set(record.urls) & set(context.connect_urls):
        notes.append(
            f"{record.id} was sent to {', '.join(record.urls)}; check that this is the same cluster of workers"
        )
    specs = [wish.spec for wish in wishes.values() if wish.spec is not None]
    doomed = [name for name, wish in wishes.items() if wish.spec is None]
    plan = plan_connectors(context, specs, deadline, doomed=doomed)
    rows = tuple(_row(row, wishes[row.name], force=force) for row in plan.rows)
    return replace(plan, rows=rows, notes=(*plan.notes, *notes), undoes=record.id)


def _judged(
    rest: Rest, record: ApplyRecord, now: Mapping[str, Running], given: Given, *, force: bool
) -> list["_Wish | str"]:
    """For each entry what to do, or why there is nothing to do."""
    plugins = PluginKeys(rest)
    found: list[_Wish | str] = []
    for entry in record.entries:
        if not entry.may_have_changed:
            continue
        running = now.get(entry.name)
        # With its offsets deleted, a connector that still exists may lack them.
        if _is_as_before(record, entry, running) and not entry.deletes_offsets:
            found.append(f"{entry.name} is as it was before: nothing to undo there")
            continue
        wish = _Wish(entry)
        if (foreign := _foreign(record, entry, running)) and not force:
            wish.faults.append(_fault("", f"{foreign}; {FORCE_HINT}"))
        elif foreign:
            wish.effects.append(f"overwrites what was changed since: {foreign}")
        if entry.before.config is not None:
            _restore_config(wish, record, running, plugins, given)
        found.append(wish)
    return found


def _is_as_before(record: ApplyRecord, entry: ApplyEntry, now: Running | None) -> bool:
    if now is None or entry.before.config is None:
        return now is None and entry.before.config is None
    return now.state == entry.before.state and record.is_of(entry.before.hash, now.config)


def _foreign(record: ApplyRecord, entry: ApplyEntry, now: Running | None) -> str:
    """What is neither as before nor as that command left it. Empty if there is nothing such."""
    if now is None:
        return "" if entry.action == Action.DELETE else "it was deleted since"
    hashes = [one for one in (entry.before.hash, entry.after.hash) if one]
    if entry.action == Action.DELETE and entry.result == "changed":
        return "a connector of this name was created since"
    if not any(record.is_of(one, now.config) for one in hashes):
        return "its config was changed since"
    states = {entry.before.state, entry.after.state} - {None}
    if entry.result != "changed":  # it may have been left stopped on the way
        states.add(WantedState.STOPPED.value)
    if now.state.value not in states:
        return f"it is {now.state}, and was left {entry.after.state or entry.before.state}"
    return ""


def _restore_config(wish: _Wish, record: ApplyRecord, now: Running | None, plugins: PluginKeys, given: Given) -> None:
    """The config before, with the secrets that can be found. One that cannot is a fault."""
    entry = wish.entry
    config = dict(entry.before.config or {})
    secrets = secret_keys(plugins, config)
    kept = now.config if now is not None and _has_earlier_secrets(record, entry, now) else {}
    was_given = []
    for key in entry.masked:
        own = kept.get(key) if key not in entry.lost or record.is_of(entry.before.hash, kept) else None
        value = own if own is not None else given.find(entry.name, key)
        if value is None or secrets.is_masked(key, value):
            what = (
                "was a literal secret, which the journal does not keep: give it again with --set "
                f"{key}=VALUE, or with -f and the file of the connector"
            )
            wish.faults.append(_fault(key, what))
            continue
        if own is None:
            _check_given(wish, key, value, config[key], secrets)
            was_given.append(key)
        config[key] = value
    if was_given and not wish.faults and not record.is_of(entry.before.hash, config):
        wish.effects.append(f"{', '.join(was_given)} as given, which is not as it was")
    state = WantedState(entry.before.state) if entry.before.state else None
    wish.spec = ConnectorSpec(entry.name, config, state=state, origin=Origin(f"journal {record.id}"))


def _has_earlier_secrets(record: ApplyRecord, entry: ApplyEntry, now: Running) -> bool:
    """Whether the connector is as it was left, or as before: then it has every secret that was not lost."""
    left = entry.after.hash or entry.before.hash
    return record.is_of(left, now.config) or record.is_of(entry.before.hash, now.config)


def _check_given(wish: _Wish, key: str, value: str, masked: str, secrets: SecretKeys) -> None:
    """A value that differs in more than its secret, like another database in a URL, is not what was there."""
    if secrets.masked(key, value) != masked and not is_reference(value):
        wish.effects.append(f"{key} was {masked}, and is {secrets.masked(key, value)} as given")


def _fault(key: str, what: str) -> KeyFinding:
    return KeyFinding(Severity.ERROR, key, what, refuses=True)


def _row(row: PlanRow, wish: _Wish, *, force: bool) -> PlanRow:
    """The row of the plan with what the journal adds: offsets, effects, and faults in place of those about masks."""
    entry = wish.entry
    named = {fault.key for fault in wish.faults}
    # Deletions come first, so the other name of a connector is gone when it is created: no rename is to be suggested.
    found = [finding for finding in row.findings if finding.key != NAME]
    findings = (*wish.faults, *(finding for finding in found if not finding.refuses or finding.key not in named))
    effects = [effect for effect in row.effects if effect != "not undoable: secret" or row.action is not Action.DELETE]
    if row.action is Action.DELETE:
        effects = ["it was created by that command; its offsets are kept", *(e for e in effects if "kept" not in e)]
    offsets = tuple(one for one in entry.before.offsets or () if one.offset is not None)
    restores = offsets if row.action is Action.CREATE or _is_stopped_without_offsets(row, entry) else ()
    if restores:
        action = Action.STATE if row.action is Action.SAME else row.action
        when = "set to" if force else "if none are stored, set to"
        effects.append(
            f"{'created ' if row.running is None else ''}stopped; {when} its {len(restores)} offset(s) of the journal"
        )
        row = replace(row, action=action, restores=restores, overwrites=force)
    elif row.action is Action.CREATE and entry.before.unread:
        effects.append(f"its offsets are not in the journal: {entry.before.unread}")
    return replace(row, effects=(*effects, *wish.effects), findings=findings)


def _is_stopped_without_offsets(row: PlanRow, entry: ApplyEntry) -> bool:
    """A delete with offsets was interrupted between the offsets and the connector."""
    is_stopped = row.running is not None and row.running.state is WantedState.STOPPED
    return is_stopped and entry.deletes_offsets and row.action in (Action.STATE, Action.SAME)
