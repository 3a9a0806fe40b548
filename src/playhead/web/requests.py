"""The words of a plan, as the API and the pages send them; and the same as a command line."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from playhead.config import Context
from playhead.errors import Invalid
from playhead.web.handovers import HANDOVER, UNDO_HANDOVER, HandoverRequest
from playhead.web.replays import REPLAY, ReplayRequest
from playhead.web.verbs import VERBS, VerbRequest

LEDGER = "ledger"
LONG = (HANDOVER, UNDO_HANDOVER, REPLAY)
Kind = Literal[
    "set", "reset", "delete", "copy", "undo",
    "pause", "resume", "stop", "restart", "delete_connector", "stop_run", "forget_run",
    "handover", "undo_handover", "replay",
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
    connector `owner`; restart also with `tasks` or `only_failed`. stop_run and forget_run: the run `owner`, on Spark.
    handover: the connector `owner` `to` spark or connect; undo_handover: `entry`; both may have `accept_repeats`. replay: of the
    sink `owner` one of `ranges`, `since` and `until`, `last`, `object`, as for `playhead replay`; may have `accept_changes`."""

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
    accept_repeats: bool = False
    ranges: list[str] = []
    since: str = ""
    until: str = ""
    last: int | None = None
    object: str = ""
    accept_changes: bool = False

    @property
    def chosen(self) -> list[dict[str, Value]]:
        return self.partitions or ([] if self.partition is None else [self.partition])


def handover_of(request: PlanRequest, files: Sequence[Path]) -> HandoverRequest:
    is_undo = request.kind == UNDO_HANDOVER
    if is_undo and not request.entry:
        raise Invalid("no entry of the journal is named")
    to, entry = ("", request.entry) if is_undo else (str(request.to or ""), "")
    return HandoverRequest(request.owner, to, entry, request.accept_repeats, tuple(files))


def replay_of(request: PlanRequest, files: Sequence[Path]) -> ReplayRequest:
    return ReplayRequest(
        request.owner, tuple(request.ranges), request.since, request.until, request.last, request.object,
        request.accept_changes, tuple(files),
    )  # fmt: skip


def verb_of(request: PlanRequest) -> VerbRequest:
    return VerbRequest(request.kind, request.owner, tuple(request.tasks), request.only_failed)


def target_of(request: PlanRequest) -> Any:
    """The one option of a reset that names its target."""
    names = ("to", "shift_by", "by_duration", "to_group", "to_offsets")
    words: dict[str, Any] = {name: value for name in names if (value := getattr(request, name)) is not None}
    return words if request.from_text is None else words | {"from_file": request.from_text.encode()}


def command_of(request: PlanRequest, context: Context, files: Sequence[Path] = ()) -> str:
    """The same move as a command line, to be pasted. Some partitions of a source, or different values, are a line each."""
    last = [flag for flag, given in (("--stop", request.stop), ("--force", request.force)) if given]
    last += [*(["--context", context.name] if context.name else []), "--execute"]
    if request.kind in VERBS:
        return shlex.join([*verb_of(request).words, *last])
    if request.kind in LONG:
        wanted = replay_of(request, files) if request.kind == REPLAY else handover_of(request, files)
        return shlex.join([*wanted.words, *last])
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
