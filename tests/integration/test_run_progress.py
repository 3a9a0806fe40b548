"""What `playhead run` says while it runs, on a terminal and in a log, and what it says when Spark's JVM is killed."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from integration.ingesting import consumed, make_rows
from integration.test_spark_run import write_file
from playhead.model import Deadline

pytest.importorskip("pyspark")


@pytest.fixture
def table_name(unique):
    return unique("t").replace("-", "_")


@pytest.fixture
def words(lab, tmp_path):
    flags = ["--worker-config", str(lab.worker_config), "--ledger", f"sqlite:///{tmp_path}/ledger.db"]

    def made(file: Path, *more: str) -> list[str]:
        return [sys.executable, "-m", "playhead", "run", str(file), "--master", "local[2]", *flags, *more]

    return made


def test_in_a_log_each_phase_has_a_line_and_each_connector_its_end_and_stdout_has_the_result_only(
    lab, words, tmp_path, table_name
):
    tables = [f"{table_name}_a", f"{table_name}_b"]
    for table in tables:
        make_rows(lab, table, 300)
    file = write_file(lab, tmp_path / "two.yaml", *tables)
    ran = subprocess.run(words(file, "-o", "json"), capture_output=True, text=True, check=True, timeout=150)
    assert [row["rows"] for row in json.loads(ran.stdout)] == [300, 300]
    lines = ran.stderr.splitlines()
    phases = ["checking 2 connector(s)", "asking brokers and workers", "starting Spark, local[2]", "Spark has started"]
    assert lines[:4] == phases
    for table in tables:
        (end,) = [line for line in lines if line.startswith(f"run_{table}: finished after 300 rows in ")]
        assert lines.index(end) > 3
    assert "\x1b" not in ran.stderr
    again = subprocess.run(words(file, "-o", "json", "-q"), capture_output=True, text=True, check=True, timeout=150)
    assert again.stderr == ""
    assert [row["rows"] for row in json.loads(again.stdout)] == [0, 0]


def test_on_a_terminal_there_is_a_line_at_once_and_then_a_live_one_with_rows_rate_and_what_is_left(
    lab, words, tmp_path, table_name
):
    make_rows(lab, table_name, 6000)
    file = write_file(lab, tmp_path / "one.yaml", table_name)
    ours, theirs = pty.openpty()
    # Small steps: the run takes long enough to be looked at.
    process = subprocess.Popen(
        words(file, "--chunk-rows", "100", "-o", "json"),
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
        text=True,
    )
    os.close(theirs)
    seen = b""
    try:
        while read := _read(ours):
            seen += read
    finally:
        os.close(ours)
        out, _ = process.communicate(timeout=150)
    assert process.returncode == 0
    assert json.loads(out)[0]["rows"] == 6000
    screens = seen.decode().replace("\r\n", "\n").split("\x1b[2K")
    shown = [line.strip("\n") for line in screens]
    assert shown[1].startswith("starting")
    assert any(line.startswith("starting Spark, local[2]") for line in shown)
    live = re.compile(rf"run_{table_name}: \d+(\+\d+)? rows, [\d.]+/s, \d+ ids left, about \d+ (s|min).*")
    assert any(live.match(line) for line in shown), shown
    assert seen.endswith(b"\x1b[J"), seen[-200:]  # the live lines are gone before the result is printed


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 65536)
    except OSError:  # the other end was closed
        return b""


def test_a_jvm_that_is_killed_is_named_what_is_known_is_shown_and_the_next_run_continues(
    lab, words, tmp_path, table_name
):
    small, large = f"{table_name}_small", f"{table_name}_large"
    make_rows(lab, small, 10)
    make_rows(lab, large, 40_000)
    file = write_file(lab, tmp_path / "killed.yaml", small, large)
    # One small step after the other: there is always one open.
    command = words(file, "--chunk-rows", "200")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    Deadline(120).wait_for(lambda: _rows(tmp_path, f"run_{large}") > 0 or process.poll() is not None, "the first step")
    (jvm,) = [one for one in psutil.Process(process.pid).children() if one.name() == "java"]
    os.kill(jvm.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    (row,) = [line for line in out.splitlines() if line.startswith(f"run_{large}")]
    assert "failed" in row and "Spark's JVM died: killed by signal 9" in row
    assert out.splitlines()[0].startswith("CONNECTOR")
    assert "run it again: nothing was lost" in err
    for noise in ("Traceback", "py4j", "Py4J", "Connection refused", "Exception", "fault in Playhead"):
        assert noise not in out + err
    ran = subprocess.run(
        words(file, "-o", "json"), capture_output=True, text=True, check=True, timeout=150, stdin=subprocess.DEVNULL
    )
    assert {row["state"] for row in json.loads(ran.stdout)} == {"finished"}
    for table, count in ((small, 10), (large, 40_000)):
        assert Counter(json.loads(line)["id"] for line in consumed(lab, table)) == Counter(range(1, count + 1))


def _rows(folder: Path, name: str) -> int:
    """Committed so far, as the ledger has it."""
    import sqlite3
    from contextlib import closing

    path = folder / "ledger.db"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as ledger:
        try:
            found = ledger.execute("SELECT count(*) FROM playhead_chunks WHERE pipeline = ?", (name,)).fetchone()
        except sqlite3.OperationalError:  # not created yet
            return 0
    return int(found[0])
