"""A command on a real terminal of a given width: everything that the terminal gets, stdout and stderr."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

PROGRAM = str(Path(sys.executable).parent / "playhead")


def on_a_terminal(*words: str, columns: int, env: dict[str, str] | None = None) -> tuple[int, list[str]]:
    """The exit code, and the lines as they were written."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"NO_COLOR": "1"}
    process = subprocess.Popen(
        [PROGRAM, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment | (env or {})
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    lines = seen.decode().replace("\r\n", "\n").split("\n")
    return process.wait(60), [line.rpartition("\r")[2] for line in lines]
