"""Part 5: a topic of six partitions becomes one of two, while a producer writes to it. Its consumer group goes along."""

import re
import threading
from collections import Counter, defaultdict

from playhead.demo.stage import CONSOLE_CONSUMER, Stage
from playhead.errors import PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.groups import delete_groups, list_groups
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import delete_topic, list_topics
from playhead.kafka.transactions import PlainProducer
from playhead.model import Deadline

TOPIC, TARGET, GROUP = "demo-orders", "demo-orders-p2", "demo-billing"
CUSTOMERS, FIRST, READ = 50, 3_000, 2_000
ORDERS_PER_WRITE, PAUSE_SECONDS = 20, 0.1


class PartitionsAct:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.say = stage.say

    def run(self) -> None:
        self.clear()
        self.say(
            f"7. A producer writes orders to {TOPIC}, which has 6 partitions. The group {GROUP} has read some of them."
        )
        with Orders(self.stage.settings, TOPIC) as orders:
            self.stage.deadline.wait_for(lambda: orders.written >= FIRST, "the first orders")
            before = self.read_by_group(TOPIC, ("--max-messages", str(READ)))
            self.say("   Give it 2 partitions, while the producer goes on:")
            repeats = self.shrink()
        self.say(f"   The producer gets the new name: stop it, copy its last orders, start it with {TARGET}.")
        self.stage.playhead("topics", "shrink", TOPIC, "--finish", "--execute", exits=4)
        with Orders(self.stage.settings, TARGET, orders.written) as more:
            self.stage.playhead("topics", "shrink", TOPIC, "--finish", "--execute")
            wanted = more.written + ORDERS_PER_WRITE
            self.stage.deadline.wait_for(lambda: more.written >= wanted, "orders in the new topic")
        self.expect_orders(more.written)
        self.say("   Nothing lost, nothing duplicated.")
        self.expect_group(before, more.written, repeats)

    def clear(self) -> None:
        """Removes what an earlier demo left, also one that was interrupted."""
        self.stage.output_of("topics", "shrink", TOPIC, "--abort", "--execute")
        deadline = self.stage.deadline
        with Admin(self.stage.settings, deadline) as admin:
            if TARGET in list_topics(admin, deadline):
                delete_topic(admin, TARGET, deadline)
            if GROUP in {group.name for group in list_groups(admin, deadline)}:
                delete_groups(admin, [GROUP], deadline)
        self.stage.empty_topics([TOPIC], 6)

    def shrink(self) -> int:
        """Returns how many records the group will read again, as announced."""
        printed = self.stage.playhead("topics", "shrink", TOPIC, "--partitions", "2", "--execute", "-q")
        found = re.search(rf"{GROUP}: (no|\d+) record", printed)
        if found is None:
            raise PlayheadError(f"the demo expected that the position of {GROUP} is moved")
        return 0 if found[1] == "no" else int(found[1])

    def read_by_group(self, topic: str, until: tuple[str, ...]) -> list[str]:
        """By Kafka's own console consumer, which commits what it has read."""
        words = ("--bootstrap-server", self.stage.lab.bootstrap_servers, "--topic", topic, "--group", GROUP)
        return self.stage.lab.tool(CONSOLE_CONSUMER, *words, *_FROM_FIRST, *until).splitlines()

    def expect_orders(self, written: int) -> None:
        """Each order once, and those of a customer in their order."""
        seen = self.stage.consumed(TARGET, written)
        of_customer = defaultdict(list)
        for line in seen:
            number = int(line.split()[1])
            of_customer[number % CUSTOMERS].append(number)
        once = sum(count == 1 for count in Counter(seen).values())
        self.say(f"   {written} orders were written; kafka-console-consumer shows {once} of them once in {TARGET}")
        if set(seen) != {_order(number) for number in range(written)} or once != len(seen):
            raise PlayheadError(f"the demo expected each of {written} orders once")
        if any(numbers != sorted(numbers) for numbers in of_customer.values()):
            raise PlayheadError("the demo expected the orders of each customer in their order")

    def expect_group(self, before: list[str], written: int, repeats: int) -> None:
        after = self.read_by_group(TARGET, ("--timeout-ms", "5000"))
        again = len(before) + len(after) - written
        self.say(
            f"   {GROUP} read {len(before)} orders before and {len(after)} after: none is missing; {again} came again, and"
            f" {repeats} were announced before it was moved\n"
        )
        if len({*before, *after}) != written or again != repeats:
            raise PlayheadError(f"the demo expected that {GROUP} reads every order, and {repeats} of them again")


_FROM_FIRST = ("--isolation-level", "read_committed", "--command-property", "auto.offset.reset=earliest")


def _order(number: int) -> str:
    return f"order {number}"


class Orders:
    """A producer that writes to a topic until the block ends; the first ones at once. `written`: the number of the next order."""

    def __init__(self, settings: ClientSettings, topic: str, start: int = 0) -> None:
        self.written = start
        self._settings, self._topic = settings, topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, name="producer of the demo")
        self._error: PlayheadError | None = None

    def _write(self) -> None:
        try:
            while not self._end.wait(PAUSE_SECONDS):
                self._send(ORDERS_PER_WRITE if self.written else FIRST)
        except PlayheadError as error:
            self._error = error

    def _send(self, count: int) -> None:
        numbers = range(self.written, self.written + count)
        with PlainProducer(self._settings, Deadline(60)) as producer:
            for number in numbers:
                producer.produce(self._topic, b"customer %d" % (number % CUSTOMERS), _order(number).encode())
        self.written = numbers.stop

    def __enter__(self) -> "Orders":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
