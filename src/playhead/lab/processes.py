"""Processes of a lab: start, find, signal, stop.

A process belongs to a part if its command line carries the part's mark. That survives a crash of whoever started it, needs no
pid file that could go stale, and cannot hit a stranger that got the same pid.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from playhead.errors import MissingExtra
from playhead.model import Deadline

try:
    import psutil
except ModuleNotFoundError:  # pragma: no cover
    raise MissingExtra("lab", "psutil") from None

Mark = tuple[str, ...]
Process = psutil.Process


def find_processes(marks: Mapping[str, Mark]) -> dict[str, psutil.Process]:
    """Part name -> its living process, for every part whose mark stands on some command line."""
    found: dict[str, psutil.Process] = {}
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        arguments = process.info["cmdline"] or []
        for name, mark in marks.items():
            if all(word in arguments for word in mark):
                found[name] = process
    return found


def start_process(
    command: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path
) -> subprocess.Popen[bytes]:
    """Starts detached, in a session of its own: it outlives us, and Ctrl-C in our terminal does not reach it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            cwd=folder,
            start_new_session=True,
        )


def is_paused(process: psutil.Process) -> bool:
    return bool(process.status() == psutil.STATUS_STOPPED)


def stop_process(process: psutil.Process, how: signal.Signals, grace_seconds: float) -> None:
    """Asks with `how`, insists with SIGKILL after the grace. Returns when the process is gone."""
    try:
        process.send_signal(signal.SIGCONT)  # a paused process cannot hear the request
        process.send_signal(how)
    except psutil.NoSuchProcess:
        return
    if not gone_within(process, grace_seconds):
        kill_process(process)


def kill_process(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
    gone_within(process, 10)


def gone_within(process: psutil.Process, seconds: float) -> bool:
    deadline = Deadline(seconds)
    while not deadline.passed:
        if not is_alive(process):
            return True
        time.sleep(0.05)
    return not is_alive(process)


def is_alive(process: psutil.Process) -> bool:
    """A zombie is dead; if it is our own child it is reaped here."""
    try:
        if process.status() != psutil.STATUS_ZOMBIE:
            return bool(process.is_running())
        os.waitpid(process.pid, os.WNOHANG)
    except (psutil.NoSuchProcess, ChildProcessError):
        pass
    return False
