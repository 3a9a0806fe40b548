"""The checkpoint of a Spark Structured Streaming query: `checkpoint:PATH`, local or `checkpoint:s3://bucket/path`.

One owner per source of the query, `source-0`, `source-1`, ... in the order of its plan; in offset log v2 `source-ID`. A position
is the start of the next batch: the offsets of the last committed batch, or, if there is none, the initial offsets of the query
(`sources/I/0`). A batch that is planned and not committed is re-run as it is; it gets a note and is never shown as the position.

An edit rewrites the offsets of the last committed batch and removes planned ones (see `edit` for the steps and the state after a
crash). So batch ids continue to grow, and sinks that record them treat repeated records as new ones. An edit that exactly undoes
the last one also restores the planned batches that it removed. A folder that is missing or empty can be written too: a query that
is started with it begins at these positions, not at its `startingOffsets`.

A deleted partition is new to Spark: it is read from its earliest record, which must be 0 unless `failOnDataLoss` is false. A
checkpoint has no lock, and whether a query runs on it is unknown: the guard always requires `--query-is-stopped`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from playhead.errors import NotFound, PlayheadError, Refused
from playhead.model import Change, Deadline, Map, Outcome, Outcomes, Result
from playhead.stores import Access, Capabilities, Refusal, Snapshot, Stored, changes_by_owner
from playhead.stores.checkpoint.batches import BatchLog, MissingFile
from playhead.stores.checkpoint.edit import (
    BACKUPS,
    AppliedEdit,
    CheckpointEdit,
    apply_edit,
    edited_files,
    find_left_removed,
    find_restorable,
)
from playhead.stores.checkpoint.folder import Folder, open_folder
from playhead.stores.checkpoint.log import (
    NO_OFFSET,
    NO_PARTITIONS,
    OffsetLog,
    find_flat_offset,
    initial_bytes,
    with_positions,
)
from playhead.stores.checkpoint.view import (
    OWNER,
    CheckpointView,
    QuerySource,
    find_stranger,
    initial_entries,
    look,
    newest_file,
    read_log,
    sources_at,
    warnings_of,
)

SCHEME = "checkpoint:"
_JUST_NOW_SECONDS = 10


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    folder: Folder
    deadline: Deadline

    @property
    def uri(self) -> str:
        return SCHEME + self.folder.address

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(history=True)

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        view = look(self.folder)
        chosen = [source for owner, source in view.sources.items() if owners is None or owner in owners]
        return Snapshot(tuple(entry for source in chosen for entry in source.entries()), view.notes)

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        """The initial offsets and every batch that still exists, planned ones too. Spark keeps a hundred by default."""
        view = look(self.folder)
        written = self.folder.list_files("offsets")
        entries: list[Stored] = list(initial_entries(self.folder))
        notes = list(view.notes)
        for batch in sorted(view.batches.offsets):
            try:
                sources = sources_at(batch, read_log(self.folder, batch), view.batches, written)
            except PlayheadError as error:
                notes.append(f"batch {batch} is skipped: {error.what}")
                continue
            entries += [entry for source in sources.values() for entry in source.entries()]
        if edited := self._edited_batches(view):
            numbers = ", ".join(map(str, edited))
            notes.append(f"batch {numbers} was edited by Playhead: its original end is in {BACKUPS}")
        return Snapshot(tuple(e for e in entries if owners is None or e.position.owner in owners), tuple(notes))

    def _edited_batches(self, view: CheckpointView) -> list[int]:
        files = edited_files(self.folder)
        return sorted(batch for batch in view.batches.offsets if f"offsets/{batch}" in files)

    def guard(self, owners: Collection[str]) -> list[Refusal]:
        newest = newest_file(self.folder)
        if newest is None and self.folder.find("metadata") is None:
            return []  # no query ever ran here, so none runs now
        what = "whether a query still runs on this checkpoint is unknown"
        if newest is not None:
            file, written = newest
            age = (datetime.now(UTC) - written).total_seconds()
            if age < _JUST_NOW_SECONDS:
                what = f"{file} was written {max(age, 0):.0f} s ago: a query seems to run on this checkpoint"
        hint = "stop the query first: a running query ignores the edit and overwrites it"
        return [Refusal(owner, what, hint, "--query-is-stopped") for owner in owners]

    def write(self, changes: Sequence[Change]) -> Outcomes:
        if not changes:
            return Outcomes()
        self._prepare(changes)  # invalid changes fail before a folder is created
        with self.folder.locked():
            prepared = self._prepare(changes)
            applied = apply_edit(self.folder, prepared.edit) if prepared.edit.writes else None
        return Outcomes(prepared.outcome(change, applied) for change in changes)

    def rewind(self, batch: int) -> list[Change]:
        """The changes that move back to the position after this batch."""
        view = look(self.folder)
        committed = sorted(view.batches.offsets & view.batches.commits)
        if batch not in committed:
            if batch in view.batches.offsets:
                raise Refused(f"batch {batch} is not committed: there is no position after it yet")
            raise NotFound("committed batch", str(batch), [str(known) for known in committed])
        then = read_log(self.folder, batch).sources
        changes: list[Change] = []
        for owner, source in view.sources.items():
            target = QuerySource(source.id, then.get(source.id, NO_OFFSET), source.file, {})
            if target.text != source.text:
                changes += _changes_between(owner, source, target, batch)
        return changes

    def sink_warnings(self) -> list[str]:
        """What a move means for each kind of sink; what is visible in this checkpoint comes first."""
        return warnings_of(self.folder, look(self.folder))

    def find_missing(self) -> list[MissingFile]:
        """The files without which Spark does not start."""
        commits = self.folder.list_files("commits")  # before the offsets, as in `look`
        return BatchLog.of(self.folder.list_files("offsets"), commits).find_missing()

    def find_copy(self, path: str) -> str | None:
        """The newest copy of a file that an edit kept, or None."""
        names = reversed(self.folder.list_folders(BACKUPS))
        found = (f"{BACKUPS}/{name}/{path}" for name in names)
        return next((copy for copy in found if self.folder.find(copy) is not None), None)

    def restores(self, changes: Sequence[Change]) -> list[str]:
        """The planned batches that a write of these changes restores, because it undoes the last edit. For a plan."""
        try:
            found = self._prepare(changes).restores if changes else {}
        except PlayheadError:
            return []  # the write reports it
        return [f"batch {_number(path)}, planned, and removed by the last edit, is restored too" for path in found]

    def left_removed(self) -> list[str]:
        """What an undo that does not restore them has to say about planned batches."""
        left = find_left_removed(self.folder)
        return [left] if left else []

    def _prepare(self, changes: Sequence[Change]) -> "_Prepared":
        view = look(self.folder)
        view.batches.check_writable()
        if view.is_new and (unknown := find_stranger(self.folder)):
            raise Refused(unknown, "name the folder that is, or will be, the checkpointLocation of the query")
        refused: dict[str, str] = {}
        texts: dict[str, str] = {}
        for owner, own in changes_by_owner(changes).items():
            source = _source(view, owner)
            stored = source.offsets
            wanted = {c.partition: c.after for c in own if stored.get(c.partition) != c.after}
            if any(stored.get(c.partition) != c.before for c in own):
                refused[owner] = f"{owner} moved since the plan was created"
            elif wanted and (why := self._refusal(view, source, wanted)):
                refused[owner] = why
            elif wanted:
                texts[owner] = with_positions(source.text, wanted)
        prepared = _Prepared(view, refused, texts)
        return replace(prepared, restores=find_restorable(self.folder, prepared.edit.writes))

    def _refusal(self, view: CheckpointView, source: QuerySource, wanted: Mapping[Map, Map | None]) -> str | None:
        if not source.is_editable:
            return f"{source.owner} is not a Kafka source, and its offset is not flat: it cannot be edited here"
        before = view.batches.position
        after = next(iter(wanted.values()))
        if after is None or "logOffset" not in after or not before or before - 1 not in view.batches.offsets:
            return None
        earlier = find_flat_offset(read_log(self.folder, before - 1).sources.get(source.id, NO_OFFSET))
        least, number = earlier.get("logOffset") if earlier else None, after["logOffset"]
        if isinstance(least, int) and isinstance(number, int) and number < least:
            began = f"{least}, where batch {before} began"
            return f"{source.owner} is a file source: Spark does not start if it is moved before {began}"
        return None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A prepared write: the new text of each source that changes, and why others are refused."""

    view: CheckpointView
    refused: Mapping[str, str]
    texts: Mapping[str, str]
    restores: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def edit(self) -> CheckpointEdit:
        removes = [f"offsets/{batch}" for batch in self.view.batches.planned]
        return CheckpointEdit(removes, self._writes(), self.restores)

    def _writes(self) -> dict[str, bytes | None]:
        log: OffsetLog | None = self.view.log
        if log is None:
            return {
                self._file(owner): None if text == NO_PARTITIONS else initial_bytes(text)
                for owner, text in self.texts.items()
            }
        if not self.texts:
            return {}
        for owner, text in self.texts.items():
            log = log.with_source(owner.removeprefix(OWNER), text)
        return {f"offsets/{self.view.batches.position}": log.to_bytes()}

    def _file(self, owner: str) -> str:
        position = self.view.batches.position
        return f"sources/{owner.removeprefix(OWNER)}/0" if position is None else f"offsets/{position}"

    def outcome(self, change: Change, applied: AppliedEdit | None) -> Outcome:
        if change.owner in self.refused:
            return Outcome(change, Result.REFUSED, self.refused[change.owner])
        if applied is None or change.owner not in self.texts or change.before == change.after:
            return Outcome(change, Result.UNCHANGED)
        copies = f"copies of the old files: {applied.backup}" if applied.backup else ""
        fault = applied.fault.what if applied.fault else ""
        file = self._file(change.owner)
        if file in applied.done:
            restored = [f"batch {_number(path)} was restored" for path in self.restores if path in applied.done]
            return Outcome(change, Result.CHANGED, _sentence([*self._remarks(change), *restored, fault, copies]))
        if file in applied.unknown:
            return Outcome(change, Result.UNKNOWN, _sentence([fault, f"check {file}", copies]))
        return Outcome(change, Result.FAILED, _sentence([fault, "it still has the old position", copies]))

    def _remarks(self, change: Change) -> Iterator[str]:
        for batch in self.view.batches.planned:
            yield f"batch {batch}, planned and not committed, was removed"
        if change.after is not None:
            return
        if self.view.log is None and self.texts[change.owner] == NO_PARTITIONS:
            yield "the query starts at its startingOffsets"
        else:
            yield "Spark reads it as a new partition: from its earliest record, if that is 0 or failOnDataLoss is false"


def open_uri(uri: str, access: Access) -> SparkCheckpoint:
    folder = open_folder(uri.removeprefix(SCHEME), access.context, access.deadline)
    return SparkCheckpoint(folder, access.deadline)


def _source(view: CheckpointView, owner: str) -> QuerySource:
    found = view.sources.get(owner)
    if found is not None:
        return found
    name = owner.removeprefix(OWNER)
    if view.batches.position is None and owner.startswith(OWNER) and name.isascii() and name.isdigit():
        return QuerySource(str(int(name)), NO_OFFSET, f"sources/{int(name)}/0", {})
    known = list(view.sources) or [f"{OWNER}0"]
    raise NotFound("source", owner, known)


def _changes_between(owner: str, source: QuerySource, target: QuerySource, batch: int) -> Iterator[Change]:
    if not (source.is_editable and target.is_editable):
        raise Refused(f"{owner} is not a Kafka source, and its offset is not flat: it cannot be rewound here")
    now, then = source.offsets, target.offsets
    for partition in dict.fromkeys((*now, *then)):
        if now.get(partition) != then.get(partition):
            gone = "" if partition in then else f"did not exist after batch {batch}: Spark will read it as new"
            yield Change(owner, partition, now.get(partition), then.get(partition), gone)


def _number(path: str) -> str:
    return path.rpartition("/")[2]


def _sentence(parts: Sequence[str]) -> str:
    return "; ".join(part for part in parts if part)
