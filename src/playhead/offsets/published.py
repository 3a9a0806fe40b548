"""The commits of a group whose positions live in a ledger: whose they are, and what a run may make of them when it starts.

A run publishes the ledger's positions in the consumer group that Connect would use, so that every tool shows the true lag. Each
commit carries `playhead/<ledger>/<epoch>` as its metadata. The ledger is the truth and the group its copy, so a commit that is
neither where the ledger stands nor where it was last published means that somebody else delivered or moved something: refused.

What the rule counts on, in this order: a step is committed in the ledger, then published, then noted in the ledger as published;
and a run that was let in writes down what it adopted, and publishes every position, before its first step. Then the commit of a
run that was killed anywhere is at the published offset, at the position, or between them under our own mark. Whoever edits the
ledger's position asks this rule first, and notes the group's offset as published in the same transaction.
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
LEDGER_ID = "ledger-id"  # kept once for each pipeline, in its ledger


@dataclass(frozen=True, slots=True)
class Mark:
    """Who published: the ledger by its id, and the run in it by its epoch."""

    ledger: str
    epoch: int

    def __post_init__(self) -> None:
        if not _MARK.fullmatch(str(self)):
            raise Invalid(f"{self.ledger!r} with epoch {self.epoch} does not name a run of a ledger")

    def __str__(self) -> str:
        return f"playhead/{self.ledger}/{self.epoch}"

    @classmethod
    def find(cls, metadata: str) -> "Mark | None":
        """None: somebody else wrote this commit, Connect or a tool."""
        found = _MARK.fullmatch(metadata)
        return cls(found.group(1), int(found.group(2))) if found else None


class Held(NamedTuple):
    """What the ledger has for one partition. `position`: the next offset to deliver. `published`: what it last put into the
    group, or found there when it adopted the group's offset; None as long as there was neither."""

    position: int
    published: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """`adopted`: partitions that the ledger does not know, with the group's offset. They are to be written into the ledger as
    position and as published at once, before anything is delivered."""

    adopted: Mapping[TopicPartition, int] = field(default_factory=dict)


def judge_start(commits: Commits, held: Mapping[TopicPartition, Held], ledger: str, owner: str) -> Start:
    """Raises `Refused` where one partition cannot be explained. `commits` are those of the partitions that will be read;
    `ledger` is our own id, `owner` the connector for the hint.

    A partition that neither the ledger nor the group knows is in none of the answers: it begins where the connector says.
    """
    faults = {tp: said for tp, found in sorted(commits.items()) if (said := find_fault(found, held.get(tp), ledger))}
    if faults:
        named = "; ".join(f"{tp} {said}" for tp, said in list(faults.items())[:MOST_NAMED])
        more = f"; and {len(faults) - MOST_NAMED} more" if len(faults) > MOST_NAMED else ""
        raise Refused(
            f"the group of {owner} is not where the ledger left it: {named}{more}",
            f"`playhead offsets set {owner} ...` moves the ledger to where the group is; `playhead groups reset {owner}"
            " --to-ledger` puts the group back, and what others delivered beyond that is delivered again",
        )
    return Start({tp: found.offset for tp, found in commits.items() if tp not in held})


def find_fault(found: Committed, held: Held | None, ledger: str) -> str | None:
    """Why this commit cannot be explained by what the ledger knows; None if it can."""
    mark = Mark.find(found.metadata)
    if mark is not None and mark.ledger != ledger:
        # Even where the offsets agree: that ledger may have delivered more than it came to publish.
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
    was = "" if held.published in (None, held.position) else f" and was published at {held.published}"
    return f"is at {found.offset}, but the ledger is at {held.position}{was}"
