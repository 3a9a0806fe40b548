"""The report of the doctor: findings, and notes about what could not be checked or needs no repair."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

SHOWN = 10  # findings of one kind and owner; a thousand keys with one fault are one fault


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind`: one stable word. `mend`: a repair command. One of Playhead's has no --execute: it only shows what it would do."""

    kind: str
    owner: str
    what: str
    mend: str


Said = Finding | str  # a text is a note


@dataclass(frozen=True, slots=True)
class Diagnosis:
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, said: Iterable[Said]) -> "Diagnosis":
        """Without duplicates, and at most `SHOWN` findings of one kind and owner."""
        unique = list(dict.fromkeys(said))
        counts: Counter[tuple[str, str]] = Counter()
        shown = []
        for finding in unique:
            if isinstance(finding, Finding):
                counts[finding.kind, finding.owner] += 1
                if counts[finding.kind, finding.owner] <= SHOWN:
                    shown.append(finding)
        more = [
            f"{owner}: {count - SHOWN} more findings of the kind {kind} are not listed"
            for (kind, owner), count in counts.items()
            if count > SHOWN
        ]
        return cls(tuple(shown), (*(note for note in unique if isinstance(note, str)), *more))
