"""The current contents of a checkpoint: the sources with their offsets, and notes for the user.

Commits are listed before offsets: if a query runs meanwhile, its new batch is shown as planned, never as a commit without
offsets.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from playhead.errors import PlayheadError
from playhead.model import Map, Position
from playhead.model.position import Scalar
from playhead.model.times import to_iso
from playhead.stores import Raw, Stored
from playhead.stores.checkpoint.batches import BatchLog
from playhead.stores.checkpoint.edit import find_cut_off
from playhead.stores.checkpoint.folder import Folder
from playhead.stores.checkpoint.log import (
    NO_OFFSET,
    CommitLog,
    MalformedLog,
    OffsetLog,
    find_flat_offset,
    find_initial_offsets,
    find_kafka_offsets,
    matches_crc,
    positions_of,
    query_id,
)

OWNER = "source-"
_OF_SPARK = {"metadata", "offsets", "commits", "sources", "state"}
_SHOWN_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class QuerySource:
    """One source of the query at one batch. `file`: the file with its offset. `where`: the same for display."""

    id: str
    text: str
    file: str
    where: Mapping[str, Scalar]

    @property
    def owner(self) -> str:
        return OWNER + self.id

    @property
    def is_kafka(self) -> bool:
        return find_kafka_offsets(self.text) is not None

    @property
    def is_editable(self) -> bool:
        return self.text == NO_OFFSET or self.is_kafka or find_flat_offset(self.text) is not None

    @property
    def offsets(self) -> dict[Map, Map | None]:
        return {position.partition: position.offset for position in self.positions}

    @property
    def positions(self) -> list[Position]:
        return positions_of(self.owner, self.text)

    def entries(self) -> Iterator[Stored]:
        """One line of the log holds all partitions of a source: the entries share its bytes."""
        notes: tuple[str, ...] = ()
        if not self.is_editable:
            notes = ("not a Kafka source, and its offset is not flat: shown as it is, cannot be edited",)
        elif not self.is_kafka:
            notes = ("not a Kafka source: its offset is shown as it is",)
        line = Raw(self.file.encode(), self.text.encode())
        for position in self.positions:
            yield Stored(position, self.where, notes, line)


@dataclass(frozen=True, slots=True)
class CheckpointView:
    batches: BatchLog
    sources: Mapping[str, QuerySource]
    log: OffsetLog | None
    notes: tuple[str, ...]

    @property
    def is_new(self) -> bool:
        """No query has run on it."""
        return self.batches.latest is None


def look(folder: Folder) -> CheckpointView:
    try:
        return _look(folder)
    except _Vanished:
        return _look(folder)  # a running query purged its logs during the read; one retry is enough


def _look(folder: Folder) -> CheckpointView:
    commits = folder.list_files("commits")
    offsets = folder.list_files("offsets")
    batches = BatchLog.of(offsets, commits)
    _check_metadata(folder, batches)
    position = batches.position
    if position is None:
        log, sources = None, _initial_sources(folder)
    else:
        log = read_log(folder, position)
        sources = sources_at(position, log, batches, offsets)
        _check_commit(folder, batches)
    files = {source.file for source in sources.values()}
    notes = [*batches.gaps(), *_planned_notes(folder, batches), *_source_notes(sources)]
    notes += [*_orphans("offsets", offsets, batches.offsets), *_orphans("commits", commits, batches.commits)]
    notes += [note for file in sorted(files) if (note := _crc_note(folder, file))]
    if cut_off := find_cut_off(folder, files):
        notes.append(cut_off)
    if batches.latest is None and not sources:
        notes.append(find_stranger(folder) or f"{folder.address} has no batch: no query has run there yet")
    return CheckpointView(batches, sources, log, tuple(notes))


def read_log(folder: Folder, batch: int) -> OffsetLog:
    data = folder.find(f"offsets/{batch}")
    if data is None:
        raise _Vanished(
            f"offsets/{batch}", "it disappeared during the read", "a running query purges old batches; retry"
        )
    return OffsetLog.from_bytes(data, f"offsets/{batch}")


def sources_at(
    batch: int, log: OffsetLog, batches: BatchLog, written: Mapping[str, datetime]
) -> dict[str, QuerySource]:
    where: dict[str, Scalar] = {"batch": batch, "committed": batch in batches.commits}
    where["written"] = to_iso(written[str(batch)])
    found = (QuerySource(source, text, f"offsets/{batch}", where) for source, text in log.sources.items())
    return {source.owner: source for source in found}


def find_stranger(folder: Folder) -> str | None:
    """Why a folder without batches is not a new checkpoint; None if it may be one."""
    names = [name for name in (*folder.list_folders(""), *folder.list_files("")) if not name.startswith(".")]
    unknown = sorted(name for name in names if name not in _OF_SPARK)
    return f"{folder.address} is neither empty nor a checkpoint: it has {unknown[0]}" if unknown else None


def newest_file(folder: Folder) -> tuple[str, datetime] | None:
    found = [
        (f"{place}/{name}", written)
        for place in ("offsets", "commits")
        for name, written in folder.list_files(place).items()
        if name.isdigit()
    ]
    return max(found, key=lambda pair: pair[1], default=None)


class _Vanished(MalformedLog):
    pass


def _check_metadata(folder: Folder, batches: BatchLog) -> None:
    data = folder.find("metadata")
    if data is not None:
        query_id(data)
    elif batches.offsets or batches.commits:
        raise MalformedLog(
            "the checkpoint",
            "its file metadata is missing, although there are batches. Spark would give the query a new id (4.2 refuses to"
            " start), and a sink that identifies the query by its id would write all records twice",
            'restore metadata, {"id":"..."}, from a copy or from the query\'s log',
        )


def _check_commit(folder: Folder, batches: BatchLog) -> None:
    """Spark reads the newest commit when it starts, and fails if it cannot."""
    if batches.committed is not None:
        data = folder.find(f"commits/{batches.committed}")
        if data is not None:
            CommitLog.from_bytes(data, f"commits/{batches.committed}")


def _initial_sources(folder: Folder) -> dict[str, QuerySource]:
    found = {}
    for source in folder.list_folders("sources"):
        file = f"sources/{source}/0"
        data = folder.find(file)
        text = None if data is None else find_initial_offsets(data, file)
        if text is not None:
            where = {"file": file, "written": to_iso(folder.list_files(f"sources/{source}")["0"])}
            found[OWNER + source] = QuerySource(source, text, file, where)
    return found


def initial_entries(folder: Folder) -> Iterator[Stored]:
    for source in _initial_sources(folder).values():
        yield from source.entries()


def _planned_notes(folder: Folder, batches: BatchLog) -> Iterator[str]:
    for batch in reversed(batches.planned):
        try:
            ends = read_log(folder, batch).sources
        except PlayheadError as error:
            yield f"batch {batch} is planned, not committed, and a restart fails: {error.what}"
            continue
        shown = "; ".join(f"{OWNER}{source} {_shown(text)}" for source, text in ends.items())
        yield f"batch {batch} is planned, not committed: a restart re-runs it up to {shown}"


def _shown(text: str) -> str:
    kafka = find_kafka_offsets(text)
    if kafka is None:
        return text if len(text) <= 80 else text[:77] + "..."
    ends = [
        f"{topic}-{number} at {at}" for topic, found in sorted(kafka.items()) for number, at in sorted(found.items())
    ]
    more = len(ends) - _SHOWN_PARTITIONS
    return ", ".join(ends[:_SHOWN_PARTITIONS]) + (f" and {more} more" if more > 0 else "")


def _source_notes(sources: Mapping[str, QuerySource]) -> Iterator[str]:
    for owner, source in sources.items():
        if source.text == NO_OFFSET:
            yield f"{owner} has no offset yet: it starts where the query began"
        elif source.is_kafka and not source.positions:
            yield f"{owner} has an empty offset: Spark reads every partition as new, from its earliest record"


def _orphans(place: str, names: Mapping[str, datetime], batches: frozenset[int]) -> Iterator[str]:
    """Checksums of batches that were removed manually: Hadoop does not rename a new checksum over them."""
    for name in sorted(names):
        matched = re.fullmatch(r"\.(0|[1-9]\d*)\.crc", name, re.ASCII)
        if matched and int(matched.group(1)) not in batches:
            yield f"{place}/{name} belongs to a file that is missing: Spark fails when it writes that batch again; remove it"


def _crc_note(folder: Folder, file: str) -> str | None:
    parent, _, name = file.rpartition("/")
    crc, data = folder.find(f"{parent}/.{name}.crc"), folder.find(file)
    if crc is None or data is None or matches_crc(data, crc):
        return None
    return f"{file} does not match its checksum file: it was changed manually"


# What a moved checkpoint means for the query's sink. The checkpoint does not name its sink, so all kinds are covered; what is
# visible comes first. The messages on the file sink, state and foreachBatch were verified on Spark 4.0; those on Delta and
# Iceberg follow their documentation.

_MOVED = (
    "foreachBatch gets repeated records with new batch ids: code that records ids writes them twice, an upsert does not",
    "a file sink writes repeated records as new files next to the old ones",
    "Delta and Iceberg treat repeated records as new: their batch ids are higher than the last recorded one",
    "the Kafka sink writes repeated records again",
)
_NEW = (
    "a file sink skips batches whose ids are already in its _spark_metadata: use a new output folder for the new checkpoint",
    "Delta and Iceberg identify a query by the id in its checkpoint: a new id is a new query, and repeats are stored twice",
    "foreachBatch gets batch ids from 0 on again: code that records ids skips them",
)


def warnings_of(folder: Folder, view: CheckpointView) -> list[str]:
    if view.is_new:
        return list(_NEW)
    return [*_seen(folder, view), *_MOVED]


def _seen(folder: Folder, view: CheckpointView) -> Iterator[str]:
    for batch in reversed(view.batches.planned):
        yield (
            f"batch {batch} is planned, not committed. If the sink has it already, it silently skips the new batch {batch}"
            " (file sink, Delta, Iceberg, any sink that records ids), and those records are lost to it."
            f" Start the query once, so that it finishes batch {batch}, and then move it"
        )
    if operators := folder.list_folders("state"):
        yield (
            f"the query has state (operator {', '.join(operators)} in state/), which is not moved: aggregates count"
            " repeated records again, deduplication and joins have already seen them"
        )
    if view.log is not None and view.log.watermark_ms > 0:
        watermark = datetime.fromtimestamp(view.log.watermark_ms / 1000, UTC)
        yield f"the watermark stays at {to_iso(watermark)}: older records are late when they are read again, and are dropped"
    if folder.has_above("_spark_metadata"):
        yield "the checkpoint is in the output folder of a file sink (_spark_metadata is next to it)"
    if folder.has_above("_delta_log"):
        yield "the checkpoint is in the folder of a Delta table (_delta_log is next to it)"
