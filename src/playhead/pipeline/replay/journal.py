"""The journal of replays: one file per `replay --execute`, on disk before the first object is replaced, with its outcomes after.

It is a folder of its own beside the entries of `offsets`, which can be undone. A replay has nothing to undo: it writes what was
there. A file without outcomes is a replay that was interrupted; the same command completes it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from playhead.config import Context
from playhead.errors import Invalid
from playhead.model.times import to_iso
from playhead.offsets.journal import Journal, save_entry, who_am_i

FOLDER = "replays"


@dataclass(frozen=True, slots=True)
class ReplayEntry:
    path: Path
    content: Mapping[str, Any]

    @property
    def id(self) -> str:
        return self.path.stem


def begin_entry(
    context: Context, pipeline: str, cluster: str, target: str, planned: Sequence[Mapping[str, Any]]
) -> ReplayEntry:
    now = datetime.now(UTC)
    name = f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}-{os.urandom(4).hex()}"
    content = {
        "playhead_replay": 1,
        "id": name,
        "who": who_am_i(),
        "started": to_iso(now),
        "pipeline": pipeline,
        "cluster": cluster,
        "target": target,
        "planned": list(planned),
    }
    entry = ReplayEntry(Journal.of_context(context).folder / FOLDER / f"{name}.json", content)
    save_entry(entry.path, _encoded(content), is_new=True)
    return entry


def finish_entry(entry: ReplayEntry, outcomes: Sequence[Mapping[str, Any]]) -> None:
    finished = {"finished": to_iso(datetime.now(UTC)), "outcomes": list(outcomes)}
    save_entry(entry.path, _encoded({**entry.content, **finished}), is_new=False)


def newest_entries(context: Context) -> Iterator[ReplayEntry]:
    for path in sorted((Journal.of_context(context).folder / FOLDER).glob("*.json"), reverse=True):
        try:
            content = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError) as error:
            raise Invalid(f"{path} cannot be read: {error}") from None
        yield ReplayEntry(path, content)


def _encoded(content: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
