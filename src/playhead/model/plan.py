"""A plan of changes, as a value and as a file.

A plan lists every change with its old and new value. The file is meant for review, so parsing is strict: an unknown version
or field is refused, never ignored.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated
from uuid import uuid4

import msgspec

from playhead.errors import Invalid
from playhead.model.position import Map

PLAN_VERSION = 1
_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Change:
    """`note` is for the reviewer: clamped, unknown field, falls before the log start, ..."""

    owner: str
    partition: Map
    before: Map | None
    after: Map | None
    note: str = ""

    def reversed(self) -> "Change":
        return replace(self, before=self.after, after=self.before, note="")


@dataclass(frozen=True, slots=True)
class Plan:
    store: str
    changes: tuple[Change, ...]
    warnings: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: uuid4().hex[:12])
    created: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))

    @property
    def is_empty(self) -> bool:
        return not self.changes

    @classmethod
    def of(cls, store: str, changes: Iterable[Change], warnings: Iterable[str] = ()) -> "Plan":
        return cls(store, tuple(changes), tuple(warnings))

    def to_json(self) -> bytes:
        document = _PlanFile(
            playhead_plan=PLAN_VERSION,
            id=self.id,
            store=self.store,
            created=self.created,
            changes=[
                _ChangeFile(c.owner, dict(c.partition), _plain(c.before), _plain(c.after), c.note) for c in self.changes
            ],
            warnings=list(self.warnings),
        )
        return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"

    @classmethod
    def from_json(cls, data: bytes, where: str = "plan") -> "Plan":
        try:
            version = msgspec.json.decode(data, type=_VersionOnly).playhead_plan
            if version != PLAN_VERSION:
                raise Invalid(f"{where}: plan version {version} is not known here", "use the Playhead that wrote it")
            document = msgspec.json.decode(data, type=_PlanFile)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Invalid(f"{where}: {error}") from None
        if not _ID.fullmatch(document.id):
            raise Invalid(f"{where}: $.id: {document.id!r} is not the id of a plan")
        changes = tuple(
            Change(
                c.owner,
                Map(c.partition, f"{where}: $.changes[{i}].partition"),
                _map(c.before, f"{where}: $.changes[{i}].before"),
                _map(c.after, f"{where}: $.changes[{i}].after"),
                c.note,
            )
            for i, c in enumerate(document.changes)
        )
        seen: set[tuple[str, Map]] = set()
        for i, change in enumerate(changes):
            if (change.owner, change.partition) in seen:
                raise Invalid(f"{where}: $.changes[{i}]: {change.owner} {change.partition} is changed twice")
            seen.add((change.owner, change.partition))
        return cls(document.store, changes, tuple(document.warnings), document.id, document.created)


class _VersionOnly(msgspec.Struct):
    playhead_plan: int


class _ChangeFile(msgspec.Struct, forbid_unknown_fields=True):
    owner: str
    partition: dict[str, object]
    before: dict[str, object] | None
    after: dict[str, object] | None
    note: str = ""


class _PlanFile(msgspec.Struct, forbid_unknown_fields=True):
    playhead_plan: int
    id: str
    store: str
    created: Annotated[datetime, msgspec.Meta(tz=True)]
    changes: list[_ChangeFile]
    warnings: list[str] = []


def _plain(offset: Map | None) -> dict[str, object] | None:
    return None if offset is None else dict(offset)


def _map(fields: dict[str, object] | None, path: str) -> Map | None:
    return None if fields is None else Map(fields, path)
