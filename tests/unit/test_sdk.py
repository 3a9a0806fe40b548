"""Connectors in Python: options, records and their checks, and the engine in memory."""

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from email.message import Message
from typing import Any, cast
from urllib.error import HTTPError

import pytest

from documents import ROOT, python_of
from playhead.errors import Busy, ConfigInvalid, Invalid, Rejected
from playhead.pipeline.records import schema as connect
from playhead.sdk import (
    Map,
    Option,
    RetriableException,
    Schema,
    Secret,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
    between,
    matching,
    not_empty,
    one_of,
    split,
)
from playhead.sdk.life import cut_tasks
from playhead.sdk.testing import Leg, SourceRun, check_claims, check_restarts, run_legs, run_sink, run_source

PAGES = {"eu": [["a", "b"], ["c"], ["d", "e"]], "us": [["x"], ["y", "z"]], "jp": []}


class OrdersTask(SourceTask):
    def start(self, config, offsets):
        self.at = {r: offsets.get({"region": r}, {"page": 0})["page"] for r in config["regions"]}

    def poll(self):
        for region, page in self.at.items():
            if page < len(PAGES[region]):
                self.at[region] += 1
                for order in PAGES[region][page]:
                    yield SourceRecord("orders", order, partition={"region": region}, offset={"page": page + 1})
                return


class Orders(SourceConnector):
    version = "1.2"
    config: Sequence[Option] = (
        Option("api.url", doc="Where the orders are"),
        Option("page.size", int, 500, check=between(1, 10_000)),
        Option("api.token", Secret, None),
        Option("mode", str, "fast", check=one_of("fast", "slow")),
        Option("regions", list, ["eu", "us", "jp"], check=not_empty),
        Option("ratio", float, 0.5),
        Option("strict", bool, False),
        Option("prefix", str, "o_", check=matching("[a-z_]*")),
    )
    task: type[SourceTask] = OrdersTask

    def task_configs(self, max_tasks):
        return [{"regions": some} for some in split(self.options["regions"], max_tasks)]


URL = {"api.url": "http://127.0.0.1"}


def test_the_kit_loads_neither_spark_nor_kafka():
    code = "import playhead.sdk, playhead.sdk.testing, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"pyspark", "pyarrow", "numpy", "confluent_kafka", "kafka", "sqlalchemy", "httpx2"}
    assert heavy & set(loaded) == set()
    assert "playhead.sdk.testing" in loaded


# Options


def test_options_have_their_types_and_defaults():
    given = {**URL, "page.size": " 20 ", "api.token": "t0p", "regions": "eu, us", "ratio": "1e3", "strict": "TRUE"}
    seen = {}

    class Task(SourceTask):
        def start(self, config, offsets):
            seen.update(config)
            self.config = config

        def poll(self):
            return None

    class Connector(Orders):
        task = Task

        def task_configs(self, max_tasks):
            return [dict(self.options, region="eu")]

    run_source(Connector, given)
    assert seen.pop("api.token").reveal() == "t0p"
    assert seen == {
        "api.url": "http://127.0.0.1",
        "page.size": 20,
        "mode": "fast",
        "regions": ["eu", "us"],
        "ratio": 1000.0,
        "strict": True,
        "prefix": "o_",
        "region": "eu",
    }


def test_all_faults_of_a_config_are_told_at_once_without_secrets():
    given = {
        "page.size": "0",
        "mode": "quick",
        "ratio": "nan",
        "strict": "yes",
        "prefix": "A",
        "page.sise": "1",
        "api.token": "",
    }
    with pytest.raises(ConfigInvalid) as raised:
        SourceRun(Orders, given)
    assert [str(fault) for fault in raised.value.faults] == [
        "page.sise: is not an option of this connector; did you mean page.size?",
        "api.url: must be set: Where the orders are",
        "page.size: must be from 1 to 10000, not '0'",
        "mode: must be one of fast, slow, not 'quick'",
        "ratio: must be a number, not 'nan'",
        "strict: must be true or false, not 'yes'",
        "prefix: must match [a-z_]*, not 'A'",
    ]


def test_a_wrong_secret_is_not_shown():
    class Connector(Orders):
        config = (Option("api.token", Secret, check=lambda token: "is too short"),)

    with pytest.raises(ConfigInvalid) as raised:
        SourceRun(Connector, {"api.token": "hunter2"})
    assert str(raised.value) == "api.token: is too short"


def test_a_connector_checks_what_no_single_option_shows():
    class Connector(Orders):
        @classmethod
        def validate(cls, config):
            if config["strict"] and config["mode"] == "fast":
                yield "strict and mode=fast exclude each other"

    with pytest.raises(ConfigInvalid, match="exclude each other"):
        SourceRun(Connector, {**URL, "strict": "true"})


def test_an_option_of_an_unknown_type_is_a_mistake_of_its_author():
    with pytest.raises(TypeError, match=r"page\.size"):
        Option("page.size", dict)


def test_an_option_that_is_not_declared_names_the_nearest_one():
    class Task(SourceTask):
        def start(self, config, offsets):
            config["page.sice"]

    class Connector(Orders):
        task = Task

    with pytest.raises(Rejected, match=r"start raised KeyError.*did you mean page\.size"):
        run_source(Connector, URL)


# Tasks


def test_work_is_split_into_parts_of_nearly_the_same_length():
    assert split("abcde", 2) == [["a", "c", "e"], ["b", "d"]]
    assert split("ab", 5) == [["a"], ["b"]]
    assert split("", 5) == []
    with pytest.raises(Invalid):
        split("ab", 0)


def test_task_configs_are_plain_and_not_more_than_allowed():
    assert cut_tasks(Orders, URL, 2) == [{"regions": ["eu", "jp"]}, {"regions": ["us"]}]

    class TooMany(Orders):
        def task_configs(self, max_tasks):
            return [{}] * (max_tasks + 1)

    with pytest.raises(Rejected, match=r"task_configs\(2\) gives 3 tasks"):
        cut_tasks(TooMany, URL, 2)

    class NotPlain(Orders):
        def task_configs(self, max_tasks):
            return [{"when": datetime.now(UTC)}]

    with pytest.raises(Rejected, match="the config of task 0 is not JSON"):
        cut_tasks(NotPlain, URL, 2)

    class Leaks(Orders):
        def task_configs(self, max_tasks):
            return [{"mine": Secret("x")}]

    with pytest.raises(Rejected, match="secret"):
        cut_tasks(Leaks, URL, 2)


def test_a_run_commits_records_with_the_offset_of_each_source_partition():
    run = run_source(Orders, URL)
    assert run.values("orders") == ["a", "b", "c", "d", "e", "x", "y", "z"]
    assert run.offsets == {Map({"region": "eu"}): {"page": 3}, Map({"region": "us"}): {"page": 2}}
    assert run.offset({"region": "us"}) == {"page": 2}
    assert run.stops == 1


def test_a_run_begins_at_the_offsets_it_is_given():
    run = run_source(Orders, URL, offsets={Map({"region": "eu"}): {"page": 2}})
    assert run.values() == ["d", "e", "x", "y", "z"]


class PairsTask(OrdersTask):
    """Ends a transaction after every second poll."""

    polls = 0

    def poll(self):
        self.polls += 1
        if self.polls % 2 == 0:
            self.transaction.commit()
        return list(super().poll())


class Pairs(Orders):
    task = PairsTask
    defines_transactions = True


def test_transactions_end_where_the_connector_says():
    run = SourceRun(Pairs, URL, boundary="connector")
    run.poll()
    assert (run.values(), run.offsets) == ([], {})
    run.poll()
    assert (run.values(), run.offset({"region": "eu"})) == (["a", "b", "c"], {"page": 2})
    run.poll()
    run.kill()
    assert run.offset({"region": "eu"}) == {"page": 2}
    assert run.run().values() == ["a", "b", "c", "d", "e", "x", "y", "z"]
    with pytest.raises(Invalid, match="Orders does not define transactions"):
        SourceRun(Orders, URL, boundary="connector")


def test_a_source_partition_of_two_tasks_is_refused():
    class Task(OrdersTask):
        def poll(self):
            return [SourceRecord("t", 1, partition={"p": 1}, offset={"o": 1})]

    class Connector(Orders):
        task = Task

    with pytest.raises(Rejected, match=r'the source partition \{"p":1\} is read by two tasks'):
        SourceRun(Connector, URL, max_tasks=2).run()


def test_a_killed_run_repeats_only_what_was_not_committed():
    run = SourceRun(Orders, URL)
    run.poll()
    run.poll(commits=False)
    run.kill()
    assert run.stops == 0
    assert run.run().values() == ["a", "b", "c", "d", "e", "x", "y", "z"]


def test_any_split_into_restarts_commits_the_same():
    whole = check_restarts(Orders, URL)
    assert len(whole.records) == 8


def test_a_task_that_forgets_its_offset_is_found():
    class Forgets(OrdersTask):
        def start(self, config, offsets):
            self.at = dict.fromkeys(config["regions"], 0)

    class Connector(Orders):
        task = Forgets

        @classmethod
        def compare_offsets(cls, before, after):
            return None

    with pytest.raises(AssertionError, match="repeated, such as SourceRecord"):
        check_restarts(Connector, URL)


def test_a_task_that_skips_at_a_restart_is_found():
    class Skips(OrdersTask):
        def start(self, config, offsets):
            super().start(config, offsets)
            self.at = {region: page + (page > 0) for region, page in self.at.items()}

    class Connector(Orders):
        task = Skips

    with pytest.raises(AssertionError, match=r"1 poll\(s\) of 1 task\(s\), stopped; then to the end: .* missing"):
        check_restarts(Connector, URL)


def test_a_run_that_never_ends_is_an_error_and_not_a_loop():
    class Endless(SourceTask):
        def poll(self):
            return [SourceRecord("t", 1, partition={"p": 1}, offset={"o": 1})]

    class Connector(Orders):
        task = Endless

    with pytest.raises(AssertionError, match="something more after 7 polls"):
        SourceRun(Connector, URL).run(most_polls=7)


def test_legs_tell_what_was_done():
    assert str(Leg(2, stops=False, loses=True, max_tasks=3)) == "2 poll(s) of 3 task(s), killed in a poll"
    assert run_legs(Orders, URL, [Leg(1, max_tasks=2), Leg(3, stops=False)]).offset({"region": "eu"}) == {"page": 3}


# What is wrong with records


def polled(*records, compare=None):
    class Task(SourceTask):
        done = False

        def poll(self):
            if not self.done:
                self.done = True
                return records
            return None

    class Connector(SourceConnector):
        task = Task

    return run_source(Connector)


NOW = datetime(2026, 1, 1, tzinfo=UTC)
AT: Any = {"partition": {"p": "1"}, "offset": {"o": 1}}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"value": 1}, "record 1 of the poll is a dict: poll gives records of type SourceRecord"),
        (SourceRecord("", 1, **AT), "has the topic '', which is no name"),
        (SourceRecord("t", 1), "has the partition {}: it must be a dict with at least one field"),
        (SourceRecord("t", 1, partition={"p": 1}), "has the offset {}"),
        (SourceRecord("t", 1, partition={"p": 1}, offset=cast(Any, 7)), "has the offset 7"),
        (SourceRecord("t", 1, partition={"p": [1]}, offset={"o": 1}), "has a partition that Connect cannot store"),
        (
            SourceRecord("t", 1, partition={"p": 1}, offset={"o": {"deep": 1}}),
            "has an offset that Connect cannot store",
        ),
        (SourceRecord("t", 1, partition={"p": 1}, offset={"o": NOW}), "has an offset that Connect cannot store"),
        (SourceRecord("t", 1, partition={"p": 1}, offset={"o": 2**63}), "does not fit into 64 bits"),
        (SourceRecord("t", object(), **AT), "has a value of type object, which Connect does not have"),
        (SourceRecord("t", {"a": [{"b": {1}}]}, **AT), "has a value of type set"),
        (SourceRecord("t", 1, {1: "x"}, **AT), "has a dict with the key 1, which is no text"),
        (SourceRecord("t", NOW.replace(tzinfo=None), **AT), "has no time zone"),
        (SourceRecord("t", 2**63, **AT), "does not fit into 64 bits"),
        (SourceRecord("t", 1, timestamp=datetime(2026, 1, 1), **AT), "has no time zone"),  # noqa: DTZ001
        (SourceRecord("t", 1, timestamp=cast(Any, "now"), **AT), "a timestamp of type str"),
        (SourceRecord("t", 1, timestamp=0, **AT), "the timestamp 0, which is not after 1970-01-01"),
        (SourceRecord("t", 1, kafka_partition=-1, **AT), "kafka_partition -1"),
    ],
)
def test_a_record_that_cannot_be_sent_is_named(record, said):
    with pytest.raises(Rejected, match="record 1 of the poll") as raised:
        polled(record)
    assert said in raised.value.what


def test_an_offset_that_goes_back_is_named_with_its_record():
    def at(number, offset):
        return SourceRecord("t", number, partition={"p": "1"}, offset=offset)

    with pytest.raises(Rejected) as raised:
        polled(at(1, {"o": 1}), at(2, {"o": 3}), at(3, {"o": 2}))
    assert raised.value.what == (
        "record 3 of the poll (after {\"p\":\"1\"} at {'o': 3}) goes back from the offset {'o': 3} to {'o': 2}"
    )
    # The order of these is not known: a text, another field, one number up and one down.
    polled(at(1, {"f": "b"}), at(2, {"f": "a"}))
    polled(at(1, {"o": 5}), at(2, {"n": 1}))
    polled(at(1, {"file": 1, "line": 9}), at(2, {"file": 2, "line": 1}))


def test_what_poll_raises_is_one_sentence_with_the_line_of_the_author():
    class Task(SourceTask):
        def poll(self):
            raise KeyError("id")

    class Connector(SourceConnector):
        task = Task

    with pytest.raises(Rejected, match=r"^poll raised KeyError: 'id' \(test_sdk.py, line \d+\)$"):
        run_source(Connector)


def http_error(status: int) -> HTTPError:
    return HTTPError("http://127.0.0.1", status, "said the server", Message(), None)


class RequestsError(OSError):
    """As the one of requests."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} Client Error")
        self.response = type("Response", (), {"status_code": status})()


def failing_start(error: Exception) -> type[SourceConnector]:
    class Task(SourceTask):
        def start(self, config, offsets):
            raise error

        def stop(self):
            raise AttributeError("connection")

    class Connector(SourceConnector):
        task = Task

    return Connector


TEMPORARY = [RetriableException("503"), ConnectionRefusedError("no"), TimeoutError("slow"), OSError("no route")]
LASTING = [FileNotFoundError("/x"), PermissionError("/x"), IsADirectoryError("/x"), RequestsError(403), ValueError("x")]


@pytest.mark.parametrize(
    "error", [*TEMPORARY, *map(http_error, (408, 425, 429, 500, 503)), RequestsError(429)], ids=str
)
def test_a_source_that_does_not_answer_is_retried(error):
    with pytest.raises(Busy, match="start could not reach its source"):
        run_source(failing_start(error))


@pytest.mark.parametrize("error", [*LASTING, *map(http_error, (400, 401, 403, 404, 410))], ids=str)
def test_what_does_not_go_away_by_itself_is_not_retried(error):
    with pytest.raises(Rejected, match=f"start raised {type(error).__name__}") as raised:
        run_source(failing_start(error))
    assert not isinstance(raised.value, Busy)


def test_the_failure_of_a_connector_is_not_hidden_by_its_stop():
    class Connector(Orders):
        def task_configs(self, max_tasks):
            raise ConnectionError("down for the moment")

        def stop(self):
            raise AttributeError("connection")

    with pytest.raises(Busy, match="task_configs could not reach its source: ConnectionError: down"):
        cut_tasks(Connector, URL, 1)


# Schemas


def test_declared_schemas_are_those_of_connect():
    order = Schema.struct(
        "Order",
        id=Schema.int64(),
        small=Schema.int8(),
        medium=Schema.int16(),
        number=Schema.int32(),
        ratio=Schema.float32(),
        precise=Schema.float64(),
        ok=Schema.boolean(),
        raw=Schema.bytes(),
        total=Schema.decimal(2),
        day=Schema.date(),
        hour=Schema.time(),
        at=Schema.timestamp(optional=True),
        tags=Schema.array(Schema.string()),
    ).with_field("by-name", Schema.map(Schema.string(), Schema.int32(optional=True)))
    read = connect.Schema.from_json(order.to_json())
    assert read.text == order.to_json()
    assert [name for name, _ in read.fields][-1] == "by-name"
    assert dict(read.fields)["total"].is_decimal
    assert dict(read.fields)["at"] == connect.Schema("int64", True, connect.TIMESTAMP, 1)


# Sinks


def test_a_sink_is_given_claims_and_records_in_order():
    said = []

    class Task(SinkTask):
        def start(self, config):
            said.append(config["table"])

        def open(self, claims):
            said.append([claim.id for claim in claims])

        def put(self, records):
            said.append([one.value for one in records])

        def flush(self, offsets):
            said.append(offsets)

        def close(self):
            said.append("close")

        def stop(self):
            said.append("stop")

    class Connector(SinkConnector):
        config = (Option("table"),)
        task = Task

    run_sink(Connector, {"table": "t"}, [SinkRecord("orders", 0, at, Decimal(at)) for at in (3, 4, 7)], batch=2)
    assert said == ["t", ["orders+0+3+8"], [3, 4], [7], {("orders", 0): 8}, "close", "stop"]


def test_each_claim_is_given_to_a_task_of_its_own():
    opened = []

    class Task(SinkTask):
        def open(self, claims):
            opened.append([claim.id for claim in claims])

        def put(self, records):
            pass

    class Connector(SinkConnector):
        task = Task

    run_sink(Connector, {}, [SinkRecord("t", at % 2, at, at) for at in range(4)])
    assert opened == [["t+0+0+3"], ["t+1+1+4"]]


def test_a_sink_that_writes_twice_when_its_claim_is_given_again_is_found():
    rows: dict[object, object] = {}
    appended: list[object] = []

    class Upserts(SinkTask):
        def put(self, records):
            rows.update({one.kafka_offset: one.value for one in records})

    class Appends(SinkTask):
        def start(self, config):
            self.waiting: list[object] = []

        def put(self, records):
            self.waiting += [one.value for one in records]

        def flush(self, offsets):
            appended.extend(self.waiting)

    class Exact(SinkConnector):
        task: type[SinkTask] = Upserts

    class Twice(SinkConnector):
        task: type[SinkTask] = Appends

    records = [SinkRecord("t", 0, at, at) for at in range(5)]
    check_claims(Exact, {}, records, lambda: dict(rows), batch=2, before=rows.clear)
    with pytest.raises(
        AssertionError, match=r"killed after flush of t\+0\+0\+5, and given again: \[0, 1.* instead of \[0"
    ):
        check_claims(Twice, {}, records, lambda: list(appended), batch=2, before=appended.clear)


def test_the_code_of_the_page_does_what_the_page_says():
    pages = {"eu": [["a", "b"], ["c", "d"], ["e"]], "us": [["f", "g"], ["h"]], "jp": [["i"]]}

    def ask_api(config, region, page):
        assert config["api.token"].reveal() == "t"
        return [{"id": one} for one in (pages[region][page] if page < len(pages[region]) else [])]

    names: dict[str, Any] = {"ask_api": ask_api}
    for _, block in python_of(ROOT / "docs" / "python-connectors.md"):
        exec(compile(block, "python-connectors.md", "exec"), names)  # noqa: S102
    names["test_orders"]({"api.url": "http://127.0.0.1", "api.token": "t"})
    paged = names["PagedOrders"]
    assert list(paged.check_offset({}, {"page": -1})) == ["page must be the number of the next page"]
    assert paged.show_offset({}, {"page": 7}) == "goes on with page 7"
    assert [paged.compare_offsets({"page": one}, {"page": 2}) for one in (1, 2, 3)] == [-1, 0, 1]
