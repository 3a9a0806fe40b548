"""The part of a topic that is copied, and how the same words continue it."""

from hypothesis import given
from hypothesis import strategies as st

from playhead.cli.topic_copy import part_of
from playhead.pipeline.copy.job import Part

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
