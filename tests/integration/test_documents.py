"""The commands of the README and of the pages, run as they are printed, on a lab that has what they name."""

import gc
import json
import shlex

import pytest

from documents import PAGES, ROOT, commands_of, python_of
from integration.groups import described, kafka_groups
from playhead.cli.main import run
from playhead.connect.keys import OffsetKey, encode_new_key
from playhead.errors import NotFound
from playhead.kafka.client import make_producer
from playhead.kafka.topics import create_topic, delete_topic, list_topics
from playhead.model import Map, TopicPartition

# Whatever has none of these words is run.
NOT_RUN = {
    ("connectors", "new"): "writes a package: test_python_connectors_page, as all of that page",
    ("connectors", "watch"): "runs until it is stopped: test_connectors_watch",
    ("topics", "records", "--follow"): "runs until it is stopped: test_topics",
    ("run",): "starts Spark: test_spark_run and the demo",
    ("handover",): "a connector of the reader: test_handover",
    ("replay",): "needs a run: test_replay",
    ("audit",): "needs a pipeline: test_audit",
    ("repair",): "needs an audit: test_repair",
    ("topics", "shrink"): "needs a topic of the reader: test_topic_shrink",
    ("runs",): "needs a run: test_runs_commands",
    ("groups", "reset", "--to-ledger"): "needs a run: test_sink_positions",
    ("lab",): "the lab of the reader's machine: test_lab_life",
    ("--store",): "a server or a file of the reader: test_stores_read",
    ("offsets", "undo"): "an id of the reader's journal: test_offset_edits",
    ("connectors", "undo"): "an id of the reader's journal: test_connectors_undo",
    ("connectors", "rename"): "a connector of the reader: test_connectors_rename",
    ("offsets", "reset", "orders_files"): "needs a sink: test_offset_edits_of_sinks",
    ("offsets", "apply", "plan.json", "--stop"): "needs the JDBC connector on the worker: test_offset_plans_saved",
}
# The answer is no here: the files differ from the cluster, the doctor finds what is made below, the topic exists already.
NO = [
    ("connectors", "plan"),
    ("connectors", "validate"),
    ("offsets", "doctor"),
    ("connectors", "show", "demo-file"),
    ("connectors", "restart"),
    ("topics", "create", "orders"),
]
TOPICS = {"orders", "archive", "extra", "codes", "test-topic"}
JDBC = {"protocol": "1", "table": "shop.public.orders"}
POSITIONS = {
    "orders_src": ({"protocol": "1", "table": "shop"}, {"timestamp": 1000, "timestamp_nanos": 0}),
    "jdbc_src_1": (JDBC, {"incrementing": 1}),
    "jdbc_src_3": (JDBC, {"timestamp": 1000, "timestamp_nanos": 0}),
    "cdc_shop": ({"server": "shop"}, {"lsn": 1, "lsn_proc": 1, "txId": 1, "ts_usec": 1}),
}


@pytest.fixture
def world(lab, rest, admin, settings_of, deadline, tmp_path, monkeypatch):
    """A working directory with the files of the pages; on the lab their topic, groups, connectors and positions."""
    (tmp_path / "connectors").mkdir()
    files = {
        "orders.yaml": "orders",
        "connectors.yaml": "archive",
        "extra.json": "extra",
        "connectors/jdbc.yaml": "codes",
    }
    for path, name in files.items():
        (tmp_path / f"{name}.txt").write_text("a line\n")
        config = {"connector.class": "FileStreamSource", "file": str(tmp_path / f"{name}.txt"), "topic": name}
        body = {"name": name, "config": config} if path.endswith("json") else {"connectors": {name: {"config": config}}}
        (tmp_path / path).write_text(json.dumps(body))
    (tmp_path / "plan.csv").write_text("orders,0,5\n")
    remove_topics(admin, deadline)  # other tests of this process use the same names
    create_topic(admin, "orders", 2, deadline)
    for topic in sorted(TOPICS - {"orders"}):
        create_topic(admin, topic, 1, deadline)
    client = make_producer(settings_of)
    for number in range(200):
        client.produce("orders", json.dumps({"state": "failed"}).encode(), partition=number % 2)
    for owner, (partition, offset) in POSITIONS.items():
        client.produce("connect-offsets", json.dumps(offset).encode(), encode_new_key(OffsetKey(owner, Map(partition))))
    assert client.flush(30) == 0
    for group in ("billing", "billing-audit", "test-group"):
        kafka_groups(lab, "--reset-offsets", "--to-earliest", "--topic", "orders", "--group", group, "--execute")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLAYHEAD_CONNECT", lab.connect_urls[0])
    monkeypatch.setenv("PLAYHEAD_WORKER_CONFIG", str(lab.worker_config))
    yield
    for name in files.values():
        try:
            rest.delete_connector(name)
        except NotFound:
            continue
    remove_topics(admin, deadline)


def remove_topics(admin, deadline):
    for topic in TOPICS & set(list_topics(admin, deadline)):
        delete_topic(admin, topic, deadline)
        deadline.wait_for(lambda topic=topic: topic not in list_topics(admin, deadline), f"{topic} to be gone")


@pytest.fixture
def typed(monkeypatch, capsys):
    """Runs a command line in this process: (exit code, stderr)."""
    before = gc.get_threshold()

    def type_(words):
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as ended:
            run()
        return ended.value.code, capsys.readouterr().err

    yield type_
    gc.set_threshold(*before)


def test_the_commands_of_the_pages_run_as_they_are_printed(world, typed):
    faults, count = [], 0
    for page in PAGES:
        if page.name == "python-connectors.md":
            continue
        for words in commands_of(page):
            if any(set(skipped) <= set(words) for skipped in NOT_RUN):
                continue
            code, said = typed(words)
            count += 1
            if code not in ({0, 1} if any(set(no) <= set(words) for no in NO) else {0}):
                faults.append(f"{page.name}: {shlex.join(words)}: exit code {code}\n{said[-300:]}")
    assert not faults, "\n".join(faults)
    assert count > 30


def test_the_python_of_its_page_runs_from_top_to_bottom(world, lab, rest):
    """One namespace, as at a prompt. What the page changes is seen by the worker and by Kafka's own tool."""
    page = ROOT / "docs" / "python.md"
    names: dict[str, object] = {}
    blocks = python_of(page)
    assert len(blocks) >= 5
    for line, block in blocks:
        exec(compile("\n" * (line - 1) + block, str(page), "exec"), names)  # noqa: S102  (our own page)
    assert "lines" not in rest.list_connectors()
    assert described(lab, "billing") == {("billing", TopicPartition("orders", n)): 0 for n in (0, 1)}
