"""Sinks in Python on Spark: what their tasks are given, and that a claim which was interrupted is given again, whole."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from documents import python_of
from integration.ingesting import consumed
from integration.on_spark import JSON, NEW_TOPICS
from integration.polled_sources import STRING, PolledSources
from integration.victims import Victim
from playhead.ledger.model import RunState
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Deadline, Engine

PAGE = Path(__file__).parents[2] / "docs" / "python-connectors.md"

MODULE = '''
import json
from pathlib import Path
from playhead.sdk import Option, SinkConnector, SinkTask


class FilesTask(SinkTask):
    """A file for each claim: the same claim writes the same file again."""

    def start(self, config):
        self.config, self.lines = config, []

    def open(self, claims):
        [self.claim] = claims

    def put(self, records):
        for one in records:
            told = [one.topic, one.kafka_partition, one.kafka_offset, one.key, one.value, dict(one.headers)]
            self.lines.append(json.dumps(told))

    def flush(self, offsets):
        assert offsets == {(self.claim.topic, self.claim.partition): self.claim.end}
        (Path(self.config["folder"]) / self.claim.id).write_text("\\n".join(self.lines))
        broken = Path(self.config["folder"]) / "broken"
        if broken.exists():
            broken.unlink()
            raise ValueError("after it was written")


class Files(SinkConnector):
    version = "1"
    config = [Option("folder")]
    task = FilesTask
'''


@pytest.fixture(scope="module")
def sinks(lab, spark, tmp_path_factory) -> Iterator[PolledSources]:
    folder = tmp_path_factory.mktemp("sinks")
    with open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger:
        made = PolledSources(lab, spark, ledger, folder=folder)
        (made.plugins / "polled_files.py").write_text(MODULE)
        yield made


def told(folder):
    return [json.loads(line) for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]


def test_a_sink_gets_each_record_once_and_an_interrupted_claim_again(sinks, unique, tmp_path):
    topic = unique("orders")
    sinks.make_topic(topic, partitions=2)
    sinks.send(topic, 60)
    config = {"connector.class": "polled_files.Files", "topics": topic, "folder": str(tmp_path), **JSON, **STRING}
    spec = ConnectorSpec(f"sink-{topic}", config, Engine.SPARK)
    (tmp_path / "broken").touch()
    [failed] = sinks.polled(spec)
    assert failed.state is RunState.FAILED
    assert failed.error is not None
    assert f"sink-{topic}, {topic}-" in failed.error.what
    assert "flush raised ValueError: after it was written" in failed.error.what
    [done] = sinks.polled(spec)
    assert (done.state, done.error) == (RunState.FINISHED, None)
    found = told(tmp_path)
    assert Counter(one[4]["id"] for one in found) == Counter(range(60))
    assert [one[:4] for one in found if one[4]["id"] == 7] == [[topic, 1, 3, "7"]]
    sinks.send(topic, 10, start=60)
    [more] = sinks.polled(spec)
    assert more.rows == 10
    assert Counter(one[4]["id"] for one in told(tmp_path)) == Counter(range(70))


PAUSING_MODULE = '''
import time
from pathlib import Path
from rows_of_page import OrderRows, RowsTask, Option


class PausingTask(RowsTask):
    """Stops before or after its commit, once if it is asked to, until the process is killed."""

    def start(self, config):
        super().start(config)
        self.folder = Path(config["folder"])

    def open(self, claims):
        super().open(claims)
        if not self.is_new:
            (self.folder / f"skipped-{claims[0].id}").touch()

    def flush(self, offsets):
        self.pause("before")
        super().flush(offsets)
        self.pause("after")

    def pause(self, moment):
        try:
            (self.folder / f"pause-{moment}").unlink()
        except FileNotFoundError:
            return
        (self.folder / f"reached-{moment}").touch()
        time.sleep(50)


class Pausing(OrderRows):
    config = [*OrderRows.config, Option("folder")]
    task = PausingTask
'''


def kill_at(victim, folder, moment):
    (folder / f"pause-{moment}").touch()
    process, reached = victim.start(), folder / f"reached-{moment}"
    Deadline(90).wait_for(lambda: reached.exists() or process.poll() is not None, f"the pause {moment} the commit")
    assert process.poll() is None, victim.end(process) or victim.log
    victim.kill_driver(process)
    victim.end(process)


@pytest.mark.timeout(300)
def test_a_sink_that_stores_the_identity_of_its_claims_is_exact_wherever_it_is_killed(sinks, unique, tmp_path):
    """The sink of the page, killed after it has put and before its commit, then after its commit and before the ledger's."""
    topic, lab = unique("exact"), sinks.lab
    [code] = [block for _, block in python_of(PAGE) if "order_claims" in block]
    (sinks.plugins / "rows_of_page.py").write_text(f"from playhead.sdk import Option, Secret\n{code}")
    (sinks.plugins / "pausing_rows.py").write_text(PAUSING_MODULE)
    lab.psql("CREATE TABLE order_claims (id text PRIMARY KEY)")
    lab.psql("CREATE TABLE order_rows (id bigint, kafka_partition int, kafka_offset bigint)")
    sinks.make_topic(topic, partitions=2)
    sinks.send(topic, 60)
    own = {"connector.class": "pausing_rows.Pausing", "url": lab.postgres_url, "folder": str(tmp_path)}
    file = tmp_path / "sink.json"
    file.write_text(json.dumps({"name": f"sink-{topic}", "config": {**own, "topics": topic, **JSON, **STRING}}))
    victim = Victim(lab, file, 1000, {"PLAYHEAD_PLUGIN_PATH": str(sinks.plugins)})
    for moment in ("before", "after"):
        kill_at(victim, tmp_path, moment)
    sinks.send(topic, 10, start=60)
    assert victim.end(victim.start()) == 0, victim.log
    assert any(tmp_path.glob("skipped-*"))
    assert lab.psql("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM order_rows") == "70|70|0|69"
    places = lab.psql("SELECT count(DISTINCT (kafka_partition, kafka_offset)) FROM order_rows")
    assert places == "70"


CLUSTER_MODULE = """
import shipped_words
from playhead.sdk import Option, SinkConnector, SinkTask, SourceConnector, SourceRecord, SourceTask


class NumbersTask(SourceTask):
    def start(self, config, offsets):
        self.config, self.first = config, config["first"]
        self.at = offsets.get({"first": self.first}, {"at": 0})["at"]

    def poll(self):
        if self.at < 50:
            self.at += 10
            for number in range(self.at - 10, self.at):
                value = {"id": self.first + number, "file": __file__, "word": shipped_words.WORD}
                yield SourceRecord(self.config["topic"], value, None, {"first": self.first}, {"at": number + 1})


class Numbers(SourceConnector):
    config = [Option("topic")]
    task = NumbersTask

    def task_configs(self, max_tasks):
        return [{"first": 100 * number} for number in range(max_tasks)]


class RowsTask(SinkTask):
    def start(self, config):
        import psycopg
        self.connection = psycopg.connect(config["url"])

    def put(self, records):
        rows = [(one.value["id"], __file__) for one in records]
        self.connection.cursor().executemany("INSERT INTO shipped_rows VALUES (%s, %s)", rows)

    def flush(self, offsets):
        self.connection.commit()

    def stop(self):
        self.connection.close()


class Rows(SinkConnector):
    config = [Option("url")]
    task = RowsTask
"""


@pytest.mark.timeout(400)
def test_the_code_of_a_connector_is_sent_to_executors_of_their_own(lab, playhead, unique, tmp_path, monkeypatch):
    """A small cluster: the workers of its executors import the package from a zip that they were sent."""
    plugins, topic = tmp_path / "plugins", unique("shipped")
    plugins.mkdir()
    (plugins / "shipped_numbers.py").write_text(CLUSTER_MODULE)
    (plugins / "shipped_words.py").write_text("WORD = 'beside it'")
    lab.psql("CREATE TABLE shipped_rows (id bigint, file text)")
    monkeypatch.setenv("PLAYHEAD_PLUGIN_PATH", str(plugins))
    words = ["--master", "local-cluster[2,1,1024]", "--worker-config", str(lab.worker_config)]
    words += ["--ledger", lab.postgres_url, "-o", "json"]
    own = {
        "connector.class": "shipped_numbers.Numbers",
        "topic": topic,
        "tasks.max": "2",
        **JSON,
        **STRING,
        **NEW_TOPICS,
    }
    sink = {"connector.class": "shipped_numbers.Rows", "topics": topic, "url": lab.postgres_url, **JSON, **STRING}
    for name, config in ((topic, own), (f"sink-{topic}", sink)):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"name": name, "config": config}))
        ran = playhead("run", str(file), *words, seconds=180).exits(0)
        [row] = json.loads(ran.out)
        assert (row["state"], row["rows"]) == ("finished", 100)
    values = [json.loads(one) for one in consumed(lab, topic)]
    assert Counter(one["id"] for one in values) == Counter([*range(50), *range(100, 150)])
    assert {one["word"] for one in values} == {"beside it"}
    files = {one["file"] for one in values} | set(lab.psql("SELECT DISTINCT file FROM shipped_rows").splitlines())
    assert all(".zip/shipped_numbers.py" in file and str(plugins) not in file for file in files)
    assert lab.psql("SELECT count(*), count(DISTINCT id) FROM shipped_rows") == "100|100"
