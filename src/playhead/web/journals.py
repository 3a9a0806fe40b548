"""What was changed by hand: moves of positions, changes of connectors, verbs, replays. One list, the newest first."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from playhead.config import Context
from playhead.connectors.journal import ApplyRecord, Book
from playhead.connectors.undo import HANDOVER
from playhead.connectors.verb_journal import VerbBook, VerbRecord
from playhead.errors import Invalid
from playhead.offsets.journal import Journal, JournalEntry
from playhead.pipeline.replay.journal import ReplayEntry, newest_entries
from playhead.web.handovers import UNDO_HANDOVER

MOST = 300


@dataclass(frozen=True, slots=True)
class Deeds:
    """`faults`: files that cannot be read; what is older than one of these is not shown."""

    entries: Sequence["Noted"]
    faults: tuple[str, ...] = ()

    def of(self, name: str) -> list["Noted"]:
        """Those that touched this pipeline: by its name, or by the group of a sink."""
        wanted = {name, f"group:connect-{name}"}
        return [one for one in self.entries if wanted & set(one.names)]


@dataclass(frozen=True, slots=True)
class Noted:
    """`kind`: positions, connectors, verbs or replays. `undo`: the kind of plan that leads back, if there is one. `command`: what
    leads back in a shell."""

    id: str
    kind: str
    at: datetime
    who: str
    what: str
    names: Sequence[str]
    outcome: str
    undo: str = ""
    command: str = ""


def read_deeds(context: Context, most: int = MOST) -> Deeds:
    books: tuple[tuple[Callable[[], Iterator[Any]], Callable[[Any], Noted]], ...] = (
        (Journal.of_context(context).newest_first, _of_positions),
        (Book.of_context(context).newest_first, _of_connectors),
        (VerbBook.of_context(context).newest_first, _of_verbs),
        (lambda: newest_entries(context), _of_replay),
    )
    found: list[Noted] = []
    faults: list[str] = []
    for read, noted in books:
        try:
            found.extend(noted(entry) for entry in islice(read(), most))  # those before a damaged one stay
        except Invalid as error:
            faults.append(error.what)
    return Deeds(sorted(found, key=lambda one: one.at, reverse=True)[:most], tuple(faults))


def _of_positions(entry: JournalEntry) -> Noted:
    many = len(entry.plan.changes)
    what = f"moved {many} position{'' if many == 1 else 's'}"
    return Noted(
        entry.id, "positions", entry.started, entry.who, what, entry.owners, entry.summary,
        "undo" if entry.may_have_changed else "",
    )  # fmt: skip


def _of_connectors(record: ApplyRecord) -> Noted:
    names = [entry.name for entry in record.entries]
    if record.may_have_changed and record.what.startswith(HANDOVER):
        undo = UNDO_HANDOVER
        return Noted(record.id, "connectors", record.started, record.who, record.what, names, record.summary, undo)
    back = f"playhead connectors undo {record.id}" if record.may_have_changed else ""
    return Noted(record.id, "connectors", record.started, record.who, record.what, names, record.summary, command=back)


def _of_verbs(record: VerbRecord) -> Noted:
    return Noted(record.id, "verbs", record.started, record.who, record.what, record.names, record.summary)


def _of_replay(entry: ReplayEntry) -> Noted:
    """There is nothing to undo: it wrote what was there. One without outcomes is completed by the same command."""
    found = entry.content
    results = Counter(str(row.get("result")) for row in found.get("outcomes", ()))
    outcome = ", ".join(f"{many} {result}" for result, many in sorted(results.items())) or "nothing to do"
    return Noted(
        entry.id, "replays", datetime.fromisoformat(found["started"]), found["who"], f"replay to {found['target']}",
        [found["pipeline"]], outcome if "finished" in found else "not finished",
    )  # fmt: skip
