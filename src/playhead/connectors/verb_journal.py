"""Who paused, resumed, stopped or restarted what, for requests that a server sent in the name of a user.

One file for each request, written before it is sent, in a folder of its own in the journal: `connectors undo` does not read it,
because a restart has no way back and a pause is undone by a resume.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from playhead import __version__
from playhead.config import Context
from playhead.errors import Invalid
from playhead.model import Result
from playhead.offsets.journal import Journal, save_entry, who_am_i

VERSION = 1


class VerbRecord(msgspec.Struct, frozen=True):
    """`what`: the verb, in words. `results` None: it was interrupted. Else name -> result and detail."""

    playhead_verbs: int
    id: str
    who: str
    program: str
    started: datetime
    what: str
    names: list[str]
    finished: datetime | None = None
    results: dict[str, tuple[str, str]] | None = None

    @property
    def summary(self) -> str:
        if self.results is None:
            return "not finished"
        found = [result for result, _ in self.results.values()]
        return ", ".join(f"{found.count(one)} {one}" for one in Result if one in found) or "nothing to do"


class VerbBook:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_context(cls, context: Context) -> "VerbBook":
        return cls(Journal.of_context(context).folder / "verbs")

    def begin(self, what: str, names: Sequence[str]) -> VerbRecord:
        """The record is on disk when this returns. Nothing may be sent before."""
        now = datetime.now(UTC)
        entry_id = f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}-{os.urandom(3).hex()}"
        record = VerbRecord(VERSION, entry_id, who_am_i(), f"playhead {__version__}", now, what, list(names))
        self._save(record, is_new=True)
        return record

    def finish(self, record: VerbRecord, results: Mapping[str, tuple[str, str]]) -> str:
        """Returns why the results could not be written; empty if they are on disk."""
        done = msgspec.structs.replace(record, finished=datetime.now(UTC), results=dict(results))
        try:
            self._save(done, is_new=False)
        except Invalid as error:  # what was to be done is done: the results must be reported
            return f"the results are not in the journal: {error.what}"
        return ""

    def newest_first(self) -> Iterator[VerbRecord]:
        """Each record is read when it is asked for; one that is damaged is an error."""
        for path in sorted(self.folder.glob("*.json"), reverse=True):
            try:
                found = msgspec.json.decode(path.read_bytes(), type=VerbRecord)
            except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
                raise Invalid(f"{path} cannot be read: {error}") from None
            if found.playhead_verbs != VERSION:
                raise Invalid(f"{path}: journal version {found.playhead_verbs} is not supported")
            yield found

    def _save(self, record: VerbRecord, *, is_new: bool) -> None:
        path = self.folder / f"{record.id}.json"
        save_entry(path, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n", is_new=is_new)
