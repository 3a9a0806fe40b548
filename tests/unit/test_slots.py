"""The slots of a session: taken together, in the order of the requests, given up when the connector is to stop."""

import threading

import pytest

pytest.importorskip("pyspark")

from playhead.model import Deadline
from playhead.pipeline.slots import Cancelled, Slots


def test_a_share_is_fair_and_never_nothing():
    slots = Slots(4)
    with slots.join() as one:
        assert one.share == 4
        with slots.join(), slots.join():
            assert one.share == 1


def test_requests_are_served_in_their_order_so_that_a_large_one_is_not_overtaken():
    slots, served = Slots(4), []
    user = slots.join()

    def take(count: int) -> None:
        with user.request(count) as ticket:
            ticket.wait()
            served.append(count)

    with user.request(1) as held:
        assert held.wait(0)
        large = threading.Thread(target=take, args=(4,))
        large.start()
        Deadline(5).wait_for(lambda: len(slots._waiting) == 1, "the large request", every=0.01)
        small = threading.Thread(target=take, args=(1,))
        small.start()
        Deadline(5).wait_for(lambda: len(slots._waiting) == 2, "the small request", every=0.01)
        assert served == [], "three slots are free, but the first in the queue wants four"
    large.join(5)
    small.join(5)
    assert served == [4, 1]


def test_more_slots_than_there_are_means_all_of_them():
    slots = Slots(2)
    with slots.join().request(7) as ticket:
        assert ticket.wait(0)
        assert ticket.count == 2


def test_a_request_that_is_given_up_makes_room_for_the_next():
    slots = Slots(2)
    one, other = slots.join(), slots.join()
    with one.request(2) as held:
        assert held.wait(0)
        with other.request(2) as waiting:
            assert not waiting.wait(0.01)
        with other.request(1) as again:
            assert not again.wait(0.01)
    with other.request(2) as free:
        assert free.wait(0)


def test_a_connector_that_is_to_stop_waits_for_no_slots():
    slots = Slots(1)
    busy, stopped = slots.join(), slots.join()
    with busy.request(1) as held:
        assert held.wait(0)
        threading.Timer(0.05, stopped.cancel).start()
        with pytest.raises(Cancelled), stopped.request(1) as ticket:
            ticket.wait(5)
        assert held.is_granted, "the others keep theirs"
    with busy.request(1) as ticket:
        assert ticket.wait(0)
    stopped.restore()
    with stopped.request(1) as ticket:
        assert ticket.wait(0)
