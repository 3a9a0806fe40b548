"""The forms of the pages as words of a plan.

Chosen partitions are `place` (topic:partition, or the partition of a source as JSON), out of `places` that were shown; new values
are `new.PLACE`. `every` stands for all partitions of the owner, shown or not.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from playhead.errors import Invalid
from playhead.web.replays import REPLAY
from playhead.web.requests import LEDGER, LONG, FieldsOf, Kind, PlanRequest, Value
from playhead.web.verbs import VERBS

_BY_KIND = {"copy": "copy", "delete": "forget", "set": "fields"}


@dataclass(frozen=True, slots=True)
class Form:
    given: Mapping[str, list[str]]

    def one(self, name: str) -> str:
        return (self.given.get(name) or [""])[0].strip()

    def every(self, name: str) -> list[str]:
        return self.given.get(name, [])

    @property
    def flags(self) -> Any:
        return {"stop": bool(self.one("stop")), "force": bool(self.one("force"))}


def request_of_form(given: Mapping[str, list[str]]) -> PlanRequest:
    form = Form(given)
    kind, owner = form.one("kind") or "reset", form.one("owner")
    if kind == "undo":
        return PlanRequest("undo", entry=form.one("entry"), **form.flags)
    if kind in LONG:
        return _of_long(form, kind, owner)
    if kind in VERBS:
        tasks = [int(text) for text in form.every("task") if text.isascii() and text.isdigit()]
        return PlanRequest(msgspec.convert(kind, Kind), owner, tasks=tasks, only_failed=bool(form.one("only_failed")))
    word = _BY_KIND.get(kind, form.one("word"))
    places = [] if form.one("every") else form.every("place")
    if not places and not form.one("every") and form.one("places") not in ("", "0") and word != "file":
        raise Invalid("no partition is chosen", "tick those that are to move")
    if word in ("copy", "forget", "fields", "each"):
        return _of_stored(form, word, owner, places)
    return _of_reset(form, word, owner, places)


def _of_long(form: Form, kind: str, owner: str) -> PlanRequest:
    if kind == REPLAY:
        last = form.one("last").replace(",", "")
        if last and not (last.isascii() and last.isdigit()):
            raise Invalid(f"{last!r} is not a number of records")
        since, until, name = (form.one(word) for word in ("since", "until", "object"))
        accepts = bool(form.one("accept_changes"))
        return PlanRequest(
            "replay", owner, ranges=form.one("ranges").split(), since=since, until=until, last=int(last) if last else None,
            object=name, accept_changes=accepts,
        )  # fmt: skip
    words = {
        "to": form.one("to") or None,
        "entry": form.one("entry"),
        "accept_repeats": bool(form.one("accept_repeats")),
    }
    return PlanRequest(msgspec.convert(kind, Kind), owner, **words)  # type: ignore[arg-type]


def _of_stored(form: Form, word: str, owner: str, places: list[str]) -> PlanRequest:
    """What every store can do, also that of a source."""
    some: Any = {"partitions": [_partition(place) for place in places], **form.flags}
    value = form.one("value")
    if word == "copy":
        if not value:
            raise Invalid("no owner to copy to is named", "write its name into the field beside the word")
        return PlanRequest("copy", owner, new_owner=value, **some)
    if word == "forget":
        return PlanRequest("delete", owner, **some)
    if word == "fields":
        return PlanRequest("set", owner, fields=_fields(value), all=not places, **some)
    if form.one("every"):
        raise Invalid(
            "new values are those of the partitions that are shown", "tick partitions, not all of them at once"
        )
    return _each(owner, [(place, form.one(f"new.{place}")) for place in places], form.flags)


def _of_reset(form: Form, word: str, owner: str, places: list[str]) -> PlanRequest:
    """The words of `groups reset`, for positions in Kafka."""
    if any(place.startswith("{") for place in places):
        if word == "earliest":  # a source starts over where its position is forgotten
            return PlanRequest("delete", owner, partitions=[_partition(place) for place in places], **form.flags)
        raise Invalid(f"{owner} is a source: its position is not a Kafka offset", "set its fields, or forget it")
    if word == "file":
        return PlanRequest(
            "reset", owner, from_text=(form.every("text") or [""])[0].replace("\r\n", "\n"), **form.flags
        )
    words: dict[str, Any] = {"topics": _merged(places), **form.flags}
    if form.one("out_of_range") == "error":
        words["out_of_range"] = "error"
    return PlanRequest("reset", owner, **words, **_target(word, form.one("value")))


def _target(word: str, value: str) -> dict[str, Any]:
    if word in ("earliest", "latest", "current", LEDGER):
        return {"to": word}
    if word in ("offset", "shift_by"):
        try:
            return {"to" if word == "offset" else word: int(value.replace(",", ""))}
        except ValueError:
            raise Invalid(f"{value!r} is not a whole number") from None
    if word not in ("time", "by_duration", "to_group"):
        raise Invalid(f"{word!r} is not a way to move a position")
    if not value:
        raise Invalid("a value is missing", "write it into the field beside the word")
    return {"to" if word == "time" else word: value}


def typed(text: str) -> Value:
    """A value as it is typed on the command line: JSON where it is a JSON literal, else text."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if found is None or isinstance(found, str | int | float | bool) else text


def _partition(place: str) -> dict[str, Value]:
    if not place.startswith("{"):
        topic, _, number = place.rpartition(":")
        if not topic or not number.isascii() or not number.isdigit():
            raise Invalid(f"{place!r} is not a partition", "write it like topic:0")
        return {"kafka_topic": topic, "kafka_partition": int(number)}
    try:
        return msgspec.json.decode(place, type=dict[str, Value])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Invalid(f"{place!r} is not a partition: {error}") from None


def _fields(text: str) -> dict[str, Value]:
    """`FIELD=VALUE ...`, as on the command line: quotes hold a value with blanks together."""
    try:
        pairs = [pair.partition("=") for pair in shlex.split(text)]
    except ValueError:
        pairs = []
    if not pairs or not all(name and equals for name, equals, _ in pairs):
        raise Invalid(f"{text!r} is not FIELD=VALUE", "write it like incrementing=369034")
    return {name: typed(value) for name, _, value in pairs}


def _each(owner: str, values: list[tuple[str, str]], flags: Any) -> PlanRequest:
    if values and all(place.startswith("{") for place, _ in values):
        each = [FieldsOf(_partition(place), _fields(text)) for place, text in values]
        return PlanRequest("set", owner, each=each, **flags)
    offsets = [(place, text.replace(",", "")) for place, text in values]
    if odd := [place for place, text in offsets if not text.isascii() or not text.isdigit()]:
        raise Invalid(f"{odd[0]}: the new position is not an offset", "offsets are whole numbers from 0")
    return PlanRequest("reset", owner, to_offsets={place: int(text) for place, text in offsets}, **flags)


def _merged(places: list[str]) -> list[str]:
    """`t:0` and `t:1` as `t:0,1`."""
    found: dict[str, list[str]] = {}
    for place in places:
        topic, _, number = place.rpartition(":")
        found.setdefault(topic, []).append(number)
    return [f"{topic}:{','.join(numbers)}" for topic, numbers in found.items()]
