"""Whether the ledger is read at all: a file that does not exist costs nothing."""

import subprocess
import sys

import pytest

from playhead.config import Context, Setting
from playhead.config.ledger import may_hold_something
from playhead.ledger.model import Host, config_setting
from playhead.ledger.runs import open_ledger
from playhead.model import Deadline
from playhead.offsets.group_to_ledger import SinkConnectors, find_connectors
from playhead.offsets.spark_sinks import Sinks
from playhead.stores import Access


def at(url):
    return Context(None, {"ledger": Setting(url, "--ledger")})


def test_a_file_that_does_not_exist_holds_nothing_and_a_server_is_not_asked(tmp_path):
    path = tmp_path / "ledger.db"
    assert not may_hold_something(at(f"sqlite:///{path}"))
    assert not may_hold_something(Context(None))
    odd = tmp_path / "50%.db"
    odd.touch()
    assert may_hold_something(at(f"sqlite:///{tmp_path}/50%25.db"))
    path.touch()
    assert may_hold_something(at(f"sqlite:///{path}"))
    assert may_hold_something(at("postgresql://nobody@127.0.0.1:1/none"))


def test_without_a_ledger_the_database_client_is_not_loaded(tmp_path):
    code = f"""
import sys
from playhead.config import Context, Setting
from playhead.model import Deadline
from playhead.offsets.locate import Locator
from playhead.stores import Access
import playhead.offsets.plan, playhead.offsets.show
context = Context(None, {{"ledger": Setting("sqlite:///{tmp_path}/none.db", "--ledger")}})
assert Locator(Access(context, Deadline(5))).sinks.find("orders") is None
print("sqlalchemy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_ledger_that_does_not_answer_is_reported_to_those_that_need_it():
    sinks = Sinks(Access(at("postgresql://nobody@127.0.0.1:1/none"), Deadline(5)))
    assert (sinks.find("orders"), sinks.names) == (None, [])
    assert sinks.why is not None and sinks.why.exit_code == 3


@pytest.mark.parametrize(
    ("cluster", "names"), [("c1", {"a", "both"}), ("c2", {"b", "both"}), (None, {"a", "b", "both"})]
)
def test_runs_on_another_cluster_do_not_count_for_this_one(tmp_path, monkeypatch, cluster, names):
    url = f"sqlite:///{tmp_path}/ledger.db"
    with open_ledger(url, 5) as ledger:
        for place, name in (("c1", "a"), ("c2", "b"), ("c1", "both"), ("c2", "both")):
            ledger.claim(place, name, Host("here", 1, "me"), {})
    monkeypatch.setattr(Sinks, "cluster", cluster)
    assert Sinks(Access(at(url), Deadline(5))).runs == names


@pytest.mark.parametrize(("cluster", "own"), [("c1", {"a": "a-offsets"}), ("c2", {}), (None, {"a": "a-offsets"})])
def test_the_own_offsets_topics_of_sources_on_spark_are_known(tmp_path, monkeypatch, cluster, own):
    url = f"sqlite:///{tmp_path}/ledger.db"
    with open_ledger(url, 5) as ledger:
        for name, config in (("a", {"offsets.storage.topic": "a-offsets"}), ("b", {"x": "y"})):
            ledger.claim("c1", name, Host("here", 1, "me"), {"type": "source", **config_setting(config)})
    monkeypatch.setattr(Sinks, "cluster", cluster)
    assert Sinks(Access(at(url), Deadline(5))).own_topics == own


def test_sink_connectors_are_unknown_while_no_worker_answers_and_none_without_a_worker(tmp_path):
    assert find_connectors(Access(Context(None), Deadline(5))) == SinkConnectors()
    away = Context(None, {"connect": Setting("http://127.0.0.1:1", "--connect")})
    found = find_connectors(Access(away, Deadline(5)))
    assert found.connectors == {} and "127.0.0.1:1" in found.why
