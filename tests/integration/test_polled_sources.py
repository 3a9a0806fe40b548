"""Sources in Python on Spark: records and positions as Kafka's own consumer reads them, whatever the connector does."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

pytest.importorskip("pyspark")
from integration.ingesting import records_of
from integration.polled_sources import PolledSources
from playhead.kafka.transactions import PlainProducer
from playhead.ledger.model import RunState
from playhead.ledger.runs import open_ledger
from playhead.model import Deadline


@pytest.fixture(scope="module")
def polled(lab, spark, tmp_path_factory) -> Iterator[PolledSources]:
    folder = tmp_path_factory.mktemp("polled")
    with open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger:
        yield PolledSources(lab, spark, ledger, folder=folder)


def numbers(*pages):
    """Pages of records, given the ids of each."""
    return [[{"id": one} for one in page] for page in pages]


FILES = {"a": numbers([1, 2], [3], [4, 5]), "b": numbers([11], [12, 13]), "c": numbers([21])}
ALL = [1, 2, 3, 4, 5, 11, 12, 13, 21]


def positions_of(polled, name):
    """By source partition, as the newest record of the offsets topic has them."""
    found = {}
    for one in records_of(polled.lab, "connect-offsets"):
        if (one.key or b"").startswith(f'["{name}",'.encode()):  # other tests leave keys there that are not JSON
            found[json.loads(one.key or b"")[1]["file"]] = json.loads(one.value) if one.value else None
    return found


def test_records_and_positions_are_committed_and_a_second_run_repeats_nothing(polled, unique):
    name = unique("pages")
    folder = polled.pages(name, FILES)
    spec = polled.source(name, folder, **{"tasks.max": "2"})
    [done] = polled.polled(spec)
    assert (done.state, done.rows, done.error) == (RunState.FINISHED, 9, None)
    assert not any("connection(s) open" in note for note in done.notes)  # those of the Kafka client do not count
    assert sorted(json.loads(one)["id"] for one in polled.values(name)) == ALL
    assert [one.key for one in records_of(polled.lab, name) if one.value == b'{"id":21}'] == [b"21"]
    assert positions_of(polled, name) == {"a": {"page": 3}, "b": {"page": 2}, "c": {"page": 1}}
    polled.pages(name, {"b": numbers([11], [12, 13], [14]), "d": numbers([31])})
    [again] = polled.polled(polled.source(name, folder, **{"tasks.max": "4"}))  # other tasks, more files
    assert again.rows == 2
    assert polled.ids(name) == Counter([*ALL, 14, 31])
    assert positions_of(polled, name) == {"a": {"page": 3}, "b": {"page": 3}, "c": {"page": 1}, "d": {"page": 1}}
    chunks = polled.ledger.list_chunks(polled.prepared().home.cluster_id, name)
    assert sum(one.chunk.count for one in chunks) == 11
    assert {one.chunk.topic for one in chunks} == {name}


def test_schemas_transforms_and_converters_apply_as_to_every_source(polled, unique):
    name = unique("schemas")
    folder = polled.pages(name, {"a": [[{"id": 1, "name": "x", "amount": 1.5, "none": None}]]})
    own = {
        "value.converter.schemas.enable": "true",
        "transforms": "add,route",
        "transforms.add.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.add.static.field": "origin",
        "transforms.add.static.value": "here",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": "(.*)",
        "transforms.route.replacement": "$1-routed",
    }
    [done] = polled.polled(polled.source(name, folder, **own))
    assert done.error is None
    [value] = polled.values(f"{name}-routed")
    told = json.loads(value)
    assert told["payload"] == {"id": 1, "name": "x", "amount": 1.5, "none": None, "origin": "here"}
    assert [one["type"] for one in told["schema"]["fields"]] == ["int64", "string", "double", "string", "string"]


def test_headers_timestamps_and_partitions_are_those_of_the_records(polled, unique):
    name = unique("full")
    folder = polled.pages(name, {"a": numbers([1, 2, 3])})
    polled.make_topic(name, partitions=2)
    [done] = polled.polled(polled.source(name, folder, "Full"))
    assert done.error is None
    seen = {json.loads(one.value or b"")["id"]: one for one in records_of(polled.lab, name)}
    assert {at: one.partition for at, one in seen.items()} == {1: 1, 2: 0, 3: 1}
    assert {at: one.timestamp_ms for at, one in seen.items()} == {at: 1_700_000_000_000 + at for at in (1, 2, 3)}
    shown = polled.lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *["--bootstrap-server", polled.lab.bootstrap_servers, "--topic", name, "--from-beginning"],
        *["--max-messages", "3", "--formatter-property", "print.headers=true", "--timeout-ms", "20000"],
        *["--formatter-property", "print.value=false", "--command-property", "isolation.level=read_committed"],
    )
    assert shown.splitlines() == ["from:a"] * 3


# Its positions


def environment_of(polled):
    return {
        "PLAYHEAD_PLUGIN_PATH": str(polled.plugins),
        "PLAYHEAD_LEDGER": f"sqlite:///{polled.folder}/ledger.db",
        "PLAYHEAD_WORKER_CONFIG": str(polled.lab.worker_config),
        "PLAYHEAD_CONNECT": polled.lab.connect_urls[0],
    }


def test_a_connector_says_what_its_offsets_mean(polled, playhead, unique):
    """`offsets` and the doctor use its dialect; what is set is where it goes on, as Kafka's consumer shows."""
    name, other = unique("spoken"), unique("copied")
    folder = polled.pages(name, FILES)
    spec = polled.source(name, folder, "Spoken")
    [done] = polled.polled(spec)
    assert done.error is None

    def offsets(*words):
        return playhead("offsets", *words, env=environment_of(polled))

    shown = offsets("show", name).exits(0)
    assert "a: goes on with page 3" in shown.out
    assert "All pages of the file are read again." in shown.out + shown.err
    at = ["--partition", "file=a"]
    refused = offsets("set", name, "page=-1", *at, "--execute").exits(2)
    assert "page must be the number of the next page, not -1" in refused.err
    moved = offsets("set", name, "page=2", *at, "--execute").exits(0)
    assert "back: what lies between is read again" in moved.out + moved.err
    assert positions_of(polled, name)["a"] == {"page": 2}
    offsets("undo", "--execute").exits(0)
    assert positions_of(polled, name)["a"] == {"page": 3}
    deleted = offsets("reset", name, "--to-earliest", "--execute").exits(0)
    assert "All pages of the file are read again." in deleted.out + deleted.err
    assert set(positions_of(polled, name).values()) == {None}
    offsets("undo", "--execute").exits(0)
    offsets("set", name, "page=2", *at, "--execute").exits(0)
    offsets("copy", name, other, "--execute").exits(0)
    assert positions_of(polled, other) == {"a": {"page": 2}, "b": {"page": 2}, "c": {"page": 1}}
    assert [one.rows for one in polled.polled(spec)] == [2]  # the third page of `a`
    assert polled.ids(name) == Counter([*ALL, 4, 5])
    key = f'["{name}",{{"file":"a"}}]'.encode()
    [place, *_] = [one.partition for one in records_of(polled.lab, "connect-offsets") if one.key == key]
    with PlainProducer(polled.settings, Deadline(30)) as producer:  # as another tool would
        producer.produce("connect-offsets", key, b'{"page":"three"}', partition=place)
    found = [one for one in json.loads(offsets("doctor", "-o", "json").out) if one["owner"] == name]
    assert any("page must be the number of the next page, not 'three'" in json.dumps(one) for one in found), found


def test_positions_in_a_topic_of_the_connectors_own_are_edited_there(polled, playhead, unique):
    """Only the ledger knows this topic: no worker has the connector. Kafka's consumer shows where it goes on."""
    name, own = unique("own"), unique("own-offsets")
    folder = polled.pages(name, {"a": FILES["a"]})
    polled.make_topic(own, partitions=3)
    spec = polled.source(name, folder, **{"offsets.storage.topic": own})
    assert [one.rows for one in polled.polled(spec)] == [5]

    def edits(*words):
        return playhead("offsets", *words, "--execute", env=environment_of(polled)).exits(0)

    edits("set", name, "page=2")
    assert json.loads(records_of(polled.lab, own)[-1].value or b"") == {"page": 2}
    assert positions_of(polled, name) == {"a": {"page": 2}}
    assert [one.rows for one in polled.polled(spec)] == [2]
    edits("reset", name, "--to-earliest")
    assert [one.rows for one in polled.polled(spec)] == [5]
    assert polled.ids(name) == Counter([1, 2, 3, 4, 5, 4, 5, 1, 2, 3, 4, 5])
    polled.lab.tool(
        "org.apache.kafka.tools.TopicCommand",
        *["--bootstrap-server", polled.lab.bootstrap_servers, "--delete", "--topic", own],
    )
    edits("set", name, "page=1")  # the workers' topic still has its positions
    assert positions_of(polled, name) == {"a": {"page": 1}}


# What goes wrong


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("Raises", "poll raised ValueError: no such page (polled_pages.py, line"),
        ("Hangs", "poll has not returned for 1.5 s"),
        ("Strange", 'record 1 of the poll (after {"file":"a"} at {\'page\': 1}) is a dict: poll gives records'),
        ("Back", "goes back from the offset {'page': 1} to {'page': 0}"),
    ],
)
def test_a_task_that_fails_is_named_and_the_rest_goes_on(polled, unique, kind, said):
    name, other = unique(kind.lower()), unique("other")
    folder = polled.pages(name, FILES)
    own = {"tasks.max": "3", "bad.file": "a", "playhead.poll.timeout.ms": "1500"}
    bad, good = polled.polled(polled.source(name, folder, kind, **own), polled.source(other, folder))
    assert bad.state is RunState.FAILED
    assert bad.error is not None
    assert bad.error.what.startswith(f"{name}, task 0: ")
    assert said in bad.error.what
    assert good.error is None
    assert polled.ids(other) == Counter(ALL)
    # The first page of the bad task was committed, the second was not; the other tasks did all they had.
    assert polled.ids(name) == Counter([1, 2, 11, 12, 13, 21])
    assert positions_of(polled, name) == {"a": {"page": 1}, "b": {"page": 2}, "c": {"page": 1}}
    [done] = polled.polled(polled.source(name, folder))
    assert done.error is None
    assert polled.ids(name) == Counter(ALL)


def test_a_record_that_cannot_be_written_and_a_partition_of_two_tasks_are_named(polled, unique):
    name = unique("unwritable")
    folder = polled.pages(name, FILES)
    [bad] = polled.polled(polled.source(name, folder, "Unwritable", **{"bad.file": "a", "tasks.max": "3"}))
    assert bad.error is not None
    assert f"{name}, task 0: record 1 of the poll, for {name}, has a value of type object" in bad.error.what
    name = unique("shared")
    folder = polled.pages(name, FILES)
    [bad] = polled.polled(polled.source(name, folder, "Shared", **{"tasks.max": "2"}))
    assert bad.error is not None
    assert 'the source partition {"file":"all"} is read by task' in bad.error.what


def test_task_configs_that_hang_and_leaked_connections_are_named(polled, unique):
    name = unique("hanging")
    folder = polled.pages(name, FILES)
    [bad] = polled.polled(polled.source(name, folder, "NeverStarts", **{"playhead.poll.timeout.ms": "500"}))
    assert bad.error is not None
    assert bad.error.what == f"{name}: task_configs has not returned for 0.5 s"
    [leaky] = polled.polled(polled.source(name, folder, "Leaks"))
    assert leaky.error is None
    assert any("task 0 leaves" in note and "connection(s) open after stop" in note for note in leaky.notes)
    assert polled.ids(name) == Counter(ALL)


def test_a_source_that_is_away_for_a_moment_is_polled_again(polled, unique):
    name = unique("unavailable")
    [done] = polled.polled(polled.source(name, polled.pages(name, FILES), "Unavailable"))
    assert (done.state, done.rows) == (RunState.FINISHED, 9)
    assert any("503, come back later" in note for note in done.notes)
    assert polled.ids(name) == Counter(ALL)


# Transactions


def transactions_of(polled, name):
    """How many transactions brought the records of a topic: each leaves a marker in its only partition, which takes an offset."""
    offsets = sorted(one.offset for one in records_of(polled.lab, name))
    return sum(after - before > 1 for before, after in pairwise(offsets)) + 1


@pytest.mark.parametrize(
    ("boundary", "kind", "transactions", "committed"),
    [
        ("poll", "Pages", 5, [1, 2, 3, 4, 5, 11, 12, 13]),
        ("interval", "Pages", 1, [1, 2, 3, 4, 5, 11, 12, 13]),
        ("connector", "Defines", 2, [1, 2, 3, 4, 5, 11]),  # the fifth poll is not committed by the task
    ],
)
def test_transactions_end_where_the_boundary_says(polled, unique, boundary, kind, transactions, committed):
    name = unique("boundary")
    folder = polled.pages(name, {"a": FILES["a"], "b": FILES["b"]})
    polled.make_topic(name, partitions=1)
    [done] = polled.polled(polled.source(name, folder, kind, **{"transaction.boundary": boundary}))
    assert done.error is None
    assert polled.ids(name) == Counter(committed)
    assert transactions_of(polled, name) == transactions
