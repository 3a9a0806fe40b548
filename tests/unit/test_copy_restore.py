"""How far a partition was copied, by its offset map alone; and the order in which a position without records is committed."""

from pathlib import Path
from types import TracebackType
from typing import ClassVar

import pytest

from playhead.errors import Refused
from playhead.kafka import copying
from playhead.kafka.copying import advance
from playhead.kafka.groups import Committed
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline, TopicPartition
from playhead.pipeline.copy.offset_map import FIRST, MapFile
from playhead.pipeline.copy.positions import Mark
from playhead.pipeline.copy.restore import Restoring, find_owner, last_committed, write_owner

ONE, TWO, THREE = (letter * 12 for letter in "abc")
CHAIN = [MapFile(0, 0, 10, FIRST, ONE), MapFile(0, 10, 20, ONE, TWO)]
FOLDER = Path("map")


def test_a_file_that_another_one_follows_was_committed_and_the_last_is_looked_up():
    asked = []

    def is_committed(file: MapFile) -> bool:
        asked.append(file.token)
        return True

    assert last_committed(FOLDER, CHAIN, is_committed) == CHAIN[1]
    assert asked == [TWO]
    assert last_committed(FOLDER, CHAIN, lambda file: False) == CHAIN[0]


def test_of_two_attempts_the_committed_one_counts():
    attempts = [MapFile(0, 0, 10, FIRST, ONE), MapFile(0, 0, 8, FIRST, TWO)]
    assert last_committed(FOLDER, attempts, lambda file: file.token == TWO) == attempts[1]
    assert last_committed(FOLDER, attempts, lambda file: False) is None


def test_a_chain_without_its_beginning_is_refused():
    with pytest.raises(Refused, match=f"the file {ONE} of partition 0 is missing"):
        last_committed(FOLDER, CHAIN[1:], lambda file: True)


def test_a_map_of_other_topics_with_the_same_names_is_of_another_copy(tmp_path):
    assert find_owner(tmp_path / "none") is None
    write_owner(tmp_path, Mark("source", "target", 2, "", ONE))
    assert Restoring("source", "target", "orders2", tmp_path).is_owner
    assert not Restoring("source", "made again", "orders2", tmp_path).is_owner


class FakeProducer:
    events: ClassVar[list[str]] = []

    def __init__(self, *_: object) -> None:
        self.events.append("fence")

    def __enter__(self) -> "FakeProducer":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def begin(self) -> None:
        self.events.append("begin")

    def send_offsets(self, group: str, offsets: object) -> None:
        self.events.append("offsets")

    def commit(self) -> None:
        self.events.append("commit")


def test_a_position_is_compared_after_earlier_producers_are_fenced(monkeypatch):
    """The other way round an earlier copier could commit between the comparison and the fence, and be rewound."""
    monkeypatch.setattr(copying, "TransactionalProducer", FakeProducer)
    positions = {"group": {TopicPartition("orders", 0): Committed(5)}}

    def moved() -> None:
        FakeProducer.events.append("check")
        raise Refused("moved")

    with pytest.raises(Refused, match="moved"):
        advance(ClientSettings({}), "id", positions, moved, Deadline(5))
    assert FakeProducer.events == ["fence", "check"]
