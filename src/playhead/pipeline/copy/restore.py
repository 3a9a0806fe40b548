"""Positions of a copy that the broker has forgotten, found again by the offset map.

A group without members loses the position of a partition some days after its last commit (`offsets.retention.minutes`), each
partition by itself. A partition without a position is not a new one if the map has files of it: started again it would be
copied twice. The map tells how far it was copied: up to the end of the last file whose records are committed. A file that
another one follows was committed. Of the last one a record is looked up in the target: all records of a file are one transaction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from playhead.errors import Busy, Refused
from playhead.files import replace_file
from playhead.kafka.client import Admin
from playhead.kafka.partitions import find_committed_at
from playhead.kafka.topic_configs import get_topic_settings
from playhead.kafka.topics import topic_ends
from playhead.model import Deadline, TopicPartition
from playhead.pipeline.copy.offset_map import FIRST, MapFile, OffsetMap, list_files
from playhead.pipeline.copy.positions import Mark, Position

OWNER = "copy.json"


def write_owner(folder: Path, mark: Mark) -> None:
    """Which copy the folder is of. Written before the first file of the map."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / OWNER, mark.with_token("").text.encode())


def find_owner(folder: Path) -> Mark | None:
    try:
        return Mark.find((folder / OWNER).read_text())
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Restoring:
    """`source_id`, `target_id`: of the topics of the copy. `folder`: of its map."""

    source_id: str
    target_id: str
    target: str
    folder: Path

    @property
    def is_owner(self) -> bool:
        """Whether the folder is of this copy, not of an earlier one between topics of the same names."""
        owner = find_owner(self.folder)
        return owner is not None and (owner.source, owner.target) == (self.source_id, self.target_id)

    def find(self, admin: Admin, partitions: Iterable[int], deadline: Deadline) -> dict[int, Position]:
        """The positions of those of these source partitions of which something was copied. `admin`: of the target's cluster."""
        if not self.is_owner:
            return {}
        files: dict[int, list[MapFile]] = {number: [] for number in partitions}
        for file in list_files(self.folder):
            if file.partition in files:
                files[file.partition].append(file)

        def is_committed(file: MapFile) -> bool:
            return self._is_committed(admin, file, deadline)

        found = {number: last_committed(self.folder, some, is_committed) for number, some in files.items() if some}
        return {number: Position(file.end, file.token) for number, file in found.items() if file is not None}

    def _is_committed(self, admin: Admin, file: MapFile, deadline: Deadline) -> bool:
        summary = OffsetMap(self.folder, {}).summary(file)
        wanted = {TopicPartition(self.target, place): last for place, (_, last, _) in summary.items()}
        ends = topic_ends(admin, self.target, summary, deadline)
        if any(ends[place.partition].stable <= last < ends[place.partition].high for place, last in wanted.items()):
            raise Busy(f"a transaction is open in {self.target}")
        reached = {place: last for place, last in wanted.items() if ends[place.partition].start <= last}
        found = find_committed_at(admin, reached, deadline)
        if any(found[place] == last for place, last in reached.items()):
            return True
        policy = get_topic_settings(admin, self.target, deadline)["cleanup.policy"].value or ""
        if len(reached) < len(wanted) or "compact" in policy:
            raise Refused(
                f"the position of source partition {file.partition} has expired, and {self.target} no longer shows whether the"
                f" offsets {file.start} to {file.end - 1} were copied",
                "copy to a new topic",
            )
        return False


def last_committed(folder: Path, files: Sequence[MapFile], is_committed: Callable[[MapFile], bool]) -> MapFile | None:
    """The last file of the chain of one source partition; None if no file was committed."""
    followed = {file.previous for file in files}
    if broken := followed - {FIRST} - {file.token for file in files}:
        raise Refused(
            f"the offset map in {folder} is not complete: the file {min(broken)} of partition {files[0].partition} is missing",
            "name the folder of the run that copied with --map",
        )
    by_previous: Mapping[str, list[MapFile]] = {
        token: [one for one in files if one.previous == token] for token in followed
    }
    token, last = FIRST, None
    while one := next(
        (file for file in by_previous.get(token, ()) if file.token in followed or is_committed(file)), None
    ):
        token, last = one.token, one
    return last
