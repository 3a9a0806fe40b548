"""What an apply of connector files would do: per connector every key that changes, the state, the effect, the faults.

A plan holds the configs in clear, because they are sent later. `to_row`, `repr` and the text view mask the secrets. The
worker adds `name` to every config and trims values when it reads them: neither counts as a difference. A secret is compared,
but the change shows it masked. If the server returns a mask in place of a secret, whether it differs is unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hmac import compare_digest
from typing import Any

from playhead.config.scrub import Scrub
from playhead.config.secrets import SecretKeys
from playhead.connect.answers import ConnectorStatus, OffsetEntry
from playhead.connectors.plan.check import Allowed, KeyFinding, Severity
from playhead.errors import Invalid, PlayheadError, Unreachable
from playhead.model.connector import ConnectorSpec, WantedState

NAME = "name"


class KeyChangeKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    UNKNOWN = "unknown"  # the server masks what it has


@dataclass(frozen=True, slots=True)
class KeyChange:
    """`before` and `after` are masked. `is_secret`: a literal secret on either side. `loses_secret`: one on the left side."""

    key: str
    kind: KeyChangeKind
    before: str | None
    after: str | None
    is_secret: bool = False
    loses_secret: bool = False
    origin: str = ""

    @property
    def words(self) -> str:
        """The change of the value as text."""
        if self.kind is KeyChangeKind.UNKNOWN:
            return "unknown (masked by the server)"
        if self.is_secret and (self.before == self.after or None in (self.before, self.after)):
            return f"{self.kind} (secret)" if self.kind is not KeyChangeKind.ADDED else f"{self.after} (secret)"
        if self.kind is KeyChangeKind.CHANGED:
            return f"{self.before} -> {self.after}"
        return self.after or ""


def normalised(config: Mapping[str, str | None]) -> dict[str, str]:
    """Without the name that the worker adds, and without keys that have no value."""
    return {key: value for key, value in config.items() if value is not None and key != NAME}


def diff_config(
    running: Mapping[str, str], wanted: Mapping[str, str], keys: SecretKeys, origins: Mapping[str, str] | None = None
) -> list[KeyChange]:
    """In the order of the wanted config; what is only in the running one comes last."""
    places = origins or {}
    changes = []
    for key, value in wanted.items():
        before = running.get(key)
        if before is None or not same_value(before, value):
            changes.append(_change(key, before, value, keys, places.get(key, "")))
    removed = [key for key in running if key not in wanted]
    return changes + [_change(key, running[key], None, keys, "") for key in sorted(removed)]


def same_value(left: str, right: str) -> bool:
    return compare_digest(left.strip().encode("utf-8", "surrogatepass"), right.strip().encode("utf-8", "surrogatepass"))


def _change(key: str, before: str | None, after: str | None, keys: SecretKeys, origin: str) -> KeyChange:
    had = before is not None and keys.has_literal(key, before)
    gets = after is not None and keys.has_literal(key, after)
    shown = (
        None if before is None else keys.masked(key, before),
        None if after is None else keys.masked(key, after),
    )
    if before is not None and after is not None and keys.is_masked(key, before):
        return KeyChange(key, KeyChangeKind.UNKNOWN, *shown, is_secret=True, loses_secret=True, origin=origin)
    kind = KeyChangeKind.ADDED if before is None else KeyChangeKind.REMOVED if after is None else KeyChangeKind.CHANGED
    return KeyChange(key, kind, *shown, is_secret=had or gets, loses_secret=had, origin=origin)


class Action(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    STATE = "state only"
    DELETE = "delete"
    SAME = "same"
    LEAVE = "leave to spark"


IDLE = (Action.SAME, Action.LEAVE)


@dataclass(frozen=True, slots=True)
class Running:
    """A connector as the worker has it. `state` is the requested state; for a failed one it is running."""

    name: str
    config: Mapping[str, str] = field(repr=False)
    state: WantedState
    status: ConnectorStatus | None = field(default=None, repr=False)

    @property
    def is_failed(self) -> bool:
        states = [self.status.connector.state, *(task.state for task in self.status.tasks)] if self.status else []
        return "FAILED" in states


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One connector. `wanted` is None for a deletion, `running` is None for a new connector.

    `restores`: offsets of an earlier connector of this name, which are set if none are stored; with `overwrites` in any case.
    """

    name: str
    action: Action
    wanted: ConnectorSpec | None = field(default=None, repr=False)
    running: Running | None = None
    changes: tuple[KeyChange, ...] = ()
    state: WantedState | None = None
    effects: tuple[str, ...] = ()
    findings: tuple[KeyFinding, ...] = ()
    secrets: SecretKeys = field(default_factory=SecretKeys, repr=False)
    restores: tuple[OffsetEntry, ...] = field(default=(), repr=False)
    overwrites: bool = False

    @property
    def changes_state(self) -> bool:
        """For an existing connector: another state is requested."""
        return self.running is not None and self.state not in (None, self.running.state)

    @property
    def connector_class(self) -> str:
        part = self.wanted or self.running
        return part.config.get("connector.class", "") if part else ""

    @property
    def blocked_by(self) -> KeyFinding | None:
        """The finding that blocks this row. A validation error blocks only a config: any connector can be stopped.

        What is wrong comes before what could not be asked.
        """
        sends = self.action in (Action.CREATE, Action.UPDATE)
        blocking = [f for f in self.findings if f.level is Severity.ERROR and (sends or f.refuses)]
        return min(blocking, key=lambda finding: finding.is_unasked, default=None)

    @property
    def is_undoable(self) -> bool:
        return not any(change.loses_secret and change.kind is not KeyChangeKind.UNKNOWN for change in self.changes)

    @property
    def scrub(self) -> Scrub:
        configs = [part.config for part in (self.wanted, self.running) if part is not None]
        return Scrub({text for config in configs for text in self.secrets.literals(config)})

    def to_row(self) -> dict[str, Any]:
        """Everything, masked, for programs."""
        return {
            "name": self.name,
            "action": self.action.value,
            "engine": self.wanted.engine.value if self.wanted else None,
            "connector_class": self.connector_class,
            "state": {
                "before": self.running.state.value if self.running else None,
                "after": self.state.value if self.state else None,
            },
            "changes": [_change_row(change) for change in self.changes],
            "effects": list(self.effects),
            "findings": [finding_row(finding) for finding in self.findings],
            "undoable": self.is_undoable,
            "origin": str(self.wanted.origin) if self.wanted else "",
        }


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster of a plan. Its Kafka cluster id identifies it: the addresses can be spelled in several ways."""

    kafka_cluster_id: str
    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectorsPlan:
    """`allowed`: what would block a connector, and was accepted. `undoes`: the record of the journal that it rolls back;
    deletions then come first: no two connectors may read the same."""

    cluster: ClusterState
    rows: tuple[PlanRow, ...]
    notes: tuple[str, ...] = ()
    allowed: Allowed = field(default_factory=Allowed)
    undoes: str = ""

    @property
    def is_empty(self) -> bool:
        return all(row.action in IDLE for row in self.rows)

    @property
    def is_clean(self) -> bool:
        """Nothing to do and nothing wrong."""
        return self.is_empty and all(worst_level(row.findings) is not Severity.ERROR for row in self.rows)

    @property
    def exit_code(self) -> int:
        """Of `plan`. 0: nothing to do, nothing wrong. 1: it differs. 2: it cannot be applied. 3: a part could not be asked."""
        blocking = [row.blocked_by for row in self.rows if row.blocked_by]
        if any(not finding.is_unasked for finding in blocking):
            return Invalid.exit_code
        errors = [finding for row in self.rows for finding in row.findings if finding.level is Severity.ERROR]
        if any(finding.is_unasked for finding in errors):
            return Unreachable.exit_code
        return 0 if self.is_clean else PlayheadError.exit_code

    def count(self, action: Action) -> int:
        return sum(row.action is action for row in self.rows)

    @property
    def summary(self) -> str:
        counted = {action: self.count(action) for action in Action}
        counts = ", ".join(f"{count} {action.value}" for action, count in counted.items() if count)
        faulty = sum(row.blocked_by is not None for row in self.rows)
        return (counts or "no connector") + (f"; {faulty} cannot be applied" if faulty else "")

    def __repr__(self) -> str:
        from playhead.connectors.plan.text import plan_text

        return plan_text(self) + "\n".join([self.summary, *(f"note: {note}" for note in self.notes)])


def _change_row(change: KeyChange) -> dict[str, Any]:
    return {
        "key": change.key,
        "change": change.kind.value,
        "before": change.before,
        "after": change.after,
        "secret": change.is_secret,
        "origin": change.origin,
    }


def finding_row(finding: KeyFinding) -> dict[str, Any]:
    return {"level": finding.level.value, "key": finding.key, "what": finding.what, "origin": finding.origin}


def worst_level(findings: Sequence[KeyFinding]) -> Severity | None:
    return next((level for level in Severity if any(finding.level is level for finding in findings)), None)
