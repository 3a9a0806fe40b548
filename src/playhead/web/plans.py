"""Plans as resources: made, looked at, carried out once by their id, undone by the id of their journal entry.

A plan moves positions (`offsets.api`), or changes the state of a connector or a run (`verbs.py`). It is kept in memory for an
hour. To carry it out is to make it again by the same words and to refuse whatever leads elsewhere by now, so that what happens
is what was shown.
"""

import json
import secrets
import shlex
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from playhead.config import Context
from playhead.errors import Invalid, NotFound, Refused
from playhead.offsets import api
from playhead.offsets.api import Edit
from playhead.render.positions import outcome_row, plan_row
from playhead.web.verbs import VERBS, Deed, VerbRequest, run_deed

MOST = 200
LASTS = timedelta(hours=1)
LEDGER = "ledger"
Kind = Literal[
    "set", "reset", "delete", "copy", "undo",
    "pause", "resume", "stop", "restart", "delete_connector", "stop_run", "forget_run",
]  # fmt: skip


Value = str | int | float | bool | None


class FieldsOf(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """New values of one partition of a source."""

    partition: dict[str, Value]
    fields: dict[str, Value]


class PlanRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The words of a move. `kind` reset: one of `to` (earliest, latest, current, ledger, an offset, a time), `shift_by`,
    `by_duration`, `to_group`, `to_offsets` or `from_text` (the content of a file of offsets), in `topics` ("t" or "t:0,1");
    `out_of_range` is clamp or error. set: `fields`, of `partitions` or `all`; or `each`. delete and copy: `partitions`, or
    all; copy: to `new_owner`. undo: `entry`. pause, resume, stop, restart and delete_connector (its offsets are kept): the
    connector `owner`; restart also with `tasks` or `only_failed`. stop_run and forget_run: the run `owner`, on Spark."""

    kind: Kind
    owner: str = ""
    to: str | int | None = None
    shift_by: int | None = None
    by_duration: str | None = None
    to_group: str | None = None
    to_offsets: dict[str, int] | None = None
    from_text: str | None = None
    topics: list[str] = []
    out_of_range: Literal["clamp", "error"] = "clamp"
    fields: dict[str, Value] = {}
    each: list[FieldsOf] = []
    partition: dict[str, Value] | None = None
    partitions: list[dict[str, Value]] = []
    all: bool = False
    new_owner: str = ""
    entry: str = ""
    stop: bool = False
    force: bool = False
    tasks: list[int] = []
    only_failed: bool = False

    @property
    def chosen(self) -> list[dict[str, Value]]:
        return self.partitions or ([] if self.partition is None else [self.partition])


@dataclass(slots=True)
class KeptPlan:
    """`edit`: the plan, and once it was applied its outcomes. `deed`: the same, for a verb. `state`: planned, applying, applied,
    or refused as a whole. `form`: what a page sent, to show it again."""

    id: str
    request: PlanRequest
    edit: Edit | None
    deed: Deed | None
    command: str
    who: str
    context: str | None
    made: datetime
    form: Mapping[str, list[str]]
    state: str = "planned"

    @property
    def ok(self) -> bool:
        return (self.deed.exit_code if self.deed else self.edit.exit_code if self.edit else 0) == 0

    @property
    def has_moving_target(self) -> bool:
        return (
            self.request.kind == "reset" and self.request.to != LEDGER and api.has_moving_target(_target(self.request))
        )

    @property
    def is_empty(self) -> bool:
        return self.deed.is_empty if self.deed else self.edit is None or self.edit.is_empty

    def to_dict(self) -> dict[str, Any]:
        about = {
            "id": self.id,
            "kind": self.request.kind,
            "owner": self.request.owner,
            "state": self.state,
            "who": self.who,
            "created": self.made.isoformat(timespec="seconds"),
        }
        return about | (self.deed.to_dict() if self.deed else self._edit_dict()) | {"command": self.command}

    def _edit_dict(self) -> dict[str, Any]:
        if self.edit is None:
            return {}
        done = self.edit.outcomes
        return {
            "store": self.edit.plan.store,
            "warnings": [*self.edit.plan.warnings, *self.edit.notes],
            "changes": [plan_row(change) for change in self.edit.plan.changes],
            "outcomes": None if done is None else [outcome_row(one) for one in done],
            "exit_code": None if done is None else self.edit.exit_code,
            "journal": self.edit.journal,
        }


class PlanBook:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, KeptPlan] = OrderedDict()

    def make(
        self, context: Context, request: PlanRequest, who: str, form: Mapping[str, list[str]] | None = None
    ) -> KeptPlan:
        if not request.owner and request.kind != "undo":
            raise Invalid("no owner is named", "name a connector, a sink, or group:NAME")
        verb = request.kind in VERBS
        edit = None if verb else _run(context, request)
        deed = run_deed(context, _verb_of(request)) if verb else None
        kept_id = edit.plan.id if edit else secrets.token_hex(6)
        command = command_of(request, context)
        kept = KeptPlan(kept_id, request, edit, deed, command, who, context.name, datetime.now(UTC), form or {})
        with self._lock:
            self._kept[kept.id] = kept
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        return kept

    def get(self, plan_id: str) -> KeptPlan:
        with self._lock:
            kept = self._kept.get(plan_id)
        if kept is None or datetime.now(UTC) - kept.made > LASTS:
            raise NotFound("plan", plan_id, hint="plans are kept for an hour: plan again")
        return kept

    def apply(self, context: Context, plan_id: str) -> KeptPlan:
        kept = self.get(plan_id)
        if kept.context != context.name:
            raise Refused(f"the plan {plan_id} is for another context", "plan again here")
        with self._lock:
            if kept.state != "planned":
                raise Refused(f"the plan {plan_id} was carried out already", "plan again")
            kept.state = "applying"
        try:
            if kept.deed is not None:
                kept.deed = run_deed(context, _verb_of(kept.request), only=kept.deed)
            else:
                kept.edit = _run(context, kept.request, only=kept.edit)
            kept.state = "applied"
        except BaseException:
            kept.state = "refused"
            raise
        return kept


def _verb_of(request: PlanRequest) -> VerbRequest:
    return VerbRequest(request.kind, request.owner, tuple(request.tasks), request.only_failed)


def _run(context: Context, request: PlanRequest, only: Edit | None = None) -> Edit:
    more: Any = {"context": context, "stop": request.stop, "force": request.force}
    if only is not None:
        more |= {"execute": True, "only": only.plan}
    owner = request.owner
    if request.kind == "undo":
        return api.undo(request.entry or None, **more)
    some = request.chosen or None
    if request.kind == "set" and request.each:
        return api.set_each(owner, [(one.partition, one.fields) for one in request.each], **more)
    if request.kind == "set":
        return api.set_(owner, request.fields, partition=some, every=request.all, **more)
    if request.kind == "delete":
        return api.delete(owner, partition=some, every=some is None, **more)
    if request.kind == "copy":
        return api.copy(owner, request.new_owner, partition=some, **more)
    if request.to == LEDGER:
        return api.reset_to_ledger(owner, topics=request.topics, **more)
    return api.reset(owner, **_target(request), topics=request.topics, out_of_range=request.out_of_range, **more)


def _target(request: PlanRequest) -> Any:
    """The one option of a reset that names its target."""
    names = ("to", "shift_by", "by_duration", "to_group", "to_offsets")
    words: dict[str, Any] = {name: value for name in names if (value := getattr(request, name)) is not None}
    return words if request.from_text is None else words | {"from_file": request.from_text.encode()}


def command_of(request: PlanRequest, context: Context) -> str:
    """The same move as a command line, to be pasted. Some partitions of a source, or different values, are a line each."""
    last = [flag for flag, given in (("--stop", request.stop), ("--force", request.force)) if given]
    last += [*(["--context", context.name] if context.name else []), "--execute"]
    if request.kind in VERBS:
        return shlex.join([*_verb_of(request).words, *last])
    words = ["playhead", "offsets", request.kind]
    if request.kind == "undo":
        return shlex.join([*words, *([request.entry] if request.entry else []), *last])
    if request.kind == "reset":
        if request.to == LEDGER:
            scope = [word for topic in request.topics for word in ("--topic", topic)] or ["--all-topics"]
            return shlex.join(
                ["playhead", "groups", "reset", request.owner.removeprefix("group:"), "--to-ledger", *scope, *last]
            )
        more, before = _reset_words(request)
        return before + shlex.join([*words, request.owner, *more, *last])
    words += [request.owner, *([request.new_owner] if request.kind == "copy" else [])]
    if request.each:
        lines = [(_typed_fields(one.fields), [one.partition]) for one in request.each]
    else:
        lines = [(_typed_fields(request.fields), request.chosen)]
    return "\n".join(
        shlex.join([*words, *fields, *where, *last]) for fields, chosen in lines for where in _places(request, chosen)
    )


def _typed_fields(fields: Mapping[str, Value]) -> list[str]:
    return [f"{name}={_literal(value)}" for name, value in fields.items()]


def _places(request: PlanRequest, chosen: list[dict[str, Value]]) -> list[list[str]]:
    if chosen:
        return [["--partition", json.dumps(one, ensure_ascii=False)] for one in chosen]
    return [["--all"] if request.kind == "delete" or request.all else []]


def _reset_words(request: PlanRequest) -> tuple[list[str], str]:
    before = ""
    words: list[str] = []
    if request.to in ("earliest", "latest", "current"):
        words = [f"--to-{request.to}"]
    elif isinstance(request.to, int):
        words = ["--to-offset", str(request.to)]
    elif request.to is not None:
        words = ["--to-datetime", request.to]
    elif request.shift_by is not None:
        words = ["--shift-by", str(request.shift_by)]
    elif request.by_duration is not None:
        words = ["--by-duration", request.by_duration]
    elif request.to_group is not None:
        words = ["--to-group", request.to_group]
    elif request.to_offsets is not None:
        lines = [f"{place.replace(':', ',')},{offset}\n" for place, offset in request.to_offsets.items()]
        before, words = _piped("".join(lines)), ["--from-file", "-"]
    elif request.from_text is not None:
        before, words = _piped(request.from_text), ["--from-file", "-"]
    if request.out_of_range != "clamp":
        words += ["--out-of-range", request.out_of_range]
    return words + [word for topic in request.topics for word in ("--topic", topic)], before


def _piped(text: str) -> str:
    return f"printf %s {shlex.quote(text)} | "


def _literal(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
