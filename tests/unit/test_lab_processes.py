"""When a process of the lab is gone: only then are its ports free."""

import subprocess
import sys

import psutil
import pytest

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
