"""The journal of connector applies: the state before and after, one file per apply, written before the first change.

It has a folder of its own in the journal of positions. Secrets are masked: a config whose literal secret was overwritten cannot
be restored from here. The plan reports that.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from playhead import __version__
from playhead.config import Context
from playhead.connectors.plan.model import IDLE, ConnectorsPlan, PlanRow
from playhead.errors import Invalid
from playhead.files import replace_file
from playhead.offsets.journal import Journal, who_am_i

RECORD_VERSION = 1


class Half(msgspec.Struct, frozen=True):
    """One side of a change. `config` None: not changed, or absent."""

    state: str | None = None
    config: dict[str, str] | None = None


class ApplyEntry(msgspec.Struct, frozen=True):
    name: str
    action: str
    before: Half
    after: Half
    undoable: bool
    result: str | None = None
    detail: str = ""


class ApplyRecord(msgspec.Struct, frozen=True):
    playhead_connectors: int
    id: str
    who: str
    program: str
    started: datetime
    kafka_cluster_id: str
    urls: list[str]
    entries: list[ApplyEntry]
    finished: datetime | None = None


class Book:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_context(cls, context: Context) -> "Book":
        return cls(Journal.of_context(context).folder / "connectors")

    def path(self, record: ApplyRecord) -> Path:
        return self.folder / f"{record.id}.json"

    def begin(self, plan: ConnectorsPlan) -> ApplyRecord:
        """The record is on disk when this returns. Nothing may be sent before."""
        started = datetime.now(UTC)
        record = ApplyRecord(
            RECORD_VERSION,
            f"{started:%Y%m%dT%H%M%S}-{os.urandom(3).hex()}",
            who_am_i(),
            f"playhead {__version__}",
            started,
            plan.cluster.kafka_cluster_id,
            list(plan.cluster.urls),
            [_entry(row) for row in plan.rows if row.action not in IDLE],
        )
        self._save(record)
        return record

    def finish(self, record: ApplyRecord, results: Mapping[str, tuple[str, str]]) -> ApplyRecord:
        """`results`: name -> result and detail."""
        entries = [
            msgspec.structs.replace(entry, result=results[entry.name][0], detail=results[entry.name][1])
            for entry in record.entries
        ]
        done = msgspec.structs.replace(record, entries=entries, finished=datetime.now(UTC))
        self._save(done)
        return done

    def _save(self, record: ApplyRecord) -> None:
        data = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path(record), data)
        except OSError as error:
            raise Invalid(
                f"the journal {self.folder} cannot be written ({error.strerror}), so nothing may be changed",
                "set `journal` in the context, or XDG_STATE_HOME, to a folder of your own",
            ) from None


def _entry(row: PlanRow) -> ApplyEntry:
    before = Half(row.running.state.value, _masked(row, row.running.config)) if row.running else Half()
    after = Half(row.state.value if row.state else None, _masked(row, row.wanted.config) if row.wanted else None)
    return ApplyEntry(row.name, row.action.value, before, after, row.is_undoable)


def _masked(row: PlanRow, config: Mapping[str, str]) -> dict[str, str]:
    return {key: row.secrets.masked(key, value) for key, value in config.items()}
