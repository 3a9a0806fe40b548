"""The positions of a copy: for each source partition the next offset, committed in the transaction of the records.

So they are in the cluster of the target, and a cluster accepts positions only for partitions that it has. Within one cluster the
position is that of the source partition. In another cluster the partitions of the target stand for those of the source: with two
of them, source partitions 0 and 1 are in the group of the copy, 2 and 3 in the group `GROUP:1`, 4 and 5 in `GROUP:2`.

Each position names both topics by their ids, and the number of partitions by which keys are placed. A commit is answered before
its position is visible in the group: a caller that needs the last one asks for decided positions.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from playhead.kafka.client import Admin
from playhead.kafka.groups import Commits, Committed, list_committed_of, list_decided
from playhead.model import Deadline, TopicPartition
from playhead.pipeline.copy.offset_map import FIRST


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The metadata of a committed position: which topics by their ids, the partitions of the target, which part of the source,
    and the token of the last file of the offset map."""

    source: str
    target: str
    partitions: int
    part: str
    token: str
    playhead_copy: int = 1

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    def with_token(self, token: str) -> "Mark":
        return msgspec.structs.replace(self, token=token)

    @classmethod
    def find(cls, metadata: str) -> "Mark | None":
        try:
            return msgspec.json.decode(metadata, type=cls)
        except msgspec.MsgspecError:
            return None


@dataclass(frozen=True, slots=True)
class Position:
    """Where the copy of one source partition continues, and the last file of its map."""

    offset: int
    token: str = FIRST


@dataclass(frozen=True, slots=True)
class PositionPlaces:
    """`topic`: for whose partitions positions are committed. `page`: how many it has; None if it is the source itself."""

    group: str
    topic: str
    page: int | None = None

    def of(self, partition: int) -> tuple[str, TopicPartition]:
        """The group and the partition that hold the position of a source partition."""
        page, at = (0, partition) if self.page is None else divmod(partition, self.page)
        return (f"{self.group}:{page}" if page else self.group), TopicPartition(self.topic, at)

    def groups(self, partitions: int) -> list[str]:
        """Those of a source with so many partitions."""
        return list(dict.fromkeys(self.of(number)[0] for number in range(partitions)))

    def by_group(self, positions: Mapping[int, Committed]) -> dict[str, Commits]:
        found: dict[str, Commits] = defaultdict(dict)
        for number, one in positions.items():
            group, place = self.of(number)
            found[group][place] = one
        return dict(found)

    def find(self, admin: Admin, partitions: int, deadline: Deadline) -> dict[int, Committed]:
        """What is visible now, by source partition. A copy that is committing may be further."""
        stored = list_committed_of(admin, self.groups(partitions), deadline)
        return self._by_partition(range(partitions), stored)

    def find_decided(self, admin: Admin, partitions: Iterable[int], deadline: Deadline) -> dict[int, Committed]:
        """Waits until no transaction is open that may change them; `Busy` if that takes too long. The transaction of a copier
        that was killed stays open until the next copier starts, or until it times out."""
        asked = list(partitions)
        wanted = self.by_group(dict.fromkeys(asked, Committed(0)))
        stored = {group: list_decided(admin, group, places, deadline) for group, places in wanted.items()}
        return self._by_partition(asked, stored)

    def _by_partition(self, partitions: Iterable[int], stored: Mapping[str, Commits]) -> dict[int, Committed]:
        found = {}
        for number in partitions:
            group, place = self.of(number)
            if (one := stored.get(group, {}).get(place)) is not None:
                found[number] = one
        return found
