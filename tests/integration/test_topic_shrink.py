"""`playhead topics shrink`: fewer partitions, and everyone who reads and writes the topic goes along."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as RawPartition

from integration.copying import FIRST_MS, GROUP_TOOL, Copying, Sent, check_copy, read, send, unread_by_java
from integration.delivering import Deliver, group_rows, ids_in
from playhead.config import Context, Setting
from playhead.connect.rest import Rest
from playhead.errors import Invalid, Refused
from playhead.kafka.client import Admin
from playhead.kafka.copying import CopyProducer
from playhead.kafka.groups import Committed, commit, list_committed
from playhead.kafka.topics import add_partitions, create_topic, get_topic, list_topics, topic_ends
from playhead.kafka.transactions import TransactionalProducer
from playhead.lab import Lab
from playhead.ledger.runs import open_ledger
from playhead.model import Deadline, TopicPartition
from playhead.pipeline.copy.job import Side
from playhead.pipeline.copy.offset_map import FIRST, MapFile, write_file
from playhead.pipeline.copy.read import read_places
from playhead.pipeline.copy.run import CopyRunOptions
from playhead.pipeline.copy.verify import VerifySide, verify_copy
from playhead.shrink import connectors, stages
from playhead.shrink.change import Change
from playhead.shrink.ending import abort, finish
from playhead.shrink.foreign import check_foreign
from playhead.shrink.record import Stage
from playhead.shrink.stages import Spark, create, execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
STRING = "org.apache.kafka.connect.storage.StringConverter"


@dataclass
class Shrinking:
    lab: Lab
    spark: "SparkSession"
    folder: Path
    said: list[str] = field(default_factory=list)

    @property
    def context(self) -> Context:
        values = {"bootstrap-servers": self.lab.bootstrap_servers, "connect": self.lab.connect_urls[0]}
        values |= {"ledger": f"sqlite:///{self.folder}/ledger.db", "journal": str(self.folder / "journal")}
        return Context(None, {name: Setting(value, "here") for name, value in values.items()})

    def open(self, topic: str) -> Change:
        return Change(self.context, topic, None, 60)

    def execute(self, topic: str, partitions: int) -> Change:
        work = self.open(topic)
        work.start(partitions, None)
        with open_ledger(f"sqlite:///{self.folder}/ledger.db", 30) as ledger:
            execute(work, Spark(self.spark, ledger, CopyRunOptions(offsets_per_step=200)), self.said.append)
        return work

    def finish(self, topic: str) -> Change:
        work = self.open(topic)
        with open_ledger(f"sqlite:///{self.folder}/ledger.db", 30) as ledger:
            finish(work, lambda: nullcontext(Spark(self.spark, ledger, CopyRunOptions())), self.said.append)
        return work


@pytest.fixture
def shrinking(lab: Lab, spark: "SparkSession", tmp_path: Path) -> Shrinking:
    return Shrinking(lab, spark, tmp_path)


@pytest.fixture
def copying_side(lab: Lab, spark: "SparkSession", tmp_path: Path) -> Side:
    return Copying(lab, spark, tmp_path).side


@pytest.fixture
def topic(new_topic: Callable[..., str], lab: Lab) -> str:
    name = new_topic(6, retention_ms="-1", retention_bytes="1000000000")
    send(lab, name, 300)
    return name


@pytest.fixture
def deadline(request: pytest.FixtureRequest) -> Deadline:
    """For whole stories, and for the client of the worker that clears away after them."""
    return Deadline(1800 if request.node.get_closest_marker("soak") else 800)


@pytest.fixture
def pipeline(lab: Lab, rest: Rest, topic: str, unique: Callable[[str], str], tmp_path: Path) -> Iterator["Pipeline"]:
    """A source connector that writes lines to the topic, and a sink connector that writes its values to a file."""
    made = Pipeline(rest, tmp_path / "in.txt", tmp_path / "out.txt", unique("lines"), unique("values"))
    made.source_file.write_text("line 0\n")
    made.sink_file.touch()
    text = {"key.converter": STRING, "value.converter": STRING}
    kind = "org.apache.kafka.connect.file.FileStream"
    rest.create_connector(
        made.source,
        {"connector.class": f"{kind}SourceConnector", "file": str(made.source_file), "topic": topic, **text},
    )
    rest.create_connector(
        made.sink, {"connector.class": f"{kind}SinkConnector", "file": str(made.sink_file), "topics": topic, **text}
    )
    yield made
    for name in (made.source, made.sink):
        rest.delete_connector(name)


@dataclass
class Pipeline:
    rest: Rest
    source_file: Path
    sink_file: Path
    source: str
    sink: str

    def add_line(self, text: str) -> None:
        with self.source_file.open("a") as file:
            file.write(f"{text}\n")

    def lines(self) -> list[str]:
        return self.sink_file.read_text().splitlines()


def values_of(lab: Lab, topic: str) -> list[str]:
    """As StringConverter and the file sink print them."""
    return ["null" if one.value is None else one.value.decode() for one in read(lab, topic).values()]


def test_connectors_and_groups_go_along_and_lose_and_double_nothing(
    shrinking, lab, admin, deadline, topic, pipeline, unique, playhead, rest
):
    group, half = unique("group"), {}
    for number, one in topic_ends(admin, topic, range(6), deadline).items():
        half[number] = one.high // 2
    wanted = {TopicPartition(topic, number): Committed(at) for number, at in half.items()}
    assert set(commit(admin, group, wanted, deadline).values()) == {None}
    deadline.wait_for(lambda: len(pipeline.lines()) >= 301, "the sink")
    target = f"{topic}-p2"

    words = ["topics", "shrink", topic, "-b", lab.bootstrap_servers, "--connect", lab.connect_urls[0]]
    words += ["--ledger", f"sqlite:///{shrinking.folder}/ledger.db"]
    dry = playhead(*words, "--partitions", "2").exits(0)
    assert all(name in dry.out for name in (pipeline.source, pipeline.sink, group, target))
    assert target not in admin.raw.list_topics(timeout=10).topics

    assert shrinking.execute(topic, 2).record.stage is Stage.SWITCHED
    check_copy(lab, topic, target, partitions=2)
    assert rest.get_config(pipeline.sink)["topics"] == target
    assert rest.get_config(pipeline.source)["topic"] == target
    pipeline.add_line("after the switch")
    deadline.wait_for(lambda: "after the switch" in pipeline.lines(), "a line through the new topic")
    assert sorted(pipeline.lines()) == sorted(values_of(lab, target))

    here, there = read(lab, topic), read(lab, target)
    at = {tp.partition: one.offset for tp, one in list_committed(admin, group, deadline).items() if tp.topic == target}
    unread = {one for (number, offset), one in here.items() if offset >= half.get(number, 0)}
    assert unread <= {one for (number, offset), one in there.items() if offset >= at[number]}

    shown = playhead(*words, "-o", "json").exits(0)
    assert '"stage": "switched"' in shown.out
    rest.patch_config(pipeline.sink, {"topics": f" {target} "})  # an edit that has nothing to do with the old topic
    assert shrinking.finish(topic).record.stage is Stage.FINISHED
    deadline.wait_for(lambda: topic not in admin.raw.list_topics(timeout=10).topics, "the old topic deleted")
    described = lab.tool(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--describe",
        "--topic",
        target,
    )
    assert "PartitionCount: 2" in described and "retention.bytes=3000000000" in described
    assert "retention.ms=-1" in described


def test_a_sink_on_spark_continues_in_the_new_topic(shrinking, lab, admin, deadline, new_topic, tmp_path):
    """Its files have every record, and as many twice as were announced."""
    name = new_topic(6, retention_ms="-1")
    target, files = f"{name}-p2", tmp_path / "files"
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", 30) as ledger:
        deliver = Deliver(lab, shrinking.spark, ledger)
        spec = deliver.files(name, files)
        deliver.send(name, 300, partitions=6)
        (done,) = deliver.run(spec)
        assert (done.rows, done.error) == (300, None)
        deliver.send(name, 60, partitions=6, start=300)
        shrinking.execute(name, 2)
        assert group_rows(lab, f"connect-{spec.name}").keys() == set(
            range(6)
        )  # the next run publishes its new position
        moved = replace(spec, config={**spec.config, "topics": target})
        (done,) = deliver.run(moved)
        assert done.error is None
        found = ids_in(files)
        (said,) = [text for text in shrinking.said if text.startswith(f"{spec.name}: ") and "again" in text]
        repeats = 0 if "no record" in said else int(said.split()[1])
        assert found.keys() == set(range(360)) and found.total() - 360 == repeats == done.rows - 60
        assert unread_by_java(lab, f"connect-{spec.name}", target) == 0
        deliver.send(target, 40, partitions=2, start=360)
        deliver.run(moved)
        assert ids_in(files).total() - 400 == repeats


@pytest.mark.parametrize("name", ["__consumer_offsets", "connect-offsets", "mm2-offset-syncs.east.internal"])
def test_topics_of_kafka_and_connect_are_refused(name, lab, playhead, admin, deadline):
    if name not in list_topics(admin, deadline):
        create_topic(admin, name, 3, deadline)
    words = ["topics", "shrink", name, "--partitions", "1", "-b", lab.bootstrap_servers]
    refused = playhead(*words, "--execute").exits(4)
    assert f"{name} is a topic of" in refused.err
    assert f"{name}-p1" not in list_topics(admin, deadline)


class Killed(BaseException):
    """What a kill looks like to the code around it: nothing of it runs."""


STEPS = ("create", "copy_new", "verify", "begin_switch", "stop_connectors", "move_positions", "change_connectors")


def test_it_can_be_killed_before_and_after_every_stage(
    shrinking, lab, admin, deadline, topic, pipeline, unique, monkeypatch, rest
):
    group = unique("group")
    ends = topic_ends(admin, topic, range(6), deadline)
    wanted = {TopicPartition(topic, number): Committed(one.high) for number, one in ends.items()}
    assert set(commit(admin, group, wanted, deadline).values()) == {None}
    deadline.wait_for(lambda: len(pipeline.lines()) >= 301, "the sink")

    def killed_at(name: str, *, before: bool) -> None:
        original = getattr(stages, name)

        def dies(*words, **options):
            if not before:
                original(*words, **options)
            raise Killed

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(stages, name, dies)
            shrinking.execute(topic, 2)

    for name in (*STEPS, "restore_connectors"):
        killed_at(name, before=True)
        killed_at(name, before=False)
    assert shrinking.execute(topic, 2).record.stage is Stage.SWITCHED
    check_copy(lab, topic, f"{topic}-p2", partitions=2)
    pipeline.add_line("after the kills")
    deadline.wait_for(lambda: "after the kills" in pipeline.lines(), "a line through the new topic")
    assert sorted(pipeline.lines()) == sorted(values_of(lab, f"{topic}-p2"))
    at = {tp: one.offset for tp, one in list_committed(admin, group, deadline).items() if tp.topic != topic}
    assert at and sum(at.values()) > 0


KILLER = """
import functools, importlib, os, signal, sys
from playhead.cli.main import run

where, name, when = sys.argv[1].split(":")
module = importlib.import_module(f"playhead.shrink.{where}")
original = getattr(module, name)

@functools.wraps(original)
def dies(*words, **options):
    if when == "after":
        original(*words, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(module, name, dies)
sys.argv[:2] = ["playhead"]
run()
"""
# In the order in which they are reached. From the switch on the copy and the comparison come a second time.
FORWARD = ["create", "copy_new", "verify", "begin_switch", "stop_connectors", "copy_new", "verify", "move_positions"]
FORWARD += ["_apply", "change_connectors", "restore_connectors"]
BACK = ["stop_connectors", "_undo_edits", "change_connectors", "restore_connectors", "_delete_new", "_forget_copier"]
AT = ("before", "after")


class Killing:
    """`playhead topics shrink` as a process that kills itself at one point."""

    def __init__(self, shrinking: Shrinking, topic: str) -> None:
        self._words = ["topics", "shrink", topic, "--execute", "--chunk-rows", "200", "-q"]
        for name, setting in shrinking.context.settings.items():
            flag = {"bootstrap-servers": "-b", "connect": "--connect", "ledger": "--ledger"}.get(name)
            self._words += [flag, setting.text] if flag else []
        self._env = {**os.environ, "PLAYHEAD_JOURNAL": str(shrinking.folder / "journal")}

    def at(self, point: str, *words: str) -> None:
        code, printed = self._ran([sys.executable, "-c", KILLER, point, *self._words, *words])
        assert code == -signal.SIGKILL, f"{point}: exit {code}: {printed}"

    def not_at_all(self, *words: str) -> None:
        code, printed = self._ran([sys.executable, "-m", "playhead", *self._words, *words])
        assert code == 0, printed

    def _ran(self, command: list[str]) -> tuple[int, str]:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._env,
            timeout=400,
            check=False,
        )
        return done.returncode, done.stdout


def check_killed(
    killing: Killing, points: Sequence[str], lab: Lab, topic: str, pipeline: Pipeline, deadline: Deadline
) -> None:
    """Forward with a kill at every point; then a line goes through the new topic, and every value came once to the sink."""
    deadline.wait_for(lambda: len(pipeline.lines()) >= 301, "the sink")
    for point in points:
        killing.at(f"stages:{point}", "--partitions", "2")
    killing.not_at_all("--partitions", "2")
    check_copy(lab, topic, f"{topic}-p2", partitions=2)
    pipeline.add_line("after the kills")
    deadline.wait_for(lambda: "after the kills" in pipeline.lines(), "a line through the new topic")
    assert sorted(pipeline.lines()) == sorted(values_of(lab, f"{topic}-p2"))


@pytest.mark.soak
def test_killed_by_sigkill_at_every_point_it_continues_goes_back_and_ends(
    shrinking, lab, admin, deadline, topic, pipeline, unique, rest
):
    killing = Killing(shrinking, topic)
    deadline.wait_for(lambda: len(pipeline.lines()) >= 301, "the sink")
    killing.not_at_all("--partitions", "3")
    for point in BACK:
        for when in AT:
            killing.at(f"ending:{point}:{when}", "--abort")
    killing.not_at_all("--abort")
    assert rest.get_config(pipeline.sink)["topics"] == topic == rest.get_config(pipeline.source)["topic"]
    pipeline.add_line("after the abort")
    deadline.wait_for(lambda: "after the abort" in pipeline.lines(), "a line through the old topic")
    assert sorted(pipeline.lines()) == sorted(values_of(lab, topic))

    check_killed(killing, [f"{point}:{when}" for point in FORWARD for when in AT], lab, topic, pipeline, deadline)
    for point in ("_delete_old", "_forget_copier"):
        for when in AT:
            killing.at(f"ending:{point}:{when}", "--finish")
    killing.not_at_all("--finish")
    deadline.wait_for(lambda: topic not in admin.raw.list_topics(timeout=10).topics, "the old topic deleted")
    pipeline.add_line("after the end")
    deadline.wait_for(lambda: "after the end" in pipeline.lines(), "a line through the new topic")
    assert sorted(pipeline.lines()) == sorted(values_of(lab, f"{topic}-p2"))


def test_an_abort_goes_back(shrinking, lab, admin, deadline, topic, pipeline, unique, rest, tmp_path):
    group = unique("group")
    wanted = {TopicPartition(topic, number): Committed(5) for number in range(6)}
    assert set(commit(admin, group, wanted, deadline).values()) == {None}
    deadline.wait_for(lambda: len(pipeline.lines()) >= 301, "the sink")
    shrinking.execute(topic, 3)
    elsewhere = Change(shrinking.context, topic, tmp_path / "another host", 60)
    elsewhere.start(3, None)
    with pytest.raises(Refused, match=f"{topic}-p3 is a copy of {topic} already") as refused:
        create(elsewhere)
    assert "continues where it was started" in str(refused.value.hint) and not elsewhere.is_saved
    abort(shrinking.open(topic), shrinking.said.append)
    assert rest.get_config(pipeline.sink)["topics"] == topic == rest.get_config(pipeline.source)["topic"]
    assert {tp.topic for tp in list_committed(admin, group, deadline)} == {topic}
    deadline.wait_for(lambda: f"{topic}-p3" not in admin.raw.list_topics(timeout=10).topics, "the copy deleted")
    pipeline.add_line("after the abort")
    deadline.wait_for(lambda: "after the abort" in pipeline.lines(), "a line through the old topic")
    assert sorted(pipeline.lines()) == sorted(values_of(lab, topic))
    assert shrinking.open(topic).record is None


def test_a_sink_that_would_read_the_new_topic_by_a_pattern_is_refused_before_the_topic_is_there(
    shrinking, lab, admin, new_topic, unique, rest, tmp_path
):
    topic, sink = new_topic(2, retention_ms="-1"), unique("values")
    words = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out.txt"), "topics.regex": f"{topic}-p\\d"}
    rest.create_connector(sink, words)
    work = shrinking.open(topic)
    work.start(1, None)
    with pytest.raises(Refused, match=f"connector {sink} would read {topic}-p1 while it is filled"):
        create(work)
    assert f"{topic}-p1" not in admin.raw.list_topics(timeout=10).topics and not work.is_saved
    named = shrinking.open(topic)
    named.start(1, f"{topic}-one")
    create(named)
    rest.delete_connector(sink)


def copier_of(topic: str) -> str:
    return f"playhead-copy-{topic}-{topic}-p2"


@pytest.mark.parametrize("has_foreign", [False, True])
def test_an_abort_before_the_switch_deletes_only_what_the_copy_wrote(
    shrinking, lab, admin, deadline, new_topic, settings_of, monkeypatch, has_foreign
):
    """A copier that was killed has left an open transaction. A producer may write to the new topic too early."""
    topic = new_topic(3, retention_ms="-1")
    send(lab, topic, 60)

    def dies(*words: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(stages, "begin_switch", dies)
        shrinking.execute(topic, 2)
    with CopyProducer(settings_of, f"{copier_of(topic)}-1", Deadline(30)) as zombie:
        zombie.begin(Deadline(30))
        zombie.send_copies(f"{topic}-p2", ([b"open"], [b"open"], [0], [FIRST_MS]), None)
        zombie.flush()
        if has_foreign:
            send(lab, f"{topic}-p2", 1, start=1)
            with pytest.raises(Refused, match="was not written by the copy: it would be lost"):
                abort(shrinking.open(topic), shrinking.said.append)
            assert b"value 1" in {one.value for one in read(lab, f"{topic}-p2").values()}
        else:
            abort(shrinking.open(topic), shrinking.said.append)
            deadline.wait_for(lambda: f"{topic}-p2" not in admin.raw.list_topics(timeout=10).topics, "the copy deleted")


def test_a_compacted_topic_with_merged_keys_keeps_its_settings(shrinking, lab, admin, deadline, new_topic):
    """Its times are those of the broker. They stay, and the new topic takes over after the last copy."""
    config = {"cleanup_policy": "compact,delete", "message_timestamp_type": "LogAppendTime", "retention_ms": "86400000"}
    config |= {"retention_bytes": "1000000", "message_timestamp_before_max_ms": "86400000"}
    topic = new_topic(2, **config)
    send(lab, topic, 120, keys=12, unkeyed=False)
    add_partitions(admin, topic, 4, deadline)
    deadline.wait_for(lambda: len(get_topic(admin, topic, deadline).partitions) == 4, "four partitions")
    send(lab, topic, 120, start=120, keys=12, unkeyed=False)
    shrinking.execute(topic, 2)
    assert any("merged by timestamp" in text for text in shrinking.said)
    assert shrinking.open(topic).record.is_merged
    latest: list[dict[bytes | None, Sent]] = []
    for name in (topic, f"{topic}-p2"):
        in_order = sorted(read(lab, name).items(), key=lambda item: (item[1].timestamp_ms, item[0]))
        latest.append({one.key: one for _, one in in_order})
    assert latest[0] == latest[1]

    def settings() -> set[str]:
        words = ["--bootstrap-server", lab.bootstrap_servers, "--describe", "--topic", f"{topic}-p2"]
        shown = str(lab.tool("org.apache.kafka.tools.TopicCommand", *words))
        return set(shown.partition("Configs: ")[2].partition("\n")[0].strip().split(","))

    assert {"retention.ms=86400000", "retention.bytes=2000000", "message.timestamp.type=CreateTime"} <= settings()
    assert "message.timestamp.before.max.ms=86400000" not in settings()
    assert shrinking.finish(topic).record.stage is Stage.FINISHED
    assert {"message.timestamp.type=LogAppendTime", "message.timestamp.before.max.ms=86400000"} <= settings()


def expire(admin: Admin, topic: str, starts: dict[int, int]) -> None:
    """As retention does."""
    asked = [RawPartition(topic, number, at) for number, at in starts.items()]
    for future in admin.raw.delete_records(asked).values():
        future.result(30)


def test_what_expires_in_the_old_topic_holds_nothing_up(shrinking, lab, admin, deadline, new_topic, playhead):
    """Before it was compared, before it was copied, and together with the map."""
    topic = new_topic(3, retention_ms="-1")
    send(lab, topic, 120)

    def dies(*words: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        patched.setattr(stages, "verify", dies)
        shrinking.execute(topic, 2)
    expire(admin, topic, {0: 15, 1: 7})
    shrinking.execute(topic, 2)
    assert f"22 offset(s) of {topic} expired before they were compared: they are left out" in shrinking.said
    assert len(read(lab, f"{topic}-p2")) == 120

    send(lab, topic, 30, start=120)
    expire(admin, topic, {n: one.high - 1 for n, one in topic_ends(admin, topic, range(3), deadline).items()})
    words = ["topics", "shrink", topic, "--finish", "--execute", "-q", "-b", lab.bootstrap_servers]
    words += ["--ledger", f"sqlite:///{shrinking.folder}/ledger.db"]
    with pytest.raises(Refused, match="were deleted before they were copied") as refused:
        shrinking.finish(topic)
    assert f"topics shrink {topic} --finish --leave-late --execute" in str(refused.value.hint)
    shutil.rmtree(shrinking.folder / "ledger-copies" / admin.cluster.id / f"{topic}--{topic}-p2")
    playhead(*words, "--leave-late").exits(0)
    deadline.wait_for(lambda: topic not in admin.raw.list_topics(timeout=10).topics, "the old topic deleted")


def test_a_transaction_that_stays_open_holds_nothing_up_and_is_named(
    shrinking, lab, admin, deadline, new_topic, settings_of, unique, monkeypatch
):
    topic, name = new_topic(3, retention_ms="-1"), unique("open")
    monkeypatch.setattr(connectors, "DECIDE_SECONDS", 0.5)
    send(lab, topic, 60)
    with TransactionalProducer(settings_of, name, Deadline(60)) as other:
        other.begin()
        other.produce(topic, b"late", b"late", partition=0)
        other.flush()
        send(lab, topic, 20, start=60)
        assert shrinking.execute(topic, 2).record.stage is Stage.SWITCHED
        assert any(f"the open transaction of {name}" in text for text in shrinking.said)
        with pytest.raises(Refused, match=f"it is not deleted; .*the open transaction of {name}"):
            shrinking.finish(topic)
        other.commit()
    idempotent = Producer({"bootstrap.servers": lab.bootstrap_servers, "enable.idempotence": True})
    idempotent.produce(topic, b"old", b"old", 1, timestamp=FIRST_MS)
    assert idempotent.flush(30) == 0
    del idempotent  # it would look for its broker as long as the errors below are kept
    first, second = shrinking.open(topic).standing().writers
    assert first.startswith(f"{name} (last at 20") and second.startswith("the producer with id ")
    with pytest.raises(Refused, match="after the switch: they are copied and compared") as refused:
        shrinking.finish(topic)
    assert f"last written by {name} (last at" in str(refused.value.hint)
    check_copy(lab, topic, f"{topic}-p2", partitions=2)
    assert shrinking.finish(topic).record.stage is Stage.FINISHED


def test_a_connector_that_is_deleted_during_the_change_is_left_out(shrinking, lab, topic, pipeline, rest, monkeypatch):
    def dies(*words: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(stages, "move_positions", dies)
        shrinking.execute(topic, 2)
    config = rest.get_config(pipeline.source)
    rest.delete_connector(pipeline.source)
    assert shrinking.execute(topic, 2).record.stage is Stage.SWITCHED
    assert f"{pipeline.source} (source) was deleted meanwhile: it is left out" in shrinking.said
    assert rest.get_config(pipeline.sink)["topics"] == f"{topic}-p2"
    rest.create_connector(pipeline.source, config)


def test_files_of_the_map_are_read_from_any_folder(shrinking, tmp_path):
    folder = tmp_path / "a folder [1] {x,y} %20 *"
    files = [MapFile(0, 0, 9, FIRST, "a" * 12), MapFile(1, 0, 9, FIRST, "b" * 12)]
    for one in files:
        rows = np.array([3, 5, 8])
        write_file(folder, one, rows, np.array([one.partition] * 3, np.int32), rows + 100)
    places = read_places(shrinking.spark, [folder / one.name for one in files], {0: 0, 1: 5})
    assert sorted(map(tuple, places.collect())) == [(0, 103), (0, 105), (0, 108), (1, 105), (1, 108)]


def test_keys_that_the_cleaner_removed_on_one_side_are_no_difference(shrinking, lab, new_topic, copying_side):
    """`a` was written again behind what is compared: its older record may be gone in the source, and not yet in the copy."""
    source, target = new_topic(1, retention_ms="-1"), new_topic(1, retention_ms="-1")
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    for topic, keys in ((source, (b"b", b"a")), (target, (b"a", b"b", b"other", b"b"))):
        for number, key in enumerate(keys):
            producer.produce(
                topic, b"%d" % number if topic == target and number == 3 else b"x", key, 0, timestamp=FIRST_MS
            )
        assert producer.flush(30) == 0
    side = VerifySide(copying_side.properties, source, {0: (0, 1)}, newer={0: (1, 2)})
    there = VerifySide(copying_side.properties, target, {0: (0, 2)})
    assert verify_copy(shrinking.spark, side, there, is_compacted=True).is_equal
    assert not verify_copy(shrinking.spark, replace(side, newer={}), there, is_compacted=True).is_equal
    # `b` was written again by another producer, after the switch.
    places = shrinking.spark.createDataFrame([(0, 0)], "partition int, offset bigint")
    others = replace(there, ranges={0: (0, 4)}, places=places, has_others=True)
    assert verify_copy(shrinking.spark, side, others, is_compacted=True).is_equal
    assert not verify_copy(shrinking.spark, side, replace(others, has_others=False), is_compacted=True).is_equal


def test_a_merged_record_that_was_late_is_compared_where_it_was_copied(shrinking, lab, admin, deadline, new_topic):
    """The rounds of a copy are merged one by one; the comparison may be of several."""
    topic = new_topic(2, retention_ms="-1")
    send(lab, topic, 60, keys=5)
    add_partitions(admin, topic, 4, deadline)
    deadline.wait_for(lambda: len(get_topic(admin, topic, deadline).partitions) == 4, "four partitions")
    send(lab, topic, 60, start=60, keys=5)

    def dies(*words: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        patched.setattr(stages, "verify", dies)
        shrinking.execute(topic, 2)
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    for number in range(20):
        producer.produce(topic, b"late", b"key-%d" % (number % 5), number % 4, timestamp=FIRST_MS)
    assert producer.flush(30) == 0
    shrinking.execute(topic, 2)
    assert shrinking.open(topic).record.stage is Stage.SWITCHED and len(read(lab, f"{topic}-p2")) == 140


@pytest.mark.parametrize("what", ["header", "timestamp"])
def test_a_record_that_differs_only_in_its_header_or_time_is_a_difference(
    shrinking, lab, new_topic, copying_side, what
):
    first, second = new_topic(1, retention_ms="-1"), new_topic(1, retention_ms="-1")
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    for name, extra in ((first, 0), (second, 1)):
        at, header = (FIRST_MS + extra, b"x") if what == "timestamp" else (FIRST_MS, b"%d" % extra)
        producer.produce(name, b"value", b"key", 0, timestamp=at, headers=[("h", header)])
        assert producer.flush(30) == 0
    sides = (VerifySide(copying_side.properties, name, {0: (0, 1)}) for name in (first, second))
    (said,) = map(str, verify_copy(shrinking.spark, *sides).differences)
    assert said == "key b'key': source 0:0; copy 0:0"


def test_a_group_with_members_is_not_moved_and_late_records_keep_the_old_topic(
    shrinking, lab, admin, deadline, topic, unique, playhead
):
    group = unique("group")
    consumer = Consumer(
        {"bootstrap.servers": lab.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    deadline.wait_for(lambda: consumer.consume(400, 1), "records")
    consumer.commit(asynchronous=False)
    with pytest.raises(Refused, match=rf"group {group} has 1 member\(s\)"):
        shrinking.execute(topic, 2)
    assert shrinking.open(topic).record.stage is Stage.VERIFIED
    consumer.close()
    words = ["topics", "shrink", topic, "--partitions", "2", "-b", lab.bootstrap_servers, "-o", "json"]
    dry = json.loads(playhead(*words, "--ledger", f"sqlite:///{shrinking.folder}/ledger.db").exits(0).out)
    (note,) = [row["note"] for row in dry if row["name"] == group]
    shrinking.execute(topic, 2)
    (said,) = [text for text in shrinking.said if text.startswith(f"{group}: ")]
    repeats = 0 if "no record" in said else int(said.split()[1])
    assert note == f"its position is translated; now {repeats} record(s) would be read again"
    send(lab, topic, 40, start=300)
    lab.tool(GROUP_TOOL, "--bootstrap-server", lab.bootstrap_servers, "--group", copier_of(topic), "--delete")
    with pytest.raises(Refused, match=r"40 offset\(s\) were written"):
        shrinking.finish(topic)  # though the positions of the copy are gone, as after some days
    assert shrinking.said[-1].startswith("40 record(s) are equal")
    check_copy(lab, topic, f"{topic}-p2", partitions=2)
    check_foreign(shrinking.open(topic), admin)  # the late records are copies, too
    send(lab, f"{topic}-p2", 3, start=900)
    with pytest.raises(Refused, match=r"the record at .*-p2-. offset .* was not written by the copy"):
        abort(shrinking.open(topic), shrinking.said.append)
    send(lab, topic, 7, start=340)
    with pytest.raises(Refused, match=r"7 offset\(s\) were written"):
        shrinking.finish(topic)  # the records of others between them are not compared
    assert shrinking.said[-1].startswith("7 record(s) are equal")
    assert shrinking.finish(topic).record.stage is Stage.FINISHED
    deadline.wait_for(lambda: topic not in admin.raw.list_topics(timeout=10).topics, "the old topic deleted")


def test_a_difference_names_the_key_and_the_offsets(shrinking, lab, admin, deadline, topic, unique, tmp_path):
    copying, target = Copying(lab, shrinking.spark, tmp_path), unique("copy")
    copying.copy(topic, target, 2)
    properties = copying.side.properties
    source = {number: (0, one.offset) for number, one in copying.plan(topic, target).positions.items()}

    def compared() -> list[str]:
        ends = {number: (0, one.stable) for number, one in topic_ends(admin, target, range(2), deadline).items()}
        sides = VerifySide(properties, topic, source), VerifySide(properties, target, ends)
        found = verify_copy(shrinking.spark, *sides)
        assert found.is_equal == (not found.differences)
        return [str(one) for one in found.differences]

    assert compared() == []
    place = next(at for at, one in read(lab, target).items() if one.key == b"key-1")
    end = topic_ends(admin, target, range(2), deadline)[place[0]].high
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    producer.produce(target, b"doubled", b"key-1", place[0])
    assert producer.flush(30) == 0
    (said,) = compared()
    assert "key-1" in said and f"{place[0]}:{end}" in said


def test_an_order_that_differs_is_a_difference(shrinking, lab, admin, deadline, new_topic, copying_side):
    """The same records, two of one key exchanged: count, xor and sum of the records alone would be equal."""
    first, second = new_topic(1, retention_ms="-1"), new_topic(1, retention_ms="-1")
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    for topic, order in ((first, (1, 2, 3)), (second, (1, 3, 2))):
        for number in order:
            producer.produce(topic, b"%d" % number, b"key", 0, timestamp=FIRST_MS + number)
            assert producer.flush(30) == 0
    sides = (VerifySide(copying_side.properties, name, {0: (0, 3)}) for name in (first, second))
    (said,) = map(str, verify_copy(shrinking.spark, *sides).differences)
    assert said == "key b'key': source 0:1, 0:2; copy 0:1, 0:2"


def test_more_partitions_are_refused(shrinking, topic):
    with pytest.raises(Invalid, match=r"6 partition\(s\): 6 are not fewer"):
        shrinking.open(topic).start(6, None)


def test_what_there_is_nothing_to_do_for_is_said(lab, playhead, new_topic, tmp_path):
    topic = new_topic(3)
    words = ["topics", "shrink", topic, "-b", lab.bootstrap_servers, "--ledger", f"sqlite:///{tmp_path}/ledger.db"]
    assert (
        "--execute needs --partitions, --finish or --abort"
        in playhead(*words, "--execute", "--map", tmp_path).exits(2).err
    )
    for option in ("--finish", "--abort"):
        refused = playhead(*words, option, "--execute").exits(4)
        assert f"no change of {topic} was begun here" in refused.err and "on the same host" in refused.err
