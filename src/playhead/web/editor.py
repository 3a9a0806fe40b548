"""The editor of positions: what is, with a form for what shall be."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from playhead.model import Change
from playhead.offsets.api import OwnerOffsets, OwnerPosition, show
from playhead.offsets.groups import LagRow
from playhead.render.listing import plain
from playhead.web.poller import Part
from playhead.web.site import Watched

MOST_PLACES = 1000  # rows of the editor
OF_KAFKA = {
    "shift_by": "shift by",
    "earliest": "to the log start",
    "latest": "to the log end",
    "current": "to the current commit",
    "offset": "to offset",
    "time": "to time, or how long ago",
    "by_duration": "back by duration",
    "to_group": "to the position of",
    "each": "to the new values",
    "file": "to the offsets in a text",
    "ledger": "to its ledger (a sink on Spark)",
    "copy": "copy to",
    "forget": "forget",
}
OF_SOURCES = {
    "each": "to the new values",
    "fields": "set FIELD=VALUE",
    "copy": "copy to",
    "earliest": "start over",
    "forget": "forget",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A row of the editor. `key`: what its check box sends. `new`: the current value, as it is typed."""

    key: str
    name: str
    is_kafka: bool
    begin: int | None
    committed: int | None
    end: int | None
    lag: int | None
    new: str
    offset: str


def _place(one: OwnerPosition, spans: Mapping[tuple[str, int], LagRow]) -> Place:
    topic, number = (one.partition.get(name) for name in ("kafka_topic", "kafka_partition"))
    offset = one.offset or {}
    if topic is None:
        new = shlex.join(
            f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in offset.items()
        )
        return Place(json.dumps(one.partition), one.position, False, None, None, None, one.lag, new, plain(one.offset))
    span = spans.get((str(topic), int(number or 0)))
    at = offset.get("kafka_offset")
    begin, end = (None, None) if span is None else (span.log_start, span.log_end)
    return Place(
        f"{topic}:{number}", f"{topic}-{number}", True, begin, at, end, one.lag, "" if at is None else str(at), ""
    )


@dataclass(frozen=True, slots=True)
class Editor:
    """`form`: what was sent with it; `planned`: the new values of a plan, by place. `found`: rows that match; `count`: all rows.
    `part` None: no owner is chosen yet."""

    owner: str
    owners: Sequence[str]
    find: str = ""
    part: Part[OwnerOffsets] | None = None
    places: Sequence[Place] = ()
    found: int = 0
    count: int = 0
    state: str = ""
    is_spark: bool = False
    form: Mapping[str, list[str]] = field(default_factory=dict)
    planned: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        at: Watched,
        owner: str,
        find: str = "",
        form: Mapping[str, list[str]] | None = None,
        changes: Sequence[Change] = (),
    ) -> "Editor":
        seen = at.poller.seen
        owners = [row.name for row in seen.connectors.value or ()]
        owners += [
            f"group:{group.group}" for group in seen.groups.value or () if not group.group.startswith("connect-")
        ]
        if not owner:
            return cls(owner, owners, find)
        part = at.lookups.get(("positions", owner), lambda deadline: show(owner, context=at.context))
        group = owner.removeprefix("group:") if owner.startswith("group:") else f"connect-{owner}"
        spans = {(r.topic, r.partition): r for one in seen.groups.value or () if one.group == group for r in one.rows}
        every = [_place(one, spans) for one in part.value.positions] if part.value else []
        places = [one for one in every if find.lower() in one.name.lower()]
        row = at.board.shown.find(owner)
        return cls(
            owner, owners, find, part, places[:MOST_PLACES], len(places), len(every), row.state if row else "",
            row is not None and row.engine == "spark", form or {}, dict(_planned(changes)),
        )  # fmt: skip

    @property
    def of_kafka(self) -> bool:
        return all(one.is_kafka for one in self.places)

    @property
    def words(self) -> Mapping[str, str]:
        return OF_KAFKA if self.of_kafka else OF_SOURCES

    def given(self, name: str) -> str:
        return (self.form.get(name) or [""])[0]

    def is_ticked(self, key: str) -> bool:
        return not self.form.get("place") or key in self.form["place"]

    def new_of(self, one: Place) -> str:
        return self.planned.get(one.key, one.new)


def _planned(changes: Sequence[Change]) -> list[tuple[str, str]]:
    found = []
    for change in changes:
        topic, number = (change.partition.get(name) for name in ("kafka_topic", "kafka_partition"))
        after = None if change.after is None else change.after.get("kafka_offset")
        if topic is not None and after is not None:
            found.append((f"{topic}:{number}", str(after)))
    return found
