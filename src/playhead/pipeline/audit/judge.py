"""What is wrong with each row that differs. Plain functions over the rows that a comparison leaves, which are few.

Rows of the two sides are one row if they have the same key. A row of which the target has another version is changed; one that
only the source has is missing; one that the target holds more often is a duplicate. What only the target has depends on what is
known of the source: gone there, expired, an older version, or above the line.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from playhead.pipeline.audit.compare import Unbalanced
from playhead.pipeline.audit.contents import Key, difference, payload_of
from playhead.pipeline.audit.model import Item, Verdict
from playhead.pipeline.audit.row_hash import canonical_json


def _no_key(_row: bytes | None) -> Key | None:
    return None


def _all_missing(rows: Sequence[object]) -> Sequence[Verdict]:
    return [Verdict.MISSING] * len(rows)


def _all_extra(rows: Sequence[object]) -> Sequence[Verdict]:
    return [Verdict.EXTRA] * len(rows)


def _all_changed(rows: Sequence[object]) -> Sequence[Verdict]:
    return [Verdict.CHANGED] * len(rows)


def _none_gone(_one: Unbalanced) -> tuple[Verdict, int]:
    return Verdict.EXPIRED, 0


@dataclass(frozen=True, slots=True)
class Rules:
    """What is known of the two tiers, beyond the rows that differ.

    `key_of`: what identifies a row, from its content. `is_json`: rows are JSON texts and are equal if their data are.
    `is_late_key`: whether a key is above the line. `replaces`: a newer row of a key takes the place of the older one.
    `only_source`, `only_target`, `changed`: the verdicts of rows of which the other side has none, or another version. `gone`:
    how many copies in the target may come from records that the source does not have any more, and what they are then.
    `compares_keys`: a row with another content is no finding."""

    key_of: Callable[[bytes | None], Key | None] = _no_key
    is_json: bool = False
    is_late_key: Callable[[Key], bool] = lambda _key: False
    replaces: bool = False
    only_source: Callable[[Sequence[Unbalanced]], Sequence[Verdict]] = _all_missing
    only_target: Callable[[Sequence[Unbalanced]], Sequence[Verdict]] = _all_extra
    changed: Callable[[Sequence[tuple[Unbalanced, Unbalanced]]], Sequence[Verdict]] = _all_changed
    gone: Callable[[Unbalanced], tuple[Verdict, int]] = _none_gone
    compares_keys: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """`updated`: rows with another content, where only keys are compared."""

    items: Sequence[Item]
    updated: int = 0


def judge(differing: Sequence[Unbalanced], rules: Rules) -> Judged:
    judging = _Judging(rules)
    for one in _same_data(differing) if rules.is_json else differing:
        judging.sort(rules.key_of(one.row), one)
    judging.judge_lost()
    judging.judge_added()
    return Judged(sorted(judging.items, key=_order), judging.updated)


Keyed = tuple[Key | None, Unbalanced]


def _by_key() -> "dict[Key | None, list[Unbalanced]]":
    return defaultdict(list)


@dataclass(slots=True)
class _Judging:
    """`lost`: rows of which the target has too few; `added`: those of which the source has none. `late`: keys above the line."""

    rules: Rules
    items: list[Item] = field(default_factory=list)
    lost: dict[Key | None, list[Unbalanced]] = field(default_factory=_by_key)
    added: dict[Key | None, list[Unbalanced]] = field(default_factory=_by_key)
    late: set[Key | None] = field(default_factory=set)
    updated: int = 0

    def sort(self, key: Key | None, one: Unbalanced) -> None:
        if one.right < one.left:
            self.lost[key].append(replace(one, left=one.left - one.right, right=0))
            return
        surplus = one.right - one.left
        above = min(surplus, one.tail)
        if above:
            self.late.add(key)
            self._add(Verdict.LATE, key, one, above)
        verdict, most = self.rules.gone(one)
        gone = min(surplus - above, most)
        self._add(verdict, key, one, gone)
        left = surplus - above - gone
        if one.left or above or gone:
            self._add(Verdict.DUPLICATE, key, one, left)
        elif left:
            self.added[key].append(replace(one, right=left))

    def judge_lost(self) -> None:
        alone: list[Keyed] = []
        pairs: list[tuple[Key, Unbalanced, Unbalanced]] = []
        for key, one in ((key, one) for key, lost in self.lost.items() for one in lost):
            if self._is_late(key):
                self._add(Verdict.LATE, key, one, one.left)
            elif key is None or not self.added.get(key):
                alone.append((key, one))
            else:
                pairs.append((key, one, self.added[key].pop()))
        for (key, one), verdict in _with(alone, self.rules.only_source([one for _, one in alone])):
            self._add(verdict, key, one, one.left)
        self._judge_pairs(pairs)

    def _judge_pairs(self, pairs: Sequence[tuple[Key, Unbalanced, Unbalanced]]) -> None:
        if self.rules.compares_keys:
            self.updated += len(pairs)
            verdicts: Sequence[Verdict] = [Verdict.GAP] * len(pairs)
        else:
            verdicts = self.rules.changed([(one, other) for _, one, other in pairs])
        for (key, one, other), verdict in _with(pairs, verdicts):
            if not self.rules.compares_keys:
                self.items.append(_changed(verdict, key, one, other))
            self._add(Verdict.DUPLICATE, key, other, other.right - one.left)
            self._add(Verdict.MISSING, key, one, one.left - other.right)

    def judge_added(self) -> None:
        rest: list[Keyed] = []
        for key, one in ((key, one) for key, added in self.added.items() for one in added):
            if self._is_late(key):
                self._add(Verdict.LATE, key, one, one.right)
            else:
                rest.append((key, one))
        for (key, one), verdict in _with(rest, self.rules.only_target([one for _, one in rest])):
            self._add(verdict, key, one, one.right)

    def _is_late(self, key: Key | None) -> bool:
        return key is not None and (self.rules.is_late_key(key) or (self.rules.replaces and key in self.late))

    def _add(self, verdict: Verdict, key: Key | None, one: Unbalanced, count: int) -> None:
        if count > 0:
            self.items.append(Item(verdict, key, tuple(one.left_at), tuple(one.right_at), count))


T = TypeVar("T")


def _with(rows: Sequence[T], verdicts: Sequence[Verdict]) -> Iterable[tuple[T, Verdict]]:
    return zip(rows, verdicts, strict=True)


def _order(item: Item) -> tuple[int, bool, int, str, str]:
    key = item.key or ""
    place = (item.source or item.target or [""])[0]
    return list(Verdict).index(item.verdict), not key.isdigit(), int(key) if key.isdigit() else 0, key, place


def _changed(verdict: Verdict, key: Key, one: Unbalanced, other: Unbalanced) -> Item:
    item = Item(verdict, key, tuple(one.left_at), tuple(other.right_at), min(one.left, other.right))
    return replace(item, detail=difference(one.row, other.row))


def _same_data(rows: Iterable[Unbalanced]) -> list[Unbalanced]:
    """Rows whose texts differ and whose data do not are one row; those that both sides hold equally often fall away."""
    groups: dict[object, list[Unbalanced]] = defaultdict(list)
    made: list[Unbalanced] = []
    for one in rows:
        value = payload_of(one.row)
        if value is None:
            made.append(one)
        else:
            groups[canonical_json(value)].append(one)
    for group in groups.values():
        whole = Unbalanced(
            sum(one.left for one in group),
            sum(one.right for one in group),
            sum(one.tail for one in group),
            [at for one in group for at in one.left_at],
            [at for one in group for at in one.right_at],
            group[0].row,
            group[0].key,
        )
        if whole.left != whole.right:
            made.append(whole)
    return made
