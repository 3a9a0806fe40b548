"""Positions, plans, outcomes and the journal as rows: for the command line, the API and the pages."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.model import Change, Map, Outcome
    from playhead.offsets.journal import JournalEntry
    from playhead.offsets.show import ShownPosition
    from playhead.stores import Stored

Row = dict[str, Any]


def entry_row(entry: "Stored") -> Row:
    position = entry.position
    return {
        "owner": position.owner,
        "partition": position.partition.fields,
        "offset": position.offset.fields if position.offset is not None else None,
        **entry.where,
        "notes": entry.notes,
    }


def shown_row(shown: "ShownPosition") -> Row:
    position = shown.entry.position
    return {
        "position": shown.readable,
        "partition": position.partition.to_dict(),
        "offset": _fields(position.offset),
        "lag": shown.lag,
        **shown.entry.where,
        "notes": list(shown.entry.notes),
    }


def plan_row(change: "Change") -> Row:
    return {
        "owner": change.owner,
        "partition": change.partition.to_dict(),
        "before": _fields(change.before),
        "after": _fields(change.after),
        "note": change.note,
    }


def outcome_row(outcome: "Outcome") -> Row:
    return plan_row(outcome.change) | {"result": outcome.result.value, "detail": outcome.detail}


def journal_row(entry: "JournalEntry") -> Row:
    return {
        "id": entry.id,
        "started": entry.started.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "who": entry.who,
        "owners": entry.owners,
        "outcome": entry.summary,
        "store": entry.plan.store,
    }


def _fields(offset: "Map | None") -> Row | None:
    return None if offset is None else offset.to_dict()
