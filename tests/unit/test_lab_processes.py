"""When a process of the lab is gone, and its ports are free."""

import socket
import subprocess
import sys
import threading

import psutil
import pytest

from playhead.lab import LabOptions, options
from playhead.lab.options import LabFile
from playhead.lab.processes import gone_within, is_alive

FIRST_THREAD_ENDS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux calls a process whose first thread has ended a zombie")
def test_a_process_is_alive_until_the_last_of_its_threads_has_ended():
    command = [sys.executable, "-c", FIRST_THREAD_ENDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "ready\n"
        process = psutil.Process(child.pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            pass
        assert is_alive(process)
        child.kill()
        assert gone_within(process, 10)
        child.stdin.close()


@pytest.fixture
def held():
    """A port that another process listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


@pytest.fixture
def lab_file(held):
    made = LabFile.new(LabOptions(postgres=False))
    made.choose_ports([])
    made.ports["broker-1"] = held.getsockname()[1]
    return made


def test_the_port_of_a_part_that_is_still_dying_is_waited_for(held, lab_file):
    before = dict(lab_file.ports)
    threading.Timer(0.3, held.close).start()
    lab_file.choose_ports([])
    assert lab_file.ports == before


def test_the_port_that_another_process_holds_is_given_up_and_no_other(lab_file, monkeypatch):
    monkeypatch.setattr(options, "DYING_SECONDS", 0.2)
    before = dict(lab_file.ports)
    lab_file.choose_ports([])
    assert {name for name, port in lab_file.ports.items() if port != before[name]} == {"broker-1"}
