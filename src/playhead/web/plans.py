"""Plans as resources: made, looked at, carried out once by their id, undone by the id of their journal entry.

A plan is kept in memory for an hour. To carry it out is to make it again by the same words and to refuse whatever leads elsewhere
by now (`only` of `offsets.api`), so that what happens is what was shown.
"""

import json
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

MOST = 200
LASTS = timedelta(hours=1)
Kind = Literal["set", "reset", "delete", "copy", "undo"]


class PlanRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The words of a move. `kind` reset: one of `to` (earliest, latest, current, an offset, a time), `shift_by`, `by_duration`,
    `to_group` or `to_offsets`, in `topics` ("t" or "t:0,1"). set: `fields`, of `partition` or `all`. copy: to `new_owner`.
    undo: `entry`."""

    kind: Kind
    owner: str = ""
    to: str | int | None = None
    shift_by: int | None = None
    by_duration: str | None = None
    to_group: str | None = None
    to_offsets: dict[str, int] | None = None
    topics: list[str] = []
    fields: dict[str, str | int | float | bool | None] = {}
    partition: dict[str, str | int | float | bool | None] | None = None
    all: bool = False
    new_owner: str = ""
    entry: str = ""
    stop: bool = False
    force: bool = False


@dataclass(slots=True)
class KeptPlan:
    """`edit`: the plan, and once it was applied its outcomes. `state`: planned, applying, applied, or refused as a whole."""

    id: str
    request: PlanRequest
    edit: Edit
    command: str
    who: str
    context: str | None
    made: datetime
    state: str = "planned"

    def to_dict(self) -> dict[str, Any]:
        done = self.edit.outcomes
        return {
            "id": self.id,
            "kind": self.request.kind,
            "owner": self.request.owner,
            "state": self.state,
            "who": self.who,
            "created": self.made.isoformat(timespec="seconds"),
            "store": self.edit.plan.store,
            "warnings": [*self.edit.plan.warnings, *self.edit.notes],
            "changes": [plan_row(change) for change in self.edit.plan.changes],
            "outcomes": None if done is None else [outcome_row(one) for one in done],
            "exit_code": None if done is None else self.edit.exit_code,
            "journal": self.edit.journal,
            "command": self.command,
        }


class PlanBook:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, KeptPlan] = OrderedDict()

    def make(self, context: Context, request: PlanRequest, who: str) -> KeptPlan:
        edit = _run(context, request)
        kept = KeptPlan(edit.plan.id, request, edit, command_of(request, context), who, context.name, datetime.now(UTC))
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
            kept.edit = _run(context, kept.request, only=kept.edit)
            kept.state = "applied"
        except BaseException:
            kept.state = "refused"
            raise
        return kept


def _run(context: Context, request: PlanRequest, only: Edit | None = None) -> Edit:
    more: Any = {"context": context, "stop": request.stop, "force": request.force}
    if only is not None:
        more |= {"execute": True, "only": only.plan}
    owner = request.owner
    if request.kind == "undo":
        return api.undo(request.entry or None, **more)
    if not owner:
        raise Invalid("no owner is named", "name a connector, a sink, or group:NAME")
    partition = request.partition
    if request.kind == "set":
        return api.set_(owner, request.fields, partition=partition, every=request.all, **more)
    if request.kind == "delete":
        return api.delete(owner, partition=partition, every=request.all or partition is None, **more)
    if request.kind == "copy":
        return api.copy(owner, request.new_owner, partition=partition, **more)
    names = ("to", "shift_by", "by_duration", "to_group", "to_offsets")
    words: dict[str, Any] = {name: value for name in names if (value := getattr(request, name)) is not None}
    return api.reset(owner, **words, topics=request.topics, **more)


def command_of(request: PlanRequest, context: Context) -> str:
    """The same move as a command line, to be pasted."""
    words = ["playhead", "offsets", request.kind]
    before = ""
    if request.kind == "undo":
        words += [request.entry] if request.entry else []
    else:
        words += [request.owner]
    if request.kind == "copy":
        words += [request.new_owner]
    if request.kind == "set":
        words += [f"{name}={_literal(value)}" for name, value in request.fields.items()]
    if request.partition is not None:
        words += ["--partition", json.dumps(request.partition)]
    elif request.kind == "delete" or (request.kind == "set" and request.all):
        words += ["--all"]
    if request.kind == "reset":
        more, before = _reset_words(request)
        words += more
    words += [flag for flag, given in (("--stop", request.stop), ("--force", request.force)) if given]
    words += ["--context", context.name] if context.name else []
    return before + shlex.join([*words, "--execute"])


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
        lines = [f"{place.replace(':', ',')},{offset}\\n" for place, offset in request.to_offsets.items()]
        before = f"printf {shlex.quote(''.join(lines))} | "
        words = ["--from-file", "-"]
    return words + [word for topic in request.topics for word in ("--topic", topic)], before


def _literal(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def typed(text: str) -> str | int | float | bool | None:
    """A value as it is typed on the command line: JSON where it is a JSON literal, else text."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if found is None or isinstance(found, str | int | float | bool) else text


def request_of_form(form: Mapping[str, list[str]]) -> PlanRequest:
    """The editor's form. Chosen partitions are `place` (topic:partition), new offsets `new.topic:partition`."""

    def one(name: str) -> str:
        return (form.get(name) or [""])[0].strip()

    kind, owner, word, value = one("kind") or "reset", one("owner"), one("word"), one("value")
    flags: Any = {"stop": bool(one("stop")), "force": bool(one("force"))}
    if kind == "undo":
        return PlanRequest("undo", entry=one("entry"), **flags)
    places = form.get("place", [])
    if kind == "copy":
        return PlanRequest("copy", owner, new_owner=value, **flags)
    if kind == "delete" or word == "forget":
        return PlanRequest("delete", owner, **flags)
    if kind == "set" or word == "fields":
        pairs = [pair.partition("=") for pair in value.split()]
        if not pairs or not all(name and equals for name, equals, _ in pairs):
            raise Invalid(f"{value!r} is not FIELD=VALUE", "write it like incrementing=369034")
        fields = {name: typed(text) for name, _, text in pairs}
        partition = json.loads(one("partition")) if one("partition") else None
        return PlanRequest("set", owner, fields=fields, partition=partition, all=partition is None, **flags)
    if word == "each":
        names = [(place, (form.get(f"new.{place}") or [""])[0].replace(",", "").strip()) for place in places]
        if odd := [place for place, text in names if not text.isdigit()]:
            raise Invalid(f"{odd[0]}: the new position is not an offset", "offsets are whole numbers from 0")
        return PlanRequest("reset", owner, to_offsets={place: int(text) for place, text in names}, **flags)
    return _reset_of(owner, word, value, places, flags)


def _reset_of(owner: str, word: str, value: str, places: list[str], flags: Any) -> PlanRequest:
    words: dict[str, Any] = {"topics": places, **flags}
    if word in ("earliest", "latest", "current"):
        words["to"] = word
    elif word in ("offset", "shift_by"):
        try:
            words["to" if word == "offset" else word] = int(value.replace(",", ""))
        except ValueError:
            raise Invalid(f"{value!r} is not a whole number") from None
    elif word == "time":
        words["to"] = value
    elif word in ("by_duration", "to_group"):
        words[word] = value
    else:
        raise Invalid(f"{word!r} is not a way to move a position")
    return PlanRequest("reset", owner, **words)
