"""Checks what may be claimed, committed and moved.

Nothing here queries the database: each check compares the request with what was read. A refusal names the offsets that would be
delivered twice or not at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from playhead.errors import Invalid, Refused
from playhead.ledger.model import ClosedRange, Done, RangeClaim, SinkMove, SinkPosition
from playhead.model import TopicPartition
from playhead.model.position import INT64_MAX, INT64_MIN
from playhead.model.ranges import Log

Positions = Mapping[TopicPartition, SinkPosition]
Claims = Mapping[TopicPartition, RangeClaim]
Recorded = Mapping[Log, Sequence[tuple[int, ClosedRange]]]
_PLAN_AGAIN = "read the positions again and plan from there"
_RECREATED = "set the position at which to start reading the new topic: `playhead offsets set`"


# Without stored values


def check_offsets(offsets: Mapping[Log, int]) -> None:
    _once(offsets)
    for log, offset in offsets.items():
        if not 0 <= offset <= INT64_MAX:
            raise Invalid(f"{log.place}: {offset} is not an offset")


def check_wanted(wanted: Sequence[RangeClaim]) -> list[Log]:
    logs = [one.range.log for one in wanted]
    _once(logs)
    for one in wanted:
        if one.range.end > INT64_MAX:
            raise Invalid(f"{one.range} ends after the largest possible offset")
    return logs


def check_moves(moves: Sequence[SinkMove]) -> None:
    _once(move.log for move in moves)
    for move in moves:
        for offset in (move.before, move.after):
            if offset is not None:
                check_offsets({move.log: offset})


def check_done(done: Sequence[Done]) -> None:
    """The ranges of each claim must begin at its start, have no gap, stay inside it, and reach its end if it closes."""
    _once(one.range.log for one, _ in done)
    for one, closed in done:
        for each in closed:
            _check_closed(one, each)
        ends = [one.range.start, *(each.range.end for each in closed)]
        for end, each in zip(ends, closed, strict=False):
            if each.range.start != end:
                raise Refused(
                    f"{each.range} does not begin at {end}, the end of the previous closed range", _PLAN_AGAIN
                )
        if one.closes and ends[-1] != one.range.end:
            raise Refused(
                f"{one.range} was claimed to its end, but is closed only to {ends[-1]}",
                "an open claim is finished as it was claimed",
            )


def _check_closed(one: RangeClaim, closed: ClosedRange) -> None:
    if closed.range.log != one.range.log or closed.range.end > one.range.end:
        raise Refused(f"{closed.range} is not inside the claim {one.range}", _PLAN_AGAIN)
    if closed.count < 0 or closed.rejected < 0 or closed.count + closed.rejected > len(closed.range):
        raise Invalid(f"{closed.range} cannot hold {closed.count} records and {closed.rejected} rejected ones")
    for digest in (closed.hash_xor, closed.hash_sum):
        if not INT64_MIN <= digest <= INT64_MAX:
            raise Invalid(f"{closed.range}: {digest} is not a signed 64-bit digest")


def _once(logs: Iterable[Log]) -> None:
    ordered = sorted(log.place for log in logs)
    for one, other in pairwise(ordered):
        if one == other:
            raise Invalid(f"{one} is named twice")


# Against stored values


def unknown(starts: Mapping[Log, int], found: Positions) -> list[Log]:
    """The logs without a position. A log with a different position is refused."""
    known = {log: found.get(log.place) for log in starts}
    for log, position in known.items():
        if position is None:
            continue
        _check_incarnation(log, position)
        if position.next_offset != starts[log]:
            raise Refused(
                f"{log.place} is at {position.next_offset} in the ledger, not at {starts[log]}",
                "the ledger is authoritative for a sink; only a move changes it",
            )
    return [log for log, position in known.items() if position is None]


def check_known(offsets: Mapping[Log, int], found: Positions) -> None:
    for log in offsets:
        _check_incarnation(log, _position_of(log, found))


def is_new(one: RangeClaim, positions: Positions, claims: Claims) -> bool:
    """False: the same claim is open already."""
    opened = claims.get(one.range.place)
    if opened == one:
        return False
    check_position(one, positions)
    if opened is not None:
        raise Refused(
            f"{opened.range} is claimed and not finished, so {one.range} cannot be claimed"
            + ("" if opened.range != one.range else " differently"),
            "finish the open claim as it was claimed, or move the position",
        )
    return True


def check_position(one: RangeClaim, positions: Positions) -> None:
    position = _position_of(one.range.log, positions)
    _check_incarnation(one.range.log, position)
    where = f"the position is {position.next_offset}"
    if one.range.start > position.next_offset:
        raise Refused(f"{one.range} would leave a gap: {where}", _PLAN_AGAIN)
    if one.range.start < position.next_offset:
        how = "was delivered already" if one.range.end <= position.next_offset else "was delivered in part"
        raise Refused(f"{one.range} {how}: {where}", _PLAN_AGAIN)
    if one.generation != position.generation:
        what = f"{one.range} has generation {one.generation}, but generation {position.generation} is expected"
        raise Refused(what, _PLAN_AGAIN)


def are_open(done: Sequence[RangeClaim], claims: Claims) -> bool:
    return all(claims.get(one.range.place) == one for one in done)


def check_recorded(done: Sequence[Done], claims: Claims, recorded: Recorded) -> None:
    """Called when not all claims are open. Then this must be a retry: all of them must be committed with the same content."""
    for one, closed in done:
        opened = claims.get(one.range.place)
        if opened == one:
            raise Refused(f"{one.range} is open, but other claims of this commit are not", _PLAN_AGAIN)
        if opened is not None and opened.range.start <= one.range.start:
            raise Refused(f"{one.range} is not the open claim: {opened.range}", _PLAN_AGAIN)
        inside = [
            found
            for generation, found in recorded.get(one.range.log, ())
            if generation == one.generation and found.range.start in one.range
        ]
        if [_content(each) for each in inside] != [_content(each) for each in closed]:
            raise Refused(
                f"{one.range} is not claimed, and its recorded ranges differ from those to be committed",
                "playhead runs show lists what was delivered",
            )


def _content(closed: ClosedRange) -> tuple[object, ...]:
    outputs = tuple(tuple(output) for output in closed.outputs)
    return closed.range, closed.count, closed.hash_xor, closed.hash_sum, closed.rejected, outputs


def _position_of(log: Log, found: Positions) -> SinkPosition:
    position = found.get(log.place)
    if position is None:
        raise Refused(f"{log.place} has no position in the ledger", "adopt one first")
    return position


def _check_incarnation(log: Log, position: SinkPosition) -> None:
    if log.topic_id != position.topic_id:
        raise Refused(
            f"{log.topic} was deleted and recreated: the ledger has the topic id {position.topic_id or '(none)'}, "
            f"and the topic has {log.topic_id or '(none)'}",
            _RECREATED,
        )
