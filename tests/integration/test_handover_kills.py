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


def handed(pair, to, function):
    """Killed at the function, if one is given, and then by the same command."""
    if function is not None:
        killed_at(pair, function, pair.words(to))
    pair.hand(to)


@pytest.mark.parametrize(
    ("to", "kills"),
    [
        pytest.param("spark", ["hand_over"], id="to spark, one"),
        pytest.param("connect", ["hand_over"], id="to connect, one"),
        pytest.param("spark", TO_SPARK, id="to spark, all", marks=pytest.mark.soak),
        pytest.param("connect", TO_CONNECT, id="to connect, all", marks=pytest.mark.soak),
    ],
)
def test_killed_on_the_way_the_same_command_goes_on(eos_pair, to, kills):
    pair = eos_pair
    writer = Writer(pair.lines)
    pair.create()
    pair.grows()
    with Watching(pair):
        for function in kills:
            handed(pair, "spark", function if to == "spark" else None)
            assert [pair.state(name) for name in pair.names] == [("STOPPED", 0)] * 2, function
            pair.run()
            pair.grows(5)
            handed(pair, "connect", function if to == "connect" else None)
            pair.run_ended()
            assert [pair.state(name) for name in pair.names] == [("RUNNING", 1)] * 2, function
            assert pair.file.read_text().count("engine: connect") == 2, function
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
