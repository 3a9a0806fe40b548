"""The part of a topic that is copied, and how the same words continue it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.cli.topic_copy import part_of
from playhead.config import Context
from playhead.errors import Refused
from playhead.kafka.groups import Committed
from playhead.kafka.topics import Partition, Topic
from playhead.model import Deadline, TopicPartition
from playhead.pipeline.copy import job as job_module
from playhead.pipeline.copy.job import Job, Part, Request
from playhead.pipeline.copy.offset_map import map_folder
from playhead.pipeline.copy.positions import Mark

BOUND = st.none() | st.integers(0, 2**62)


@given(st.builds(Part, BOUND, BOUND, BOUND, BOUND))
def test_a_part_is_read_back_from_its_text(part):
    assert Part.parse(str(part)) == part


def test_only_how_long_ago_depends_on_the_clock():
    assert part_of(("time>=1h", "offset<5")).is_relative
    assert not part_of(("time>=2026-01-31", "offset<5")).is_relative


def test_a_part_that_depends_on_the_clock_keeps_the_bounds_that_it_began_with():
    later = Part(to_offset=5, from_ms=90, is_relative=True)
    assert str(later.continued("offset<5 time>=40")) == "offset<5 time>=40"
    assert str(later.continued("offset<6 time>=40")) == "offset<5 time>=90"
    assert str(later.continued("time>=40")) == "offset<5 time>=90"
    assert str(Part(from_ms=90).continued("time>=40")) == "time>=90"


NAME = st.text("a-", min_size=1, max_size=6)


@given(st.tuples(NAME, NAME), st.tuples(NAME, NAME))
def test_two_copies_never_share_the_folder_of_a_map(one, other):
    folders = [map_folder(Context(None, {}), Path("maps"), "cluster", *names) for names in (one, other)]
    assert (folders[0] == folders[1]) == (one == other)


@pytest.mark.parametrize("topic", ["a", "a-b"])
def test_a_copy_whose_names_make_the_group_of_another_one_is_refused(monkeypatch, topic):
    place, mark = TopicPartition(topic, 0), Mark("source", "target", 1, "", "0").text
    stored = {"playhead-copy-a-b-c": {place: Committed(5, mark), TopicPartition("more", 0): Committed(1, "of a user")}}
    monkeypatch.setattr(job_module, "list_committed_of", lambda admin, groups, deadline: stored)
    source = Topic("a", "source", is_internal=False, partitions=(Partition(0, 1, (1,), (1,)),))
    job, admin = Job(Request("a", "b-c"), source, "cluster", False, None, 1), Any
    if topic == "a":
        job_module._check_alone(admin, job, Deadline(5))  # type: ignore[arg-type]
    else:
        with pytest.raises(Refused, match="has the positions of another copy, of a-b"):
            job_module._check_alone(admin, job, Deadline(5))  # type: ignore[arg-type]
