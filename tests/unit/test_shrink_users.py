"""Who is moved when a topic changes: what is not known is an objection, never "there is none"."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from playhead.config import Context, Setting
from playhead.connect.answers import ConnectorInfo, Expanded
from playhead.errors import Refused, Unreachable
from playhead.kafka.groups import Committed
from playhead.ledger.model import RangeClaim
from playhead.model import Deadline, TopicPartition
from playhead.model.ranges import OffsetRange
from playhead.pipeline.copy.translate import CopiedTopic
from playhead.shrink import moves, users
from playhead.shrink.record import MovedConnector, Record, Stage
from playhead.shrink.users import Wanted, changed_config, find_movers, why_renamed
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
            yield SimpleNamespace(get_config=self.configs.__getitem__, find_status=lambda name: None)

        return SimpleNamespace(context=Context(None, {}), deadline=Deadline(5), rest=rest)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers()

    class Sinks:
        def __init__(self, _access: object) -> None:
            self.names, self.why = list(made.sinks), made.why

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

    monkeypatch.setattr(users, "find_users", lambda session, topics: Users({"orders": made.usage}))
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


def test_a_group_that_a_connector_of_connect_owns_is_moved_also_with_an_old_mark_of_a_ledger(answers):
    answers.has_group("connect-out", "playhead/theirs/1")
    answers.configs = {"out": {"topics": "orders", "connector.class": "FileStreamSink"}}
    running = MovedConnector("out", "sink", "RUNNING", {}, {})
    assert answers.movers(recorded=(running,)).groups == ("connect-out",)
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


def test_a_jdbc_sink_goes_on_writing_to_its_table():
    config = {"connector.class": JDBC, "topics": "orders"}
    after = changed_config(READS, config, "orders", "orders-p2")
    assert after == {"topics": "orders-p2", "table.name.format": "orders"}
    assert why_renamed({**config, **after}) is None
    config["table.name.format"] = "shop.${topic}_v1"
    after = changed_config(READS, config, "orders", "orders-p2")
    assert after == {"topics": "orders-p2", "table.name.format": "shop.orders_v1"}


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
