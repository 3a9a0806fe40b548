"""Which new connector is an old one under another name: by class and by what it reads and writes."""

import pytest

from playhead.connectors.plan.renames import find_renames, is_same_pipeline

JDBC = {"connector.class": "io.JdbcSource", "connection.url": "jdbc:postgresql://db/shop", "table.whitelist": "orders"}
FILE = {"connector.class": "FileStreamSource", "file": "/data/a.txt", "topic": "a"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (FILE, FILE, True),
        (FILE, {**FILE, "name": "a", "batch.size": "9"}, True),
        (FILE, {**FILE, "file": " /data/a.txt "}, True),
        (FILE, {**FILE, "file": "/data/b.txt"}, False),
        (FILE, {**FILE, "connector.class": "FileStreamSink"}, False),
        (JDBC, {**JDBC, "poll.interval.ms": "9"}, True),
        (JDBC, {**JDBC, "table.whitelist": "codes"}, False),
        ({"connector.class": "X", "a": "1"}, {"connector.class": "X", "a": "2"}, False),
        ({"connector.class": "X", "a": "1"}, {"connector.class": "X", "a": "1", "name": "b"}, True),
        ({"file": "/data/a.txt"}, {"file": "/data/a.txt"}, False),
    ],
)
def test_the_same_data_by_the_same_class_is_the_same_pipeline(one, other, same):
    assert is_same_pipeline(one, other) is same


def test_only_an_unambiguous_pair_is_a_rename():
    other = {**FILE, "file": "/data/b.txt"}
    assert find_renames({"a2": FILE, "b2": other}, {"a": FILE, "b": other}) == {"a2": "a", "b2": "b"}
    assert find_renames({"a2": FILE}, {"a": FILE, "a1": FILE}) == {}
    assert find_renames({"a2": FILE, "a3": FILE}, {"a": FILE}) == {}
