"""`playhead groups` as a user runs it, beside Kafka's own `kafka-consumer-groups`."""

import json

import pytest
from confluent_kafka import TopicPartition as RawPartition

from integration.groups import described, fill, kafka_groups, make_share_group, member_of
from playhead.kafka.groups import Committed, commit, list_committed_of
from playhead.model import TopicPartition
from playhead.model.times import parse_time

START = "2026-01-01T00:00:00.000"


@pytest.fixture
def topic(new_topic, settings_of):
    """Two partitions of 200 and 20 records, a second apart from START on."""
    name = new_topic(partitions=2, retention_ms="-1")  # these records are old
    start = int(parse_time(START).timestamp() * 1000)
    fill(settings_of, name, 0, range(start, start + 200_000, 1000))
    fill(settings_of, name, 1, range(start, start + 20_000, 1000))
    return name


@pytest.fixture
def make_group(admin, deadline, unique, topic):
    def make(prefix="group", **offsets):
        """p0=100 means: at 100 of partition 0."""
        name = unique(prefix)
        wanted = {TopicPartition(topic, int(key[1:])): Committed(offset) for key, offset in offsets.items()}
        assert commit(admin, name, wanted, deadline) == dict.fromkeys(wanted)
        return name

    return make


@pytest.fixture
def groups(playhead, lab):
    return lambda *words: playhead("groups", *words, "-b", lab.bootstrap_servers)


def at(group, topic, **offsets):
    return {(group, TopicPartition(topic, int(key[1:]))): offset for key, offset in offsets.items()}


def cells(table):
    return [line.split() for line in table.splitlines()]


@pytest.mark.parametrize(
    "words",
    [
        ["--to-current"],
        ["--shift-by", "-150"],
        ["--to-offset", "150"],
        ["--to-datetime", "2026-01-01T09:00:10.500+09:00"],
        ["--by-duration", "PT1H"],
    ],
    ids=lambda words: words[0].strip("-"),
)
def test_every_word_leads_where_kafkas_own_tool_would_go(lab, groups, make_group, topic, words):
    group = make_group(p0=100, p1=10)
    theirs = kafka_groups(lab, "--reset-offsets", "--group", group, "--topic", topic, *words, "--dry-run", "--export")
    ours = groups("reset", group, "--topic", topic, *words, "--export", "-").exits(0).out
    assert sorted(ours.split()) == sorted(line for line in theirs.split() if line.startswith(f"{topic},"))
    assert len(ours.split()) == 2


def test_a_dry_run_shows_all_and_changes_nothing_and_execute_does_exactly_that(
    lab, groups, make_group, topic, tmp_path
):
    group = make_group(p0=100, p1=10)
    words = ["reset", group, "--topic", f"{topic}:0", "--shift-by", "150"]
    ran = groups(*words, "--save-plan", str(tmp_path / "plan.json")).exits(0)
    assert cells(ran.out) == [
        ["GROUP", "TOPIC", "PARTITION", "BEFORE", "AFTER", "LOG-START", "LOG-END", "NOTE"],
        [group, topic, "0", "100", "200", "0", "200", *["clamped", "from", "250:", "the", "log", "ends", "at", "200"]],
    ]
    assert "dry run: nothing was changed" in ran.err
    assert described(lab, group) == at(group, topic, p0=100, p1=10)
    done = groups(*words, "--execute").exits(0)
    assert "changed" in done.out and "clamped from 250" in done.err
    assert described(lab, group) == at(group, topic, p0=200, p1=10)
    assert "nothing to change" in groups(*words, "--execute").exits(0).err


def test_a_saved_plan_is_what_runs_and_can_be_taken_back(lab, playhead, groups, make_group, topic, tmp_path):
    group, plan = make_group(p0=100, p1=10), str(tmp_path / "plan.json")
    groups("reset", group, "--all-topics", "--to-earliest", "--save-plan", plan).exits(0)
    playhead("offsets", "apply", plan, "--execute", "-b", lab.bootstrap_servers).exits(0)
    assert described(lab, group) == at(group, topic, p0=0, p1=0)
    playhead("offsets", "undo", "--execute", "-b", lab.bootstrap_servers).exits(0)
    assert described(lab, group) == at(group, topic, p0=100, p1=10)
    groups("reset", group, "--topic", f"{topic}:0", "--to-offset", "5", "--execute").exits(0)
    assert "moved since" in playhead("offsets", "apply", plan, "--execute", "-b", lab.bootstrap_servers).exits(4).out


def test_kafkas_files_are_read_and_ours_are_read_by_kafka(lab, groups, make_group, topic, tmp_path, admin, deadline):
    one, two = make_group(p0=100, p1=10), make_group(p0=7, p1=8)
    three_columns, four_columns = tmp_path / "one.csv", tmp_path / "two.csv"
    reset = ["--reset-offsets", "--topic", topic, "--shift-by", "-3", "--export", "--dry-run"]
    three_columns.write_text(kafka_groups(lab, *reset, "--group", one).strip() + "\n")
    four_columns.write_text(kafka_groups(lab, *reset, "--group", one, "--group", two).strip() + "\n")
    assert len(three_columns.read_text().splitlines()[0].split(",")) == 3
    groups("reset", one, "--from-file", str(three_columns), "--execute").exits(0)
    groups("reset", one, two, "--from-file", str(four_columns), "--execute").exits(0)
    moved = list_committed_of(admin, [one, two], deadline)
    assert {name: [found.offset for _, found in sorted(moved[name].items())] for name in moved} == {
        one: [97, 7],
        two: [4, 5],
    }

    ours = tmp_path / "ours.csv"
    groups("reset", one, "--topic", topic, "--to-offset", "5", "--export", str(ours)).exits(0)
    assert sorted(ours.read_text().split()) == [f"{topic},0,5", f"{topic},1,5"]
    kafka_groups(lab, "--reset-offsets", "--group", one, "--from-file", str(ours), "--execute")
    groups("reset", one, two, "--topic", topic, "--to-offset", "6", "--export", str(ours)).exits(0)
    kafka_groups(lab, "--reset-offsets", "--group", two, "--from-file", str(ours), "--execute")
    assert described(lab, one, two) == at(one, topic, p0=5, p1=5) | at(two, topic, p0=6, p1=6)


def test_patterns_take_many_groups_and_names_may_be_new(lab, groups, make_group, topic, unique):
    prefix, new = unique("billing"), unique("never-seen")
    first, second, other = make_group(f"{prefix}-a", p0=1), make_group(f"{prefix}-b", p0=2), make_group("other", p0=3)
    groups("reset", f"{prefix}-*", new, "--topic", f"{topic}:0", "--to-offset", "9", "--execute").exits(0)
    expected = at(first, topic, p0=9) | at(second, topic, p0=9) | at(new, topic, p0=9) | at(other, topic, p0=3)
    assert described(lab, first, second, other, new) == expected
    ran = groups("reset", f"{prefix[:-2]}x-*", "--all-topics", "--to-latest", "--execute").exits(1)
    assert "group like" in ran.err and ran.out == ""


def test_a_group_that_never_existed_has_nothing_to_reset_and_is_not_made_by_a_dry_run(lab, groups, topic, unique):
    name = unique("nobody")
    assert "nothing to change" in groups("reset", name, "--all-topics", "--to-earliest", "--execute").exits(0).err
    groups("reset", name, "--topic", topic, "--to-earliest").exits(0)
    assert name not in kafka_groups(lab, "--list").split()


def test_a_live_member_is_refused_and_nothing_changes(lab, groups, topic, unique, deadline):
    group = unique("alive")
    with member_of(lab, group, [topic], deadline) as consumer:
        consumer.commit(offsets=[RawPartition(topic, 0, 7)], asynchronous=False)
        reset = ["reset", group, "--all-topics", "--to-earliest"]
        assert "is stable with 1 member(s): --execute would be refused" in groups(*reset).exits(0).err
        assert "is stable with 1 member(s)" in groups(*reset, "--execute").exits(4).out
        assert "is stable with 1 member(s)" in groups("delete", group, "--execute").exits(4).out
        assert described(lab, group)[group, TopicPartition(topic, 0)] == 7
        shown = json.loads(groups("describe", group, "-o", "json").exits(0).out)
    assert (shown["state"], shown["members"]) == ("stable", 1)
    [first, second] = shown["partitions"]
    assert (first["committed"], first["lag"], first["lag_seconds"], first["client_id"]) == (7, 193, 192.0, "member-7")
    assert (second["committed"], second["lag"], second["note"]) == (None, None, "no commit")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--to-earliest", "--topic", "T:7"], 4, "T-7 does not exist"),
        (["--to-earliest", "--topic", "no-such-topic"], 1, "topic 'no-such-topic' does not exist"),
        (["--to-offset", "999", "--topic", "T", "--out-of-range", "error"], 4, "999 is outside the log"),
        (["--shift-by", "1", "--topic", "T"], 4, "nothing to shift"),
        (["--to-group", "nobody-at-all", "--all-topics"], 4, "no commit that could be copied"),
        (["--from-file", "no-such-file"], 1, "no-such-file"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence_and_no_write(groups, make_group, topic, words, code, said):
    group = make_group(p0=100)
    ran = groups("reset", group, *(word.replace("T", topic) if word[0] == "T" else word for word in words), "--execute")
    ran.exits(code)
    assert said.replace("T-7", f"{topic}-7") in ran.err
    assert "Traceback" not in ran.err and ran.out == ""


def test_groups_are_listed_with_type_state_topics_and_lag(lab, groups, make_group, topic, unique):
    group, shared = make_group(p0=100, p1=20), unique("shared")
    make_share_group(lab, shared, topic)
    plain = cells(groups("list").exits(0).out)
    assert plain[0] == ["GROUP", "TYPE", "STATE", "MEMBERS", "TOPICS"]
    assert [group, "classic", "empty", "0", topic] in plain
    assert [shared, "share"] in [row[:2] for row in plain]
    assert [group, "classic", "empty", "0", topic, "100"] in cells(groups("list", "-o", "wide").exits(0).out)
    [row] = [row for row in json.loads(groups("list", "--lag", "-o", "json").exits(0).out) if row["group"] == group]
    assert row == {"group": group, "type": "classic", "state": "empty", "members": 0, "topics": [topic], "lag": 100}
    assert group in groups("list", "-o", "name").exits(0).out.split()
    assert groups("list", f"*{group[-8:]}", "-o", "name").exits(0).out.split() == [group]
    assert groups("list", shared, group, "-o", "name").exits(0).out.split() == sorted([group, shared])
    assert "group like 'nothing-*' does not exist" in groups("list", "nothing-*").exits(1).err
    assert f"did you mean {group}" in groups("list", group + "x").exits(1).err


def test_a_group_is_shown_with_its_lag_and_an_unknown_one_with_near_names(groups, make_group, topic):
    group = make_group(p0=100, p1=20)
    table = cells(groups("show", group).exits(0).out)
    assert [topic, "0", "100", "0", "200", "100", "1m", "39s", "-", "-"] in table
    assert [topic, "1", "20", "0", "20", "0", "0s", "-", "-"] in table
    assert groups("show", group, "-o", "csv").exits(0).out.startswith("topic,partition,committed")
    assert f"did you mean {group}" in groups("show", group + "x").exits(1).err


def test_groups_and_single_commits_are_deleted(lab, groups, make_group, topic, unique):
    prefix = unique("old")
    first, second = make_group(f"{prefix}-a", p0=1, p1=2), make_group(f"{prefix}-b", p0=3)
    groups("delete", first, "--topic", f"{topic}:0", "--execute").exits(0)
    assert described(lab, first, second) == at(first, topic, p1=2) | at(second, topic, p0=3)
    groups("delete", f"{prefix}-*", "--execute").exits(0)
    assert not {first, second} & set(kafka_groups(lab, "--list").split())
    assert "does not exist" in groups("delete", first, "--execute").exits(1).err


def test_group_names_are_completed_live(playhead, lab, make_group):
    group = make_group(p0=1)
    env = {
        "_PLAYHEAD_COMPLETE": "bash_complete",
        "COMP_WORDS": f"playhead groups reset {group[:9]}",
        "COMP_CWORD": "3",
        "PLAYHEAD_BOOTSTRAP_SERVERS": lab.bootstrap_servers,
    }
    assert f"plain,{group}" in playhead(env=env).exits(0).out.split()
