"""The commits of a group whose positions are in a ledger: who wrote them, and whether a run may start from them.

A run publishes the ledger's positions in the consumer group that Connect would use, so that every tool shows the true lag. Each
commit carries `playhead/<ledger>/<epoch>` as its metadata. The ledger is the source of truth and the group is a copy. A commit
that is neither at the ledger's position nor at the last published offset means that another process delivered records or moved
the group: the start is refused.

The rule depends on this order: a step is committed in the ledger, then published, then recorded in the ledger as published. A run
that may start records what it adopted, and publishes every position, before its first step. The commit of a run that was killed
at any point is then at the published offset, at the position, or between them with our own mark. An edit of the ledger's
position must check this rule first, and record the group's offset as published in the same transaction.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from playhead.errors import Invalid, Refused
from playhead.kafka.groups import Commits, Committed
from playhead.model import TopicPartition

_MARK = re.compile(r"playhead/([A-Za-z0-9._-]{1,200})/([0-9]{1,18})", re.ASCII)
MOST_NAMED = 3
LEDGER_ID = "ledger-id"  # stored once for each pipeline, in its ledger


@dataclass(frozen=True, slots=True)
class Mark:
    """The publisher of a commit: the id of the ledger, and the epoch of the run."""

    ledger: str
    epoch: int

    def __post_init__(self) -> None:
        if not _MARK.fullmatch(str(self)):
            raise Invalid(f"{self.ledger!r} with epoch {self.epoch} does not name a run of a ledger")

    def __str__(self) -> str:
        return f"playhead/{self.ledger}/{self.epoch}"

    @classmethod
    def find(cls, metadata: str) -> "Mark | None":
        """None: the commit was not published from a ledger, but written by Connect or a tool."""
        found = _MARK.fullmatch(metadata)
        return cls(found.group(1), int(found.group(2))) if found else None


class Held(NamedTuple):
    """The ledger's entry for one partition. `position`: the next offset to deliver. `published`: the offset that was last
    committed to the group, or adopted from it; None if neither happened yet."""

    position: int
    published: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """`adopted`: partitions without an entry in the ledger, with the group's offset. It must be written to the ledger as
    position and as published in one transaction, before anything is delivered."""

    adopted: Mapping[TopicPartition, int] = field(default_factory=dict)


def judge_start(commits: Commits, held: Mapping[TopicPartition, Held], ledger: str, owner: str) -> Start:
    """Raises `Refused` if the commit of a partition does not match the ledger. `commits`: of the partitions that will be read.
    `ledger`: our own id. `owner`: the connector, for the hint.

    A partition without position and commit is not in the result: it starts where the connector's configuration says.
    """
    faults = {tp: fault for tp, found in sorted(commits.items()) if (fault := find_fault(found, held.get(tp), ledger))}
    if faults:
        named = "; ".join(f"{tp} {fault}" for tp, fault in list(faults.items())[:MOST_NAMED])
        more = f"; and {len(faults) - MOST_NAMED} more" if len(faults) > MOST_NAMED else ""
        raise Refused(
            f"the group of {owner} is not where the ledger left it: {named}{more}",
            f"`playhead offsets set {owner} ...` moves the ledger to where the group is; `playhead groups reset {owner}"
            " --to-ledger` resets the group to the ledger, and records that others delivered after that are delivered again",
        )
    return Start({tp: found.offset for tp, found in commits.items() if tp not in held})


def find_fault(found: Committed, held: Held | None, ledger: str) -> str | None:
    """Why this commit does not match the ledger; None if it does."""
    mark = Mark.find(found.metadata)
    if mark is not None and mark.ledger != ledger:
        # Even if the offsets are equal: that ledger may have delivered more than it published.
        return f"is at {found.offset}, published by another ledger ({mark.ledger}, run {mark.epoch})"
    if held is None:
        if mark is None:
            return None
        return (
            f"is at {found.offset}, published by run {mark.epoch} of this ledger, which has no position for it any more"
        )
    if found.offset in (held.position, held.published):
        return None
    low, high = sorted((held.position, held.published or 0))
    if mark is not None and low <= found.offset <= high:
        return None
    last = "" if held.published in (None, held.position) else f" and last published {held.published}"
    return f"is at {found.offset}, but the ledger is at {held.position}{last}"
