"""Whether the ledger is read at all: a file that does not exist costs nothing."""

import subprocess
import sys

from playhead.config import Context, Setting
from playhead.config.ledger import may_hold_something
from playhead.model import Deadline
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
