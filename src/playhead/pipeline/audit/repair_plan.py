"""What would mend the findings of an audit: the smallest ranges of offsets and keys, and the action for each. Plain functions.

Only missing, doubled and changed rows are mended. What is extra stays unless it is said to delete it. What cannot be mended is an
action as well, with the reason: a record cannot be taken out of a topic.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from playhead.pipeline.audit.model import FINDINGS, Item, Pair, Verdict

_AT = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)@(?P<offset>\d+)")
_NAME = re.compile(r"(?P<topic>.+)\+(?P<partition>\d+)\+(?P<offset>\d+)(\.\d+)?\.[^/]+")
SOURCE, FILES, TABLE = "source", "files sink", "jdbc sink"


class Does(StrEnum):
    PRODUCE = "produce missing rows"
    DELIVER = "deliver again"
    DELETE_FILE = "delete file"
    DELETE_ROWS = "delete rows"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Action:
    """`ranges`: of offsets, as `topic:partition:start-end`. `keys`: of a source's table. `names`: files, or places of rows in a
    table. `sees`: what readers of the target see while it is done and after."""

    pipeline: str
    does: Does
    topic: str = ""
    ranges: Sequence[str] = ()
    keys: Sequence[str] = ()
    names: Sequence[str] = ()
    rows: int = 0
    sees: str = ""
    note: str = ""

    @property
    def what(self) -> str:
        if self.keys:
            return f"keys {', '.join(key_ranges(self.keys))}"
        return ", ".join(self.ranges or self.names)


@dataclass(frozen=True, slots=True)
class Files:
    """What is known of the files of a sink. `is_own`: the ledger has it. `rows`: how many it holds."""

    is_own: Callable[[str], bool]
    rows: Callable[[str], int]


Copies = tuple[str, ...]  # the places of one row in files that the ledger does not have


@dataclass(slots=True)
class _Gathered:
    """`spare`: how many of these copies may go. `delivered`: those that may go only after their row was delivered again.
    `left`: extra rows. `unknown`: rows whose offsets are in no range of the ledger."""

    offsets: dict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    spare: dict[Copies, int] = field(default_factory=dict)
    delivered: set[Copies] = field(default_factory=set)
    extra_own: set[str] = field(default_factory=set)
    rows: int = 0
    left: int = 0
    unknown: int = 0


def plan_pair(pair: Pair, *, deletes_extra: bool = False, files: Files | None = None) -> list[Action]:
    """`files` is needed for file sinks."""
    items = [item for item in pair.items if item.verdict in FINDINGS]
    topic = str(pair.facts.get("topic", ""))
    if pair.kind == SOURCE:
        return _of_source(pair, topic, items)
    if pair.kind == FILES and files is not None:
        return _of_files(pair, topic, items, files, deletes_extra=deletes_extra)
    if pair.kind == TABLE:
        return _of_table(pair, topic, items, deletes_extra=deletes_extra)
    rows = sum(item.count for item in items)
    note = "Playhead knows no pipeline that wrote this target: mend it by the means that wrote it"
    return [Action(pair.pipeline, Does.NOTHING, rows=rows, note=note)] if items else []


def _of_source(pair: Pair, topic: str, items: Sequence[Item]) -> list[Action]:
    actions = []
    lost = [item for item in items if item.verdict is Verdict.MISSING]
    keys = [item.key for item in lost if item.key is not None and item.key.lstrip("-").isdigit()]
    if keys:
        sees = f"{len(keys)} new record(s) at the end of {topic}, after newer ones; the position does not move"
        actions.append(Action(pair.pipeline, Does.PRODUCE, topic, keys=keys, rows=len(keys), sees=sees))
    if unknown := len(lost) - len(keys):
        note = "the key of these rows is not known: read the part again with playhead offsets set"
        actions.append(Action(pair.pipeline, Does.NOTHING, topic, rows=unknown, note=note))
    for verdict, why in (
        (Verdict.DUPLICATE, "a record cannot be taken out of a topic: consumers see it so often"),
        (Verdict.CHANGED, "a record cannot be changed: the table was updated after it was read"),
        (Verdict.EXTRA, "a record cannot be taken out of a topic: the row was deleted after it was read"),
    ):
        rows = sum(item.count for item in items if item.verdict is verdict)
        if rows:
            actions.append(Action(pair.pipeline, Does.NOTHING, topic, rows=rows, note=f"{verdict.value}: {why}"))
    return actions


def _of_files(pair: Pair, topic: str, items: Sequence[Item], files: Files, *, deletes_extra: bool) -> list[Action]:
    """A file that the ledger has is written again with its range. One that it does not have is deleted if each of its rows is
    one too many; deliveries come first."""
    found = _Gathered()
    for item in items:
        _gather(found, item, files, deletes_extra=deletes_extra)
    actions = []
    if found.offsets:
        note = ""
        if found.extra_own:
            note = f"{len(found.extra_own)} of its files hold extra rows, which would go: add --delete-extra"
            found.spare |= dict.fromkeys(found.delivered, 0)
        does = Does.NOTHING if found.extra_own else Does.DELIVER
        sees = (
            "each file is replaced as a whole by one of the same name, as a new generation; the position does not move"
        )
        ranges = merged_ranges(found.offsets)
        actions.append(Action(pair.pipeline, does, topic, ranges=ranges, rows=found.rows, sees=sees, note=note))
    actions += _surplus_files(pair, topic, found.spare, files)
    return [*actions, *_stays(pair, topic, found)]


def _gather(found: _Gathered, item: Item, files: Files, *, deletes_extra: bool) -> None:
    own = [name for name in _names(item) if files.is_own(name)]
    others = tuple(sorted(place for place in item.target if not files.is_own(_name(place))))
    if item.verdict is Verdict.EXTRA and not deletes_extra:
        found.left += item.count
        found.extra_own.update(own)
        return
    is_delivered = item.verdict in (Verdict.MISSING, Verdict.CHANGED)
    if is_delivered and item.range is None:
        found.unknown += item.count
        return
    if others:
        spare = len(others) if is_delivered else min(item.count, len(others))
        found.spare[others] = max(spare, found.spare.get(others, 0))
        found.delivered |= {others} if is_delivered else set()
    if is_delivered:
        _add_places(found, item.source)
    elif item.count <= len(others):
        return  # without copies that the ledger does not have, it is there as often as it should be
    found.rows += item.count
    for name in own:
        _add_name(found, name)


def _surplus_files(pair: Pair, topic: str, spare: Mapping[Copies, int], files: Files) -> list[Action]:
    """Files that the ledger does not have. No more copies of a row go than are spare: of two equal files one may have to stay."""
    held: dict[str, Counter[Copies]] = defaultdict(Counter)
    for copies in spare:
        for place in copies:
            held[_name(place)][copies] += 1
    left = dict(spare)
    rows = {name: files.rows(name) for name in held}
    gone: list[str] = []
    for name in sorted(held, key=lambda name: (_NAME.fullmatch(name.rpartition("/")[2]) is not None, name)):
        if rows[name] == sum(min(left[copies], count) for copies, count in held[name].items()):
            gone.append(name)
            for copies, count in held[name].items():
                left[copies] -= count
    sees = "what it holds is no longer there, or no longer there twice"
    actions = [
        Action(pair.pipeline, Does.DELETE_FILE, topic, names=[name], rows=rows[name], sees=sees) for name in gone
    ]
    for name in sorted(held.keys() - set(gone)):
        if count := sum(min(left[copies], many) for copies, many in held[name].items()):
            note = f"it is not of the ledger and holds other rows, too: delete {count} of its row(s) by hand"
            actions.append(Action(pair.pipeline, Does.NOTHING, topic, names=[name], rows=count, note=note))
    return actions


def _of_table(pair: Pair, topic: str, items: Sequence[Item], *, deletes_extra: bool) -> list[Action]:
    found = _Gathered()
    surplus: list[str] = []
    for item in items:
        if item.verdict is Verdict.EXTRA and not deletes_extra:
            found.left += item.count
        elif item.verdict is Verdict.EXTRA:
            surplus += item.target
        elif item.verdict is Verdict.DUPLICATE:
            surplus += sorted(item.target)[len(item.target) - item.count :]
        elif item.range is None:
            found.unknown += item.count
        else:
            found.rows += item.count
            _add_places(found, item.source)
    actions = []
    if surplus:
        sees = f"{len(surplus)} row(s) are deleted in one transaction"
        actions.append(Action(pair.pipeline, Does.DELETE_ROWS, topic, names=surplus, rows=len(surplus), sees=sees))
    if found.offsets:
        sees = "rows are written in one transaction with the ledger, as a new generation; the position does not move"
        ranges = merged_ranges(found.offsets)
        actions.append(Action(pair.pipeline, Does.DELIVER, topic, ranges=ranges, rows=found.rows, sees=sees))
    return [*actions, *_stays(pair, topic, found)]


def _stays(pair: Pair, topic: str, found: _Gathered) -> list[Action]:
    """What is not mended, with the reason."""
    notes = (
        (found.unknown, "no range of the ledger has these offsets: move the position back with playhead offsets set"),
        (found.left, "extra rows stay: add --delete-extra to delete them"),
    )
    return [Action(pair.pipeline, Does.NOTHING, topic, rows=rows, note=note) for rows, note in notes if rows]


def _names(item: Item) -> list[str]:
    return [_name(place) for place in item.target]


def _name(place: str) -> str:
    """The file of a row."""
    return place.rpartition("#")[0]


def _add_places(found: _Gathered, places: Iterable[str]) -> None:
    for text in places:
        if (at := _AT.fullmatch(text)) is not None:
            found.offsets[at["topic"], int(at["partition"])].add(int(at["offset"]))


def _add_name(found: _Gathered, name: str) -> None:
    if (at := _NAME.fullmatch(name.rpartition("/")[2])) is not None:
        found.offsets[at["topic"], int(at["partition"])].add(int(at["offset"]))


def merged_ranges(offsets: "dict[tuple[str, int], set[int]]") -> list[str]:
    """Neighbouring offsets are one range."""
    found = []
    for (topic, partition), some in sorted(offsets.items()):
        for first, last in _runs(some):
            found.append(f"{topic}:{partition}:{first}-{last + 1}")
    return found


def key_ranges(keys: Sequence[str]) -> list[str]:
    return [str(first) if first == last else f"{first}-{last}" for first, last in _runs(map(int, keys))]


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
