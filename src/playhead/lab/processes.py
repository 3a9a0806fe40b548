"""Processes of a lab: start, find, signal, stop.

A process belongs to a part if its command line contains the part's mark. This survives a crash of the starting process, needs
no pid file that could go stale, and never matches another process that got the same pid.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from playhead.errors import MissingExtra
from playhead.model import Deadline

try:
    import psutil
except ModuleNotFoundError:  # pragma: no cover
    raise MissingExtra("lab", "psutil") from None

Process: TypeAlias = psutil.Process
_MARK = "playhead.part="


def mark_of(folder: Path, part: str) -> str:
    """The mark on the command line: a system property to Java, a custom setting to PostgreSQL."""
    return f"{_MARK}{part}@{folder}"


def find_processes(folder: Path) -> dict[str, Process]:
    """Part name -> its running process, for every process with a mark of this folder."""
    found: dict[str, Process] = {}
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        for word in process.info["cmdline"] or ():
            part, _, place = word.removeprefix("-D").partition("@")
            if part.startswith(_MARK) and place == str(folder):
                # A child that was just forked still has its parent's command line: the oldest is the part itself.
                older = found.get(name := part.removeprefix(_MARK))
                if older is None or process.create_time() < older.create_time():
                    found[name] = process
    return found


def start_process(command: Sequence[str], log: Path, folder: Path) -> None:
    """Starts a detached process in its own session: it outlives this one and gets no Ctrl-C from our terminal."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
    child.returncode = 0  # disowned: otherwise Popen warns that it still runs


def is_paused(process: psutil.Process) -> bool:
    return bool(process.status() == psutil.STATUS_STOPPED)


def stop_process(process: psutil.Process, how: signal.Signals, grace_seconds: float) -> None:
    """Sends `how`, then SIGKILL after the grace period. Returns when the process has ended."""
    try:
        process.send_signal(signal.SIGCONT)  # a paused process does not handle the signal
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
    """A zombie is dead; our own children are reaped here. A zombie with running threads still holds its ports."""
    try:
        if process.status() != psutil.STATUS_ZOMBIE or _has_threads(process):
            return bool(process.is_running())
        os.waitpid(process.pid, os.WNOHANG)
    except (psutil.NoSuchProcess, ChildProcessError):
        pass
    return False


def _has_threads(zombie: psutil.Process) -> bool:
    try:
        return bool(zombie.num_threads() > 1)
    except psutil.ZombieProcess:  # on systems that do not report threads of zombies
        return False


def is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def end_orphans(folder: Path, program: str, grace_seconds: float) -> None:
    """Ends orphans of a killed part: processes of this program that work in its folder. Most end by themselves within the
    grace period."""
    grace = Deadline(grace_seconds)
    while left := _working_in(folder, program):
        if grace.passed:
            for process in left:
                kill_process(process)
        time.sleep(0.02)


def _working_in(folder: Path, program: str) -> list[Process]:
    found = psutil.process_iter(["name", "cwd", "status"])
    return [
        process
        for process in found
        if process.info["name"] == program
        and process.info["cwd"] == str(folder)
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
