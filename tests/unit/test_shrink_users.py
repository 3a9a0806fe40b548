"""Who is moved when a topic changes: what is not known is an objection, never "there is none"."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from playhead.config import Context, Setting
from playhead.connect.answers import ConnectorInfo, Expanded
from playhead.errors import Refused, Unreachable
from playhead.kafka.group_types import UNTOLD
from playhead.kafka.groups import Committed, GroupListing
from playhead.kafka.topics import Ends
from playhead.ledger.model import RangeClaim
from playhead.model import Deadline, TopicPartition
from playhead.model.ranges import OffsetRange
from playhead.pipeline.copy.offset_map import FIRST
from playhead.pipeline.copy.positions import Mark as CopyMark
from playhead.pipeline.copy.translate import CopiedTopic
from playhead.shrink import moves, on_spark, users
from playhead.shrink.record import MovedConnector, Record, Stage
from playhead.shrink.users import Wanted, find_movers
from playhead.topics import usage as usage_module
from playhead.topics.session import Session
from playhead.topics.usage import ConnectorUse, GroupUse, Usage, Users

WANTED = Wanted("orders", "orders-p2", "copier")
READS = ConnectorUse("out", "sink", "running", "reads it")
JDBC = "io.confluent.connect.jdbc.JdbcSinkConnector"


class Answers:
    """What brokers, workers and the ledger answer in a test."""

    def __init__(self) -> None:
        self.usage = Usage(connectors=None)
        self.commits: dict[str, dict[TopicPartition, Committed]] = {}
        self.sinks: dict[str, str] = {}
        self.claims: list[RangeClaim] = []
        self.configs: dict[str, dict[str, str]] = {}
        self.runs: list[Any] = []
        self.others: list[GroupListing] = []
        self.ends = Ends(0, 9, 9)
        self.new_usage = Usage(connectors=None)
        self.why: Exception | None = None

    def has_group(self, name: str, metadata: str = "") -> None:
        self.usage = Usage((*(self.usage.groups or ()), GroupUse(name, "empty", 0, 1, 0)), self.usage.connectors)
        self.commits[name] = {TopicPartition("orders", 0): Committed(5, metadata)}

    def movers(self, wanted: Wanted = WANTED, recorded: tuple[MovedConnector, ...] = ()) -> users.Movers:
        return find_movers(SimpleNamespace(), self.access, wanted, recorded)  # type: ignore[arg-type]

    @property
    def access(self) -> Any:
        @contextmanager
        def rest() -> Any:
            yield SimpleNamespace(
                get_config=self.configs.__getitem__,
                find_status=lambda name: None,
                list_connectors=lambda: list(self.configs),
            )

        return SimpleNamespace(context=Context(None, {}), deadline=Deadline(5), rest=rest)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers()

    class Sinks:
        def __init__(self, _access: object) -> None:
            self.names, self.why, self.listed = list(made.sinks), made.why, made.runs
            self.access = made.access

        def find(self, name: str) -> Any:
            @contextmanager
            def opened() -> Any:
                yield SimpleNamespace(
                    recall=lambda cluster, pipeline, key: made.sinks[pipeline],
                    list_claims=lambda cluster, pipeline: made.claims,
                )

            place = SimpleNamespace(position=SimpleNamespace(partition={"kafka_topic": "orders"}))
            return SimpleNamespace(
                cluster="c",
                open=opened,
                guard=lambda owners: [],
                snapshot=lambda owners: SimpleNamespace(entries=[place]),
            )

    by_topic = {"orders": "usage", "orders-p2": "new_usage"}
    monkeypatch.setattr(users, "find_users", lambda *_: Users({one: getattr(made, at) for one, at in by_topic.items()}))
    monkeypatch.setattr(users, "list_other_groups", lambda admin, deadline: made.others)
    partition = SimpleNamespace(id=0)
    monkeypatch.setattr(users, "get_topic", lambda *words: SimpleNamespace(partitions=[partition]))
    monkeypatch.setattr(users, "topic_ends", lambda *words: {0: made.ends})
    monkeypatch.setattr(on_spark, "_written", lambda sinks, run: run.topics)
    monkeypatch.setattr(users, "list_committed_of", lambda a, names, d: {name: made.commits[name] for name in names})
    monkeypatch.setattr(users, "Sinks", Sinks)
    return made


def test_each_sink_of_another_ledger_is_an_objection_also_beside_one_of_this_ledger(answers):
    answers.sinks = {"files": "mine"}
    answers.has_group("connect-files", "playhead/mine/3")
    answers.has_group("connect-other", "playhead/theirs/1")
    found = answers.movers()
    assert found.objections == ("group connect-other is of a sink on Spark that this ledger does not have (--ledger)",)
    assert (found.sinks, found.groups) == (("files",), ())


def test_a_sink_with_an_open_step_of_the_topic_is_an_objection(answers):
    """Its next run finishes it as it was claimed, from the old topic; the new position would deliver the same records again."""
    answers.sinks = {"files": "mine"}
    for topic in ("orders", "other"):
        range_ = OffsetRange(topic, "id", 3, 10, 25)
        answers.claims.append(RangeClaim(range_, closes=False, shape="", made_ms=0))
    assert answers.movers().objections == ("files has begun orders-3[10,25) and not finished it: run it once more",)


def test_a_commit_past_the_end_of_the_topic_is_an_objection_before_anything_is_copied(answers):
    """Of an earlier topic of this name: it belongs to no offset of the copy."""
    answers.has_group("stale")
    assert answers.movers().objections == ()
    answers.ends = Ends(0, 4, 4)
    (said,) = answers.movers().objections
    assert said.startswith("group stale has committed 5 in orders-0, which ends at 4: playhead groups reset stale")


@pytest.mark.parametrize(
    ("kind", "state", "words"),
    [
        ("share", "stable", "share group g may read it: stop its members"),
        (UNTOLD, "unknown", "share or streams group g may read it: stop its members"),
        ("streams", "stable", "streams group g reads it: stop its members"),
        ("share", "empty", None),
        ("sr", "stable", None),
    ],
)
def test_a_share_or_streams_group_that_may_read_the_topic_is_an_objection(answers, kind, state, words):
    answers.others = [GroupListing("g", kind, state)]
    answers.commits["g"] = {TopicPartition("orders", 0): Committed(5)}
    assert answers.movers().objections == ((words,) if words else ())


def test_a_streams_group_of_other_topics_is_none(answers):
    answers.others = [GroupListing("g", "streams", "stable")]
    answers.commits["g"] = {TopicPartition("other", 0): Committed(5)}
    assert answers.movers().objections == ()


def test_the_position_of_a_copy_is_not_moved(answers):
    answers.has_group("playhead-copy-orders-backup", CopyMark("a", "b", 2, "", FIRST).text)
    found = answers.movers()
    assert (found.groups, found.objections) == ((), ())
    assert "playhead-copy-orders-backup is the position of a copy" in found.notes[0]


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_run_on_spark_that_writes_or_copies_the_topic_is_an_objection_while_it_runs(answers, is_alive):
    copy = {"type": "copy", "source": "orders", "target": "backup"}
    for name, settings, topics in (("b", copy, []), ("in", {"type": "source"}, ["orders"]), ("copier", copy, [])):
        run = {"pipeline": name, "settings": settings, "topics": topics, "is_alive": is_alive}
        answers.runs.append(SimpleNamespace(**run, is_copy=settings is copy))
    found = answers.movers()
    assert [one.partition(":")[0] for one in found.objections] == (
        ["b runs, a copy with this topic", "in writes it on Spark"] if is_alive else []
    )
    assert found.notes[0].startswith("in has written it on Spark")


def test_a_connector_whose_pattern_matches_the_new_name_is_an_objection(answers):
    """It would read all records once more while the new topic is filled."""
    answers.new_usage = Usage((), (READS, ConnectorUse("old", "sink", "running", "reads it")))
    answers.configs = {"out": {"topics.regex": "orders-.*"}, "old": {"topics": "other"}}
    (said,) = answers.movers().objections
    assert said == "connector out would read orders-p2 while it is filled (orders-.*): --to names another"
    assert answers.movers(recorded=(MovedConnector("out", "sink", "RUNNING", {}, {}),)).objections == ()


@pytest.mark.parametrize(("state", "count"), [("running", 1), ("stopped", 0)])
def test_a_mirror_of_the_topic_is_an_objection_until_it_is_stopped(answers, state, count):
    mirror = ConnectorUse("mirror", "source", state, "mirrors it")
    answers.usage = answers.new_usage = Usage((), (mirror,))
    answers.configs = {"mirror": {"connector.class": "x.MirrorSourceConnector", "topics": "orders"}}
    found = answers.movers()
    assert sum("it mirrors the topic" in one for one in found.objections) == count
    assert any("would mirror orders-p2 as another topic" in one for one in found.notes) == (count == 0)


def test_a_group_that_a_connector_of_connect_owns_is_moved_also_with_an_old_mark_of_a_ledger(answers):
    answers.has_group("connect-out", "playhead/theirs/1")
    answers.configs = {"out": {"topics": "orders", "connector.class": "FileStreamSink"}}
    running = MovedConnector("out", "sink", "RUNNING", {}, {})
    assert answers.movers(recorded=(running,)).groups == ("connect-out",)
    assert answers.movers(recorded=(running, MovedConnector("gone", "sink", "RUNNING", {}, {}))).groups == (
        "connect-out",
    )
    stopped = MovedConnector("out", "sink", "STOPPED", {}, {})
    assert answers.movers(recorded=(stopped,)).groups == ()


def test_a_connector_that_has_its_new_config_already_is_no_objection_when_the_switch_continues(answers):
    answers.usage = Usage((), (READS,))
    answers.configs = {"out": {"topics": "orders-p2", "connector.class": "FileStreamSink"}}
    assert "cannot be moved" in answers.movers().objections[0]
    recorded = MovedConnector("out", "sink", "RUNNING", {"topics": "orders"}, {"topics": "orders-p2"})
    assert answers.movers(recorded=(recorded,)).objections == ()


@pytest.mark.parametrize("fault", ["groups", "ledger", "connector"])
def test_no_position_is_moved_while_the_readers_are_not_known(answers, monkeypatch, tmp_path, fault):
    """Also when the switch is continued: a question that was answered before may fail now."""
    if fault == "groups":
        answers.usage = Usage(None, None, unknown=("which groups use it is unknown: the broker is away",))
    if fault == "ledger":
        answers.why = Refused("the ledger is away")
    if fault == "connector":
        answers.usage = Usage((), (READS,))
        answers.configs = {"out": {"topics": "orders", "connector.class": "FileStreamSink"}}

    @contextmanager
    def session() -> Any:
        yield SimpleNamespace()

    monkeypatch.setattr(moves, "open_groups", lambda context, deadline: SimpleNamespace(session=session))
    monkeypatch.setattr(CopiedTopic, "open", lambda *words: pytest.fail("positions are planned"))
    change: Any = SimpleNamespace(
        topic="orders",
        wanted=WANTED,
        context=Context(None, {}),
        request=SimpleNamespace(target="orders-p2", group="copier"),
        recorded=Record("orders", "orders-p2", 2, "id", Stage.SWITCHING),
    )
    with pytest.raises(Refused, match="has to be known before positions are moved"):
        moves.plan_moves(change, answers.access, lambda text: None)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"connector.class": JDBC, "topics": "orders,more"}, "names its table by the topic"),
        ({"connector.class": "io.confluent.connect.s3.S3SinkConnector", "topics": "orders"}, "may name its output"),
    ],
)
def test_a_sink_that_would_write_elsewhere_is_moved_only_if_that_is_accepted(answers, config, words):
    answers.usage = Usage((), (READS,))
    answers.configs = {"out": config}
    (said,) = answers.movers().objections
    assert words in said and "--new-names" in said
    accepted = answers.movers(Wanted("orders", "orders-p2", "copier", accepts_names=True))
    assert accepted.objections == () and words in accepted.notes[0]


HERE = "here:9092"
MIRROR = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}


@pytest.mark.parametrize(
    ("more", "how"),
    [
        ({"topics": "or.*, other"}, "mirrors it"),
        ({}, "mirrors it"),
        ({"topics": "other"}, None),
        ({"topics": ".*", "topics.exclude": "x,ord.*"}, None),
        ({"source.cluster.bootstrap.servers": "far:9092"}, None),
    ],
)
def test_a_mirror_uses_the_topics_that_its_patterns_name_in_its_source_cluster(more, how):
    config = {**MIRROR, "source.cluster.bootstrap.servers": f"other:9092, {HERE}", **more}
    cluster = SimpleNamespace(brokers=[SimpleNamespace(host="here", port=9092)])
    session: Any = SimpleNamespace(context=Context(None, {}), admin=SimpleNamespace(cluster=cluster))
    found = {"m": Expanded(ConnectorInfo("m", config, [], "source"))}
    notes: list[str] = []
    uses = usage_module._users_of(session, "orders", found, {}, usage_module._Said(notes))
    assert [use.how for use in uses] == ([how] if how else [])
    assert ["far:9092" in note for note in notes] == ([True] if "far:9092" in config.values() else [])


@pytest.mark.parametrize(
    ("config", "touched", "how"),
    [
        ({"topics": "orders"}, ["orders"], "writes to it"),
        ({"topics": "orders"}, ["other"], "reads it"),
        ({"topic.whitelist": "orders"}, ["orders"], "reads it"),
    ],
)
def test_a_source_writes_to_its_topics_if_the_worker_says_so(config, touched, how):
    found = {"in": Expanded(ConnectorInfo("in", config, [], "source"))}
    session: Any = SimpleNamespace()
    (use,) = usage_module._users_of(session, "orders", found, {"in": frozenset(touched)}, usage_module._Said())
    assert use.how == how


def test_a_pattern_that_cannot_be_read_is_not_one_that_does_not_match():
    unknown: list[str] = []
    assert usage_module.how_by_config("out", "orders", {"topics.regex": "[o[a-z]].*"}, unknown) is None
    assert "uses Java's own syntax" in unknown[0]


@pytest.mark.parametrize("pattern", [r"\p{Alpha}+", r"(?U)\w++", r"(?<x>o)[\p{Lower}\h]*", r"(?>o)\Qrders\E"])
def test_patterns_of_java_are_read(pattern):
    unknown: list[str] = []
    assert usage_module.how_by_config("out", "orders", {"topics.regex": pattern}, unknown) == "reads it"
    assert usage_module.how_by_config("out", "0-9", {"topics.regex": pattern}, unknown) is None
    assert unknown == []


@pytest.mark.parametrize(
    ("kind", "touched", "said"),
    [
        ("sink", {"c": frozenset({"other"})}, "unread"),
        ("sink", {"c": frozenset({"orders"})}, "reads it"),
        ("sink", {}, "unknown"),
        ("source", {"c": frozenset({"other"})}, "unknown"),
    ],
)
def test_of_a_sink_whose_pattern_cannot_be_read_the_worker_says_what_it_has_read(kind, touched, said):
    found = {"c": Expanded(ConnectorInfo("c", {"topics.regex": "[o[a-z]].*"}, [], kind))}
    session: Any = SimpleNamespace()
    all_said = usage_module._Said()
    uses = usage_module._users_of(session, "orders", found, touched, all_said)
    assert [use.how for use in uses] == (["reads it"] if said == "reads it" else [])
    assert (bool(all_said.unread.get("orders")), bool(all_said.unknown)) == (said == "unread", said == "unknown")


def test_a_pattern_that_cannot_be_read_may_match_the_new_name_only_if_that_is_accepted(answers):
    answers.usage = Usage(connectors=(), unread=("whether [o[a-z]] of out matches orders is unknown",))
    answers.new_usage = Usage(connectors=(), unread=("whether [o[a-z]] of out matches orders-p2 is unknown",))
    (said,) = answers.movers().objections
    assert "matches orders-p2" in said and "--new-names" in said
    assert answers.movers(Wanted("orders", "orders-p2", "copier", accepts_names=True)).objections == ()


class SilentRest:
    """A worker that does not say which topics its connectors have used."""

    def __enter__(self) -> "SilentRest":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def expand_connectors(self) -> dict[str, Expanded]:
        infos = [ConnectorInfo("in", {}, [], "source"), ConnectorInfo("out", {"topics": "other"}, [], "sink")]
        return {info.name: Expanded(info) for info in infos}

    def list_connectors(self) -> list[str]:
        return ["in", "out"]

    def get_active_topics(self, name: str) -> list[str]:
        raise Unreachable("the worker does not answer")


def test_a_source_whose_topics_the_worker_does_not_tell_may_write_to_the_topic(monkeypatch):
    monkeypatch.setattr(usage_module, "open_rest", lambda context, deadline: SilentRest())
    monkeypatch.setattr(usage_module, "_groups", lambda *words: {"orders": []})
    context = Context(None, {"connect": Setting("http://worker:8083", "here")})
    found = usage_module.find_users(Session(SimpleNamespace(), context, Deadline(5)), ["orders"])  # type: ignore[arg-type]
    assert found.by_topic["orders"].unknown == ("whether in write(s) to it is unknown: the worker does not answer",)
