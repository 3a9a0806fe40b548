"""A part of what a file sink delivered is delivered again: folder listings, Kafka's tools and SQLite itself are the oracles."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest

from integration.delivering import bytes_in, deliver, files_in, group_rows, ids_in  # noqa: F401
from integration.on_spark import Running
from integration.replaying import Replay
from integration.sinks_on_the_lab import produce
from playhead.errors import Invalid, NotFound, PlayheadError, Refused
from playhead.model import Deadline, Result

pytest.importorskip("pyspark")


@pytest.fixture
def delivered(deliver, tmp_path, unique):
    """A topic of two partitions in files of 100 records, the last ones of 50."""

    def make(count=900, **config):
        topic = unique("replay")
        deliver.make_topic(topic)
        deliver.send(topic, count)
        spec = deliver.files(topic, tmp_path / "lake", **config)
        (done,) = deliver.run(spec)
        assert (done.error, done.rows) == (None, count)
        return topic, Replay(deliver, spec, tmp_path)

    return make


class Shown(NamedTuple):
    partition: int
    offset: int
    text: str


def shown(lab, topic, count):
    """Timestamp, headers, key and value of every record, by Kafka's own console consumer."""
    words = [f"print.{what}=true" for what in ("partition", "offset", "timestamp", "headers", "key")]
    properties = [word for one in words for word in ("--formatter-property", one)]
    printed = lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", lab.bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--isolation-level", "read_committed", "--max-messages", str(count), "--timeout-ms", "40000", *properties),
    )
    lines = [line.split("\t") for line in printed.splitlines() if "CreateTime" in line]
    assert len(lines) == count
    found = []
    for line in lines:
        numbers = {name: int(number) for name, _, number in (part.partition(":") for part in line[1:3])}
        found.append(Shown(numbers["Partition"], numbers["Offset"], "\t".join([line[0], *line[3:]])))
    return found


def inodes(folder):
    return {str(path): path.stat().st_ino for path in files_in(folder)}


def test_a_deleted_object_comes_back_and_nothing_else_is_touched(delivered, tmp_path):
    topic, replay = delivered()
    lake = tmp_path / "lake"
    before, position, group = bytes_in(lake), replay.position(), group_rows(replay.deliver.lab, f"connect-s-{topic}")
    lost = next(path for path in files_in(lake) if path.name == f"{topic}+1+0000000200.json")
    lost.unlink()
    kept = inodes(lake)
    (done,), impossible = replay.execute(object=lost.name)
    assert (done.result, done.count, done.generation, impossible) == (Result.CHANGED, 100, 2, [])
    assert bytes_in(lake) == before
    assert kept.items() <= inodes(lake).items()
    assert replay.position() == position
    assert group_rows(replay.deliver.lab, f"connect-s-{topic}") == group
    assert [row for row in replay.rows() if row[:2] == (1, 200)] == [
        (1, 200, 1, "superseded"),
        (1, 200, 2, "committed"),
    ]


def test_a_plan_changes_nothing_and_shows_the_widened_range(delivered, tmp_path):
    topic, replay = delivered()
    before, rows = inodes(tmp_path / "lake"), replay.rows()
    with replay.planned(f"{topic}:0:150-201") as planned:
        (row,) = planned.rows
    assert (row["start"], row["end"], row["asked"], row["ranges"], row["count"]) == (100, 300, [[150, 201]], 2, 200)
    assert [Path(name).name for name in row["objects"]] == [f"{topic}+0+{at:010}.json" for at in (100, 200)]
    assert row["does"] == "widened, rewrite"
    assert planned.found_in == str(replay.file)
    assert (inodes(tmp_path / "lake"), replay.rows()) == (before, rows)


def test_the_whole_topic_gives_the_same_bytes_again(delivered, tmp_path):
    topic, replay = delivered()
    before, kept = bytes_in(tmp_path / "lake"), inodes(tmp_path / "lake")
    done, impossible = replay.execute(topic, offsets_per_claim=150)
    assert (sum(one.count for one in done), impossible) == (900, [])
    assert bytes_in(tmp_path / "lake") == before
    assert not kept.items() & inodes(tmp_path / "lake").items()
    assert {row[2:] for row in replay.rows()} == {(1, "superseded"), (2, "committed")}


def test_the_last_records_and_a_window_of_time_are_found(delivered):
    _, replay = delivered()
    with replay.planned(last=60) as planned:
        counts = sorted(row["count"] for row in planned.rows)
        assert counts in ([50, 50], [150])  # the tails of both partitions were committed together
    from playhead.broker import moment_of

    with replay.planned(since=moment_of("1h")) as planned:
        assert sum(row["count"] for row in planned.rows) == 900
    with replay.planned(until=moment_of("1h")) as planned:
        assert planned.rows == []


def test_what_expired_in_part_is_left_as_it_is_and_the_rest_is_redone(delivered, tmp_path):
    topic, replay = delivered()
    lake, lab = tmp_path / "lake", replay.deliver.lab
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 150}], "version": 1}))
    lab.tool(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--offset-json-file",
        str(cut),
    )
    before, kept = bytes_in(lake), inodes(lake)
    done, impossible = replay.execute(f"{topic}:0:0-300")
    assert [(one.range.start, one.range.end, one.result) for one in done] == [(200, 300, Result.CHANGED)]
    assert [(one["start"], one["end"]) for one in impossible] == [(0, 100), (100, 200)]
    assert "has expired," in impossible[0]["why"]
    assert "has expired in part: the topic begins at 150 now" in impossible[1]["why"]
    assert bytes_in(lake) == before
    changed = {Path(name).name for name, inode in inodes(lake).items() if kept[name] != inode}
    assert changed == {f"{topic}+0+0000000200.json"}


def test_what_is_not_delivered_yet_is_said(delivered):
    topic, replay = delivered()
    replay.deliver.send(topic, 100, start=900)
    done, impossible = replay.execute(f"{topic}:1:400-")
    assert [(one.range.start, one.range.end) for one in done] == [(400, 450)]
    assert [(one["start"], one["end"], one["why"]) for one in impossible] == [
        (450, 500, "is not delivered yet: the position is 450")
    ]


def test_other_options_cut_anew_inside_the_old_ranges_and_leave_no_old_object(delivered, tmp_path):
    topic, replay = delivered()
    field = {
        "partitioner.class": "io.confluent.connect.storage.partitioner.FieldPartitioner",
        "partition.field.name": "t",
    }
    fewer = replace(replay.spec, config={**replay.spec.config, "flush.size": "50"})
    replay.write(fewer)
    done, impossible = replay.execute(f"{topic}:0:0-200")
    assert (sum(one.count for one in done), impossible) == (200, [])
    names = [path.name for path in files_in(tmp_path / "lake") if f"{topic}+0+" in path.name]
    assert names[:5] == [f"{topic}+0+{at:010}.json" for at in (0, 50, 100, 150, 200)]
    assert ids_in(tmp_path / "lake") == Counter(range(900))
    placed = replace(replay.spec, config={**replay.spec.config, **field, "flush.size": "1000"})
    replay.write(placed)
    (one,), _ = replay.execute(f"{topic}:0:0-50")
    assert [Path(name).name for name in one.removed] == [f"{topic}+0+0000000000.json"]
    assert ids_in(tmp_path / "lake") == Counter(range(900))


def test_a_live_run_goes_on_while_its_past_is_replayed(delivered, tmp_path):
    topic, replay = delivered()
    running = Running(replay.deliver.prepared(interval_seconds=0.2), [replay.spec])
    try:
        running.until(lambda: running.now(replay.spec.name).state is None and running.reports, "the run")
        for number in range(3):
            replay.deliver.send(topic, 200, start=900 + 200 * number)
            done, impossible = replay.execute(f"{topic}:0:0-400", f"{topic}:1:100-300")
            assert {one.result for one in done} == {Result.CHANGED}
            assert impossible == []
        running.has(replay.spec.name, 600)
    finally:
        running.ended()
    replay.deliver.run(replay.spec)
    assert ids_in(tmp_path / "lake") == Counter(range(1500))
    assert [row[1:] for row in replay.position()] == [(750, 750, 1), (750, 750, 1)]


def test_two_replays_at_once_give_the_same_bytes_and_one_of_them_commits(delivered, tmp_path):
    topic, replay = delivered()
    before, found = bytes_in(tmp_path / "lake"), []
    threads = [Thread(target=lambda: found.append(replay.execute(topic)[0])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert {one.result for done in found for one in done} <= {Result.CHANGED, Result.UNCHANGED}
    assert bytes_in(tmp_path / "lake") == before
    live = [row[:2] for row in replay.rows() if row[3] == "committed"]
    assert len(live) == len(set(live)) == 10


def test_another_folder_gets_exactly_the_asked_offsets(delivered, tmp_path):
    topic, replay = delivered()
    rows, other = replay.rows(), tmp_path / "other"
    for _ in range(2):
        (done,), impossible = replay.execute(f"{topic}:0:150-260", to_dir=other)
        assert (done.result, done.count, impossible) == (Result.CHANGED, 110, [])
        assert ids_in(other) == Counter(2 * at for at in range(150, 260))
    assert [path.name for path in files_in(other)] == [f"{topic}+0+{at:010}.json" for at in (150, 250)]
    assert replay.rows() == rows
    for part in (
        "160-260",
        "100-260",
        "0-200",
        "150-250",
    ):  # as if the log began later, and others with the same records
        with (
            pytest.raises(Refused, match="records would be there twice"),
            replay.planned(f"{topic}:0:{part}", to_dir=other),
        ):
            pass
    for part in ("150-270", "0-150"):
        (done,), _ = replay.execute(f"{topic}:0:{part}", to_dir=other)
        assert done.result is Result.CHANGED
    assert ids_in(other) == Counter(2 * at for at in range(270))
    with pytest.raises(Refused, match="in the folder of"), replay.planned(topic, to_dir=tmp_path / "lake" / "x"):
        pass


def test_a_folder_of_the_clock_is_the_same_whenever_the_command_is_given(delivered, tmp_path):
    """The records lie under the second of their delivery, which the ledger has."""
    clock = {
        "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
        "path.format": "'at'=YYYY-MM-dd-HH-mm-ss",
        "partition.duration.ms": "1000",
        "timestamp.extractor": "Wallclock",
        "locale": "en",
        "timezone": "UTC",
    }
    topic, replay = delivered(300, **clock)
    other = tmp_path / "other"
    replay.execute(f"{topic}:0:20-120", to_dir=other)
    first = bytes_in(other)
    assert ids_in(other) == Counter(2 * at for at in range(20, 120))
    shown_folders = {path.parent.name for path in files_in(other)}
    assert shown_folders <= {path.parent.name for path in files_in(tmp_path / "lake")}
    Deadline(10).wait_for(lambda: f"{datetime.now(UTC):at=%Y-%m-%d-%H-%M-%S}" not in shown_folders, "the next second")
    replay.execute(f"{topic}:0:20-120", to_dir=other)
    assert bytes_in(other) == first
    replay.deliver.send(topic, 10, start=300)
    done, (late,) = replay.execute(f"{topic}:0:140-", to_dir=other)
    assert [(one.range.start, one.range.end) for one in done] == [(140, 150)]
    assert (late["start"], late["end"]) == (150, 155) and "no run has delivered it" in late["why"]


def test_another_topic_gets_the_records_as_they_are_once(delivered, unique):
    topic, replay = delivered(100)
    lab, other = replay.deliver.lab, unique("raw")
    produce(lab, topic, 1, [b'{"id":%d,"t":"h"}' % at for at in range(100, 105)], [("who", b"me"), ("empty", None)])
    replay.deliver.run(replay.spec)
    rows = replay.rows()
    done, impossible = replay.execute(f"{topic}:1:20-53", to_topic=other, offsets_per_claim=10)
    assert ({one.result for one in done}, sum(one.count for one in done), impossible) == ({Result.CHANGED}, 33, [])
    done, _ = replay.execute(f"{topic}:1:10-55", to_topic=other)
    assert sorted((one.range.start, one.range.end, one.result.value) for one in done) == [
        (10, 20, "changed"),
        (20, 53, "unchanged"),
        (53, 55, "changed"),
    ]
    wanted = [line for line in shown(lab, topic, 105) if line.offset >= 10 and line.partition == 1]
    assert sorted(line.text for line in shown(lab, other, 45)) == sorted(line.text for line in wanted)
    assert replay.rows() == rows
    with pytest.raises(Refused, match=f"reads {topic} itself"), replay.planned(topic, to_topic=topic):
        pass


def test_a_recreated_topic_is_not_what_was_delivered(delivered, tmp_path):
    from playhead.kafka.client import Admin
    from playhead.kafka.topics import delete_topic
    from playhead.model import Deadline

    topic, replay = delivered()
    with Admin(replay.deliver.settings, Deadline(30)) as admin:
        delete_topic(admin, topic, Deadline(30))
    Deadline(30).wait_for(
        lambda: (
            topic
            not in replay.deliver.lab.tool(
                "org.apache.kafka.tools.TopicCommand",
                "--bootstrap-server",
                replay.deliver.lab.bootstrap_servers,
                "--list",
            ).split()
        ),
        "the topic to be gone",
    )
    replay.deliver.make_topic(topic)
    replay.deliver.send(topic, 900)
    kept = inodes(tmp_path / "lake")
    done, impossible = replay.execute(f"{topic}:0:0-100")
    assert done == []
    assert "deleted and recreated" in impossible[0]["why"]
    assert inodes(tmp_path / "lake") == kept


def test_wrong_words_are_refused_with_one_sentence(delivered):
    topic, replay = delivered(100)
    wrong: list[tuple[str, type[PlayheadError], str]] = [
        ("x:0:5-5", Invalid, "is an empty range"),
        ("x:0:7-5", Invalid, "is an empty range"),
        ("no such", Invalid, "is not a range of offsets"),
        ("other", NotFound, "topic 'other' does not exist"),
        (f"{topic}:7", NotFound, "the topic has 2 partition"),
        (f"{topic}:0:50-60", Invalid, f"{topic}-0 ends at 50: there is no offset 50 yet"),
        (f"{topic}:0:70-", Invalid, f"{topic}-0 ends at 50: there is no offset 70 yet"),
    ]
    for words, fault, why in wrong:
        with pytest.raises(fault) as caught, replay.planned(words):
            pass
        assert why in f"{caught.value.what}; {caught.value.hint}"
    with pytest.raises(Invalid, match="no part is named"), replay.planned():
        pass
    with pytest.raises(NotFound, match=r"nothing\.json"), replay.planned(object="nothing.json"):
        pass


def test_a_dry_run_says_what_is_impossible_and_ends_with_1_and_generations_are_listed(delivered, playhead, tmp_path):
    topic, replay = delivered(200)
    common = [
        "--worker-config",
        str(replay.deliver.lab.worker_config),
        "--ledger",
        f"sqlite:///{replay.deliver.ledger.address.path}",
    ]
    command = ["replay", replay.spec.name, "-f", str(replay.file), *common]
    whole = playhead(*command, "--range", f"{topic}:0:0-50")
    assert (whole.code, "widened, rewrite" in whole.out) == (0, True)
    partly = playhead(*command, "--range", f"{topic}:0:0-150", "-o", "json")
    assert partly.code == 1
    rows = json.loads(partly.out)
    assert [(row["start"], row["end"], row["does"]) for row in rows] == [(0, 100, "rewrite"), (100, 150, "impossible")]
    assert rows[1]["why"] == "is not there yet: the topic ends at 100"
    moving = playhead(*command, "--since", "1h")
    assert (moving.code, f"for --execute give --range {topic}:0:0-100 --range {topic}:1:0-100" in moving.err) == (
        0,
        True,
    )
    moving = playhead(*command, "--since", "1h", "--execute")
    assert (moving.code, f"give the ranges: --range {topic}:0:0-100" in moving.err) == (4, True)
    refused = playhead(*command, "--range", f"{topic}:0:150-160")
    assert (refused.code, refused.err.count("ends at 100")) == (2, 1)
    replay.execute(f"{topic}:0:0-100")
    shown = playhead("runs", "show", replay.spec.name, *common[2:], "-o", "json")
    assert shown.code == 0
    listed = [
        (row["start"], row["generation"], row["state"])
        for row in json.loads(shown.out)["ranges"]
        if row["partition"] == 0
    ]
    assert sorted(listed) == [(0, 1, "superseded"), (0, 2, "committed")]
    before = bytes_in(tmp_path / "lake")
    moved = playhead("offsets", "reset", replay.spec.name, "--to-earliest", "--execute", *common)
    assert moved.code == 0, moved.err
    undone = playhead("offsets", "undo", "--execute", *common)
    assert undone.code == 0, undone.err
    live = [row[1:] for row in replay.rows() if row[3] == "committed" and row[0] == 0]
    assert live == [(0, 2, "committed")]  # the newest generation, never the one before the replay
    (done,) = replay.deliver.run(replay.spec)
    assert (done.error, done.rows, bytes_in(tmp_path / "lake")) == (None, 0, before)
