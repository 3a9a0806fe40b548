"""Hand-overs that are killed at any step: the same command continues, or an undo goes back. Never two owners, nothing lost or
doubled. In `make test` at one step each way, in `make soak` at all of them."""

import signal
import subprocess

import pytest

from integration.switching import KILLER, PYTHON, Watching, Writer, eos_pair  # noqa: F401


def killed_at(pair, function, words):
    done = subprocess.run([PYTHON, "-c", KILLER, function, "1", *words], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done


TO_SPARK = ["stop", "save_step", "fence", "adopt", "hand_over", "apply_engines", "finish"]
TO_CONNECT = ["request_stop", "hand_over", "publish", "verify", "resume", "apply_engines", "finish"]


@pytest.mark.parametrize("kills", [["hand_over"], pytest.param(TO_SPARK, marks=pytest.mark.soak)], ids=["one", "all"])
def test_killed_on_the_way_to_spark_the_same_command_goes_on(eos_pair, kills):
    pair = eos_pair
    writer = Writer(pair.lines)
    pair.create()
    pair.grows()
    with Watching(pair):
        for function in kills:
            killed_at(pair, function, pair.words("spark"))
            again = pair.hand("spark")
            assert [pair.state(name) for name in pair.names] == [("STOPPED", 0)] * 2, again.err
            pair.run()
            pair.grows(5)
            pair.hand("connect")
            pair.run_ended()
            assert pair.file.read_text().count("engine: connect") == 2, function
        lines = writer.stop()
        pair.ends_with(lines)
    assert pair.records() == lines and pair.delivered() == lines


@pytest.mark.parametrize("kills", [["hand_over"], pytest.param(TO_CONNECT, marks=pytest.mark.soak)], ids=["one", "all"])
def test_killed_on_the_way_to_connect_the_same_command_goes_on(eos_pair, kills):
    pair = eos_pair
    writer = Writer(pair.lines)
    pair.create()
    pair.grows()
    with Watching(pair):
        for function in kills:
            pair.hand("spark")
            pair.run()
            pair.grows(5)
            killed_at(pair, function, pair.words("connect"))
            pair.hand("connect")
            pair.run_ended()
            assert [pair.state(name) for name in pair.names] == [("RUNNING", 1)] * 2
            pair.grows(5)
        lines = writer.stop()
        pair.ends_with(lines)
    assert pair.records() == lines and pair.delivered() == lines


@pytest.mark.parametrize("kills", [["hand_over"], pytest.param(TO_SPARK, marks=pytest.mark.soak)], ids=["one", "all"])
def test_killed_on_the_way_to_spark_it_is_undone(eos_pair, kills):
    """Back to Connect, in the state it had there, with the file as it was."""
    pair = eos_pair
    writer = Writer(pair.lines)
    pair.create()
    pair.grows()
    with Watching(pair):
        for function in kills:
            killed_at(pair, function, pair.words("spark"))
            undone = pair.undo()
            assert "undoing" in undone.err
            assert [pair.state(name) for name in pair.names] == [("RUNNING", 1)] * 2
            assert "engine: spark" not in pair.file.read_text()
            pair.grows(5)
        pair.hand("spark")
        pair.undo()
        assert pair.file.read_text().count("engine: connect") == 2
        pair.grows()
        lines = writer.stop()
        pair.ends_with(lines)
    assert pair.records() == lines and pair.delivered() == lines


@pytest.mark.parametrize("kills", [["verify"], pytest.param(TO_CONNECT, marks=pytest.mark.soak)], ids=["one", "all"])
def test_killed_on_the_way_to_connect_it_is_undone(eos_pair, kills):
    """Back to Spark: stopped in Connect, and a run continues."""
    pair = eos_pair
    writer = Writer(pair.lines)
    pair.create()
    pair.grows()
    with Watching(pair):
        pair.hand("spark")
        for function in kills:
            pair.run()
            pair.grows(5)
            killed_at(pair, function, pair.words("connect"))
            pair.undo()
            assert [pair.state(name) for name in pair.names] == [("STOPPED", 0)] * 2
            assert pair.file.read_text().count("engine: spark") == 2
            pair.runs[-1].ended()
        pair.hand("connect")
        lines = writer.stop()
        pair.ends_with(lines)
    assert pair.records() == lines and pair.delivered() == lines
