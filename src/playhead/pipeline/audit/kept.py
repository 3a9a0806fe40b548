"""The newest audit of each pipeline, kept in a folder beside the journal, where the page finds it.

Of the rows that differ only the first are kept: they are for people. `playhead repair` reads the JSON of the audit itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import msgspec

from playhead.config import Context
from playhead.errors import Invalid
from playhead.offsets.journal import Journal, save_entry
from playhead.pipeline.audit.model import FINDINGS, Audit, Faulty, Item, Pair

FOLDER = "audits"
MOST_ITEMS = 50


@dataclass(frozen=True, slots=True)
class KeptPair:
    """As of a `Pair`. `items`: the first rows that differ; `findings` counts all of them."""

    source: str
    target: str
    verdict: str
    level: int
    findings: int
    counts: Mapping[str, int]
    items: Sequence[Item]
    faults: Sequence[Faulty]
    line: str
    error: str | None


@dataclass(frozen=True, slots=True)
class KeptAudit:
    id: str
    made: str
    cluster: str
    pipeline: str
    pairs: Sequence[KeptPair]

    @property
    def verdict(self) -> str:
        """That of the worst pair: what was not compared is never clean."""
        found = {pair.verdict for pair in self.pairs}
        return next((word for word in ("findings", "not compared") if word in found), "clean")


def keep_audit(context: Context, audit: Audit) -> Audit:
    """Returns it with a note where it could not be kept: it is no reason to lose the audit."""
    by_name: dict[str, list[Pair]] = {}
    for pair in audit.pairs:
        by_name.setdefault(pair.pipeline, []).append(pair)
    try:
        for name, pairs in by_name.items():
            one = KeptAudit(audit.id, audit.made, audit.cluster, name, [_kept(pair) for pair in pairs])
            path = _folder(context) / f"{_word(name)}-{_word(audit.cluster)}.json"
            save_entry(path, msgspec.json.encode(one), is_new=False)
    except Invalid as error:
        note = f"the page does not get this audit: {error.what}"
        return replace(audit, pairs=[replace(pair, notes=[*pair.notes, note]) for pair in audit.pairs])
    return audit


def find_audits(context: Context, pipeline: str, cluster: str | None = None) -> list[KeptAudit]:
    """One of each Kafka cluster that has a pipeline of this name; or only that of one cluster."""
    found = []
    for path in sorted(_folder(context).glob(f"{_word(pipeline)}-{'*' if cluster is None else _word(cluster)}.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=KeptAudit))
        except (OSError, msgspec.MsgspecError) as error:
            raise Invalid(f"{path} cannot be read: {error}") from None
    return found


def _kept(pair: Pair) -> KeptPair:
    items = [item for item in pair.items if item.verdict in FINDINGS][:MOST_ITEMS]
    return KeptPair(
        pair.source,
        pair.target,
        pair.verdict,
        pair.level,
        pair.findings,
        pair.counts,
        items,
        list(pair.faults)[:MOST_ITEMS],
        pair.line,
        pair.error,
    )


def _folder(context: Context) -> Path:
    return Journal.of_context(context).folder / FOLDER


def _word(name: str) -> str:
    """A name may hold anything, also what a file name may not."""
    return sha256(name.encode()).hexdigest()[:24]
