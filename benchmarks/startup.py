"""`playhead --version` against `python -c pass`: best wall time of several runs each, taken in turn."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

RUNS = 20


def measure() -> Iterator[str]:
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "playhead --version": [str(Path(sys.executable).parent / "playhead"), "--version"],
        "playhead --help": [str(Path(sys.executable).parent / "playhead"), "--help"],
    }
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(RUNS):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            best[name] = min(best[name], time.perf_counter() - started)
    peer = best["python -c pass"]
    for name, seconds in best.items():
        yield f"{name}: {seconds * 1000:.1f} ms, {seconds / peer:.1f} x python -c pass"
    yield f"bar: playhead --version at most 5 x; got {best['playhead --version'] / peer:.1f} x"
