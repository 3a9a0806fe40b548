"""What an apply of connector files would do: per connector every key that changes, the state, the effect, the faults.

A plan is a value. It holds the configs in clear, because they are to be sent, and shows them masked: `to_row`, `repr` and the
text view have no secret in them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from playhead.connect.answers import ConnectorStatus
from playhead.connectors.diff import KeyChange, Kind
from playhead.connectors.lint import Finding, Level
from playhead.connectors.secrets import Scrub, SecretKeys
from playhead.model.connector import ConnectorSpec, WantedState


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
    """A connector as the worker has it. `state` is the one it is told to be in; a failed one is told to run."""

    name: str
    config: Mapping[str, str] = field(repr=False)
    state: WantedState
    status: ConnectorStatus | None = field(default=None, repr=False)

    @property
    def is_failed(self) -> bool:
        states = [self.status.connector.state, *(task.state for task in self.status.tasks)] if self.status else []
        return "FAILED" in states


@dataclass(frozen=True, slots=True)
class Row:
    """One connector. `wanted` is None for one that is deleted, `running` for one that is not there yet."""

    name: str
    action: Action
    wanted: ConnectorSpec | None = field(default=None, repr=False)
    running: Running | None = None
    changes: tuple[KeyChange, ...] = ()
    state: WantedState | None = None
    effects: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    secrets: SecretKeys = field(default_factory=SecretKeys, repr=False)

    @property
    def changes_state(self) -> bool:
        """For one that exists: it is told another state."""
        return self.running is not None and self.state not in (None, self.running.state)

    @property
    def connector_class(self) -> str:
        part = self.wanted or self.running
        return part.config.get("connector.class", "") if part else ""

    @property
    def blocked_by(self) -> Finding | None:
        """Why nothing may be sent. What the worker objects to is in the way of a config only: anything can be stopped."""
        sends = self.action in (Action.CREATE, Action.UPDATE)
        return next((f for f in self.findings if f.level is Level.ERROR and (sends or f.refuses)), None)

    @property
    def is_undoable(self) -> bool:
        return not any(change.loses_secret and change.kind is not Kind.UNKNOWN for change in self.changes)

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
class Cluster:
    """Which cluster a plan is for. The id is that of its Kafka; the addresses may be written in several ways."""

    kafka_cluster_id: str
    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectorsPlan:
    cluster: Cluster
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return all(row.action in IDLE for row in self.rows)

    @property
    def is_clean(self) -> bool:
        """Nothing to do and nothing wrong."""
        return self.is_empty and all(worst_level(row.findings) is not Level.ERROR for row in self.rows)

    def count(self, action: Action) -> int:
        return sum(row.action is action for row in self.rows)

    @property
    def summary(self) -> str:
        counted = {action: self.count(action) for action in Action}
        said = ", ".join(f"{count} {action.value}" for action, count in counted.items() if count)
        faulty = sum(row.blocked_by is not None for row in self.rows)
        return (said or "no connector") + (f"; {faulty} cannot be applied" if faulty else "")

    def __repr__(self) -> str:
        from playhead.connectors.plan_text import plan_text

        return plan_text(self) + self.summary


def _change_row(change: KeyChange) -> dict[str, Any]:
    return {
        "key": change.key,
        "change": change.kind.value,
        "before": change.before,
        "after": change.after,
        "secret": change.is_secret,
        "origin": change.origin,
    }


def finding_row(finding: Finding) -> dict[str, Any]:
    return {"level": finding.level.value, "key": finding.key, "what": finding.what, "origin": finding.origin}


def worst_level(findings: Sequence[Finding]) -> Level | None:
    return next((level for level in Level if any(finding.level is level for finding in findings)), None)
