"""Plans as resources: made, looked at, carried out once by their id, undone by the id of their journal entry.

A plan moves positions (`offsets.api`), changes the state of a connector or a run (`verbs.py`), hands a connector over
(`handovers.py`), or replays a part of what a sink delivered (`replays.py`). It is kept in memory for an hour. To carry it out is
to make it again by the same words and to refuse whatever leads elsewhere by now, so that what happens is what was shown.

A hand-over and a replay go on after the request that began them: `state` is then applying, and `progress` says how far it is.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playhead.config import Context
from playhead.errors import Invalid, NotFound, PlayheadError, Refused
from playhead.offsets import api
from playhead.offsets.api import Edit
from playhead.render.positions import outcome_row, plan_row
from playhead.web.handovers import UNDO_HANDOVER, run_handover
from playhead.web.replays import REPLAY, ReplayProcess, plan_replay, run_replay
from playhead.web.requests import LEDGER, LONG, PlanRequest, command_of, handover_of, replay_of, target_of, verb_of
from playhead.web.verbs import VERBS, Deed, DeedRow, run_deed

MOST = 200
LASTS = timedelta(hours=1)
ANSWER_SECONDS = 10.0  # for which a request waits for a long plan
END_SECONDS = 20.0  # for which the end of the server waits for hand-overs
MOST_PROGRESS = 200


@dataclass(slots=True)
class KeptPlan:
    """`edit`: the plan, and once it was applied its outcomes. `deed`: the same, for a verb. `state`: planned, applying, applied,
    or refused as a whole, with its `error`. `form`: what a page sent, to show it again. `files`: of connectors, that the server
    knows. `progress`: of a long one."""

    id: str
    request: PlanRequest
    edit: Edit | None
    deed: Deed | None
    command: str
    who: str
    context: str | None
    made: datetime
    form: Mapping[str, list[str]]
    files: Sequence[Path] = ()
    state: str = "planned"
    progress: list[str] = field(default_factory=list)
    error: BaseException | None = None
    ended: datetime | None = None
    process: ReplayProcess = field(default_factory=ReplayProcess, repr=False)

    @property
    def is_long(self) -> bool:
        return self.request.kind in LONG

    @property
    def is_over(self) -> bool:
        """It is not kept any longer."""
        return self.state != "applying" and datetime.now(UTC) - (self.ended or self.made) > LASTS

    @property
    def problem(self) -> str:
        """Why it was refused, of one that went on after its request."""
        if not isinstance(self.error, PlayheadError):
            return "" if self.error is None else f"internal error: {type(self.error).__name__}"
        return f"{self.error.what}; {self.error.hint}" if self.error.hint else self.error.what

    def tell(self, text: str) -> None:
        if len(self.progress) < MOST_PROGRESS:
            self.progress.append(text)

    @property
    def ok(self) -> bool:
        return (self.deed.exit_code if self.deed else self.edit.exit_code if self.edit else 0) == 0

    @property
    def has_moving_target(self) -> bool:
        return (
            self.request.kind == "reset"
            and self.request.to != LEDGER
            and api.has_moving_target(target_of(self.request))
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
        shown = self.deed.to_dict() if self.deed else self._edit_dict()
        told = {"progress": list(self.progress), "problem": self.problem or None} if self.is_long else {}
        return about | shown | told | {"command": self.command}

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
        self._threads: dict[str, threading.Thread] = {}

    def make(
        self,
        context: Context,
        request: PlanRequest,
        who: str,
        form: Mapping[str, list[str]] | None = None,
        files: Sequence[Path] = (),
    ) -> KeptPlan:
        if not request.owner and request.kind not in ("undo", UNDO_HANDOVER):
            raise Invalid("no owner is named", "name a connector, a sink, or group:NAME")
        is_deed = request.kind in (*VERBS, *LONG)
        edit = None if is_deed else _run(context, request)
        deed = _planned_deed(context, request, files) if is_deed else None
        kept_id = edit.plan.id if edit else secrets.token_hex(6)
        command = command_of(request, context, files)
        kept = KeptPlan(kept_id, request, edit, deed, command, who, context.name, datetime.now(UTC), form or {}, files)
        with self._lock:
            self._kept[kept.id] = kept
            while len(self._kept) > MOST:
                self._kept.pop(next(key for key, one in self._kept.items() if one.state != "applying"))
        return kept

    def get(self, plan_id: str) -> KeptPlan:
        with self._lock:
            kept = self._kept.get(plan_id)
        if kept is None or kept.is_over:
            raise NotFound("plan", plan_id, hint="plans are kept for an hour: plan again")
        return kept

    def apply(self, context: Context, plan_id: str) -> KeptPlan:
        kept = self.get(plan_id)
        if kept.context != context.name:
            raise Refused(f"the plan {plan_id} is for another context", "plan again here")
        with self._lock:
            if kept.state != "planned":
                raise Refused(f"the plan {plan_id} was carried out already", "plan again")
            if kept.is_long:
                self._refuse_second(kept)
            kept.state = "applying"
        if not kept.is_long:
            _carry_out(context, kept)
        else:
            run = copy_context().run  # the name of the user
            thread = threading.Thread(target=run, args=(_carry_out, context, kept), name=f"plan-{plan_id}", daemon=True)
            self._threads[plan_id] = thread
            thread.start()
            thread.join(ANSWER_SECONDS)
        if kept.error is not None:
            raise kept.error
        return kept

    def _refuse_second(self, kept: KeptPlan) -> None:
        """A replay needs a JVM: one at a time. Two hand-overs of one connector would be in each other's way."""
        self._threads = {key: thread for key, thread in self._threads.items() if thread.is_alive()}
        for other in (one for one in self._kept.values() if one.id in self._threads):
            is_replay = REPLAY == other.request.kind == kept.request.kind
            if is_replay or {row.name for row in _rows(other)} & {row.name for row in _rows(kept)}:
                raise Refused(
                    f"the plan {other.id} ({other.request.kind}) is carried out now", "wait until it has ended"
                )

    def close(self) -> None:
        """The server ends: replays end, hand-overs get a moment. Both are completed by the same command."""
        for kept in list(self._kept.values()):
            kept.process.end()
        for thread in self._threads.values():
            thread.join(END_SECONDS)


def _rows(kept: KeptPlan) -> Sequence[DeedRow]:
    return kept.deed.rows if kept.deed else ()


def _carry_out(context: Context, kept: KeptPlan) -> None:
    """The outcome, or the error, is in `kept`."""
    try:
        if kept.deed is not None:
            kept.deed = _done_deed(context, kept, kept.deed)
        else:
            kept.edit = _run(context, kept.request, only=kept.edit)
        kept.state = "applied"
    except BaseException as error:  # noqa: BLE001  (raised by `apply`, or shown)
        kept.error = error
        kept.state = "refused"
    kept.ended = datetime.now(UTC)


def _planned_deed(context: Context, request: PlanRequest, files: Sequence[Path]) -> Deed:
    if request.kind == REPLAY:
        return plan_replay(context, replay_of(request, files))
    if request.kind in LONG:
        return run_handover(context, handover_of(request, files))
    return run_deed(context, verb_of(request))


def _done_deed(context: Context, kept: KeptPlan, shown: Deed) -> Deed:
    request = kept.request
    if request.kind == REPLAY:
        return run_replay(context, replay_of(request, kept.files), shown, kept.tell, kept.process)
    if request.kind in LONG:
        return run_handover(context, handover_of(request, kept.files), shown, kept.tell)
    return run_deed(context, verb_of(request), only=shown)


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
    return api.reset(owner, **target_of(request), topics=request.topics, out_of_range=request.out_of_range, **more)
