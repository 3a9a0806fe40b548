"""The values of an audit: what was compared, and one item for everything that differs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

FORMAT = 1  # of the JSON of an audit, which `repair` reads


class Verdict(StrEnum):
    MISSING = "missing"
    DUPLICATE = "duplicate"
    CHANGED = "changed"
    EXTRA = "extra"  # in the target, and gone at the source
    LATE = "late"  # above the line up to which the tiers are compared
    EXPIRED = "expired"  # below the start of the log: it cannot be compared any more
    GAP = "benign gap"  # markers, aborted and compacted records, older versions of a row


FINDINGS = (Verdict.MISSING, Verdict.DUPLICATE, Verdict.CHANGED, Verdict.EXTRA)


class Hop(StrEnum):
    NOT_PRODUCED = "read but not produced"
    NOT_DELIVERED = "produced but not delivered"
    GONE = "delivered and gone"


@dataclass(frozen=True, slots=True)
class Item:
    """One row that differs. `source` and `target`: where it is in the two tiers; empty where it is not. `count`: how many copies
    there are too many or too few. `run` and `range`: which run moved it, as far as the ledger knows."""

    verdict: Verdict
    key: str | None
    source: Sequence[str] = ()
    target: Sequence[str] = ()
    count: int = 1
    hop: Hop | None = None
    run: str | None = None
    range: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Faulty:
    """A fault of the ledger's own arithmetic: a hole, an overlap, counts that do not agree."""

    range: str
    what: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tiers of a pipeline that were compared. `level`: how far it had to go. `line`: up to where, in words. `error`: why it
    could not be compared; then nothing is known. `counts`: by verdict; `items` may be fewer. `more`: rows that differ and
    were not judged. `facts`: what a repair compares before it begins."""

    pipeline: str
    source: str
    target: str
    level: int = 0
    source_rows: int | None = None
    target_rows: int | None = None
    suspects: int = 0
    buckets: Sequence[int] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    items: Sequence[Item] = ()
    more: int = 0
    faults: Sequence[Faulty] = ()
    line: str = ""
    notes: Sequence[str] = ()
    error: str | None = None
    seconds: float = 0.0
    kind: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def findings(self) -> int:
        return len(self.faults) + sum(self.counts.get(verdict.value, 0) for verdict in FINDINGS)

    @property
    def verdict(self) -> str:
        if self.error is not None:
            return "not compared"
        return "findings" if self.findings else "clean"


@dataclass(frozen=True, slots=True)
class Audit:
    """`id`: unique; `hash_version`: of the rules of the canonical row."""

    id: str
    made: str
    cluster: str
    hash_version: int
    pairs: Sequence[Pair]

    @property
    def exit_code(self) -> int:
        """0: clean. 1: findings. 3: something could not be compared, which is never clean."""
        if any(pair.error is not None for pair in self.pairs) or not self.pairs:
            return 3
        return 1 if any(pair.findings for pair in self.pairs) else 0


def counted(items: Sequence[Item]) -> Counter[str]:
    """Rows by verdict."""
    counts: Counter[str] = Counter()
    for item in items:
        counts[item.verdict.value] += item.count
    return counts
