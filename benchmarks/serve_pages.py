"""`playhead serve` over 1,000 connectors and 10,000 partitions of groups: a server on one core, who looks on the others.

The sources are not real ones: they answer at once, with numbers that change. Everything behind them is what users get, with the
poller at its usual interval. The history is filled for an hour before, so that memory is what it would be then.

LOAD_SECONDS (600): how long 200 requests a second last, while 100 pages listen for events.
"""

import asyncio
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvicorn

from playhead.checkup import Version
from playhead.config import Context
from playhead.config.scrub import Scrub
from playhead.connectors import ConnectorList, ConnectorRow
from playhead.model import Deadline
from playhead.offsets.doctor import Diagnosis
from playhead.offsets.groups import LagRow, ShownGroup
from playhead.web.app import build_app
from playhead.web.lookups import Lookups
from playhead.web.options import ServeOptions
from playhead.web.poller import Poller
from playhead.web.server import SWITCH_SECONDS, open_listener, uvicorn_config
from playhead.web.sessions import Sessions
from playhead.web.site import Site, Watched
from playhead.web.sources import SeenRun

CONNECTORS, PARTITIONS, LISTENERS, RATE = 1000, 10, 100, 200
LOAD_SECONDS = float(os.environ.get("LOAD_SECONDS", "600"))
INTERVAL = 5.0


class ManySources:
    """Answers of a large cluster, new ones at each question."""

    def __init__(self) -> None:
        self._asked = 0

    def connectors(self, _deadline: Deadline) -> ConnectorList:
        self._asked += 1
        return ConnectorList(tuple(ConnectorRow(
            f"orders_{n:04}", "sink", "running, 1 of 3 tasks failed" if n % 50 == 0 else "running", 3, "S3SinkConnector",
            f"w{n % 5}:8083", "org.example.Failure: null value in column amount" if n % 50 == 0 else None,
            lag=(n * 37 + self._asked * 101) % 9000,
        ) for n in range(CONNECTORS)))  # fmt: skip

    def groups(self, _deadline: Deadline) -> Sequence[ShownGroup]:
        at = 1_000_000 + self._asked * 1000
        return [
            ShownGroup(f"connect-orders_{n:04}", "classic", "stable", (), tuple(
                LagRow(f"orders-{n:04}", p, at + p * 7, 0, at + p * 9, p * 2, 12.5) for p in range(PARTITIONS)
            ))
            for n in range(CONNECTORS)
        ]  # fmt: skip

    def runs(self, _deadline: Deadline) -> Sequence[SeenRun]:
        return []

    def servers(self, _deadline: Deadline) -> Sequence[Version]:
        return []

    def doctor(self, _deadline: Deadline) -> Diagnosis:
        return Diagnosis(())


def serve() -> None:
    """In a process of its own, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    listener = open_listener(ServeOptions(port=0))
    options = ServeOptions(port=listener.getsockname()[1], interval=INTERVAL)
    poller = Poller(ManySources(), INTERVAL, Scrub())
    now = time.monotonic()
    for point in range(360):
        for n in range(CONNECTORS):
            poller.history.add(
                f"orders_{n:04}", (n * 37 + point * 101) % 9000, point * 1000, at=now - 3600 + point * 10
            )
    site = Site(options, [Watched(Context("shop", {}), poller, Lookups(INTERVAL), Scrub())], Sessions(options.tokens))
    print(options.port, flush=True)
    sys.setswitchinterval(SWITCH_SECONDS)
    uvicorn.Server(uvicorn_config(build_app(site), options)).run(sockets=[listener])


def measure() -> Iterator[str]:
    server = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline()) if server.stdout else 0
        own = sorted(os.sched_getaffinity(0))
        wait_until_ready(port)
        yield from in_chromium(port)
        os.sched_setaffinity(0, set(own[1:]) or set(own))
        yield from answers(port)
        yield from asyncio.run(load(port, server.pid))
        os.sched_setaffinity(0, set(own))
    finally:
        server.terminate()
        server.wait(20)


def wait_until_ready(port: int) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        try:
            if get(port, "/readyz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server did not start")


def get(port: int, path: str) -> tuple[int, float, float, int]:
    """Status, seconds to the first byte, to the last, and the size."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    first = time.perf_counter() - began
    size = len(answer.read())
    whole = time.perf_counter() - began
    connection.close()
    return answer.status, first, whole, size


def answers(port: int) -> Iterator[str]:
    """Over 15 seconds, so that new answers of the poller fall into it."""
    taken: dict[str, list[tuple[int, float, float, int]]] = {"/": [], "/metrics": [], "/?q=orders_05&sort=lag": []}
    ends = time.monotonic() + 3 * INTERVAL
    while time.monotonic() < ends:
        for path, found in taken.items():
            found.append(get(port, path))
        time.sleep(0.15)
    for path, found in taken.items():
        if {one[0] for one in found} != {200}:
            raise SystemExit(f"GET {path} was not answered by 200")
        first, whole = ([one[at] * 1000 for one in found] for at in (1, 2))
        yield (
            f"GET {path}: first byte {statistics.median(first):.0f} ms, at most {max(first):.0f} ms; whole"
            f" {statistics.median(whole):.0f} ms, at most {max(whole):.0f} ms; {found[-1][3] / 1e6:.2f} MB"
            f" ({len(found)} requests)"
        )
    yield f"bar: first byte of the overview under 150 ms; got at most {max(one[1] for one in taken['/']) * 1000:.0f} ms"
    yield f"bar: /metrics under 300 ms; got at most {max(one[2] for one in taken['/metrics']) * 1000:.0f} ms"


def in_chromium(port: int) -> Iterator[str]:
    chromium = shutil.which("chromium")
    if chromium is None:
        yield "chromium is not installed: the page was not timed in a browser"
        return
    from playwright.sync_api import sync_playwright

    took = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(5):
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{port}/", wait_until="load")
            timing = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
            if (rows := page.locator("tbody tr").count()) != CONNECTORS:
                raise SystemExit(f"the page has {rows} rows")
            took.append(float(timing))
            page.close()
        browser.close()
    yield f"bar: full page in Chromium under 1 s; got {min(took):.0f} to {max(took):.0f} ms (5 loads)"


async def load(port: int, pid: int) -> Sequence[str]:
    heard = [0] * LISTENERS
    listeners = [asyncio.create_task(listen(port, heard, at)) for at in range(LISTENERS)]
    queue: asyncio.Queue[float] = asyncio.Queue()
    took: list[float] = []
    clients = [asyncio.create_task(look(port, queue, took)) for _ in range(8)]
    memory: list[float] = []
    began, sent = time.perf_counter(), 0
    used = cpu_seconds(pid)
    while (now := time.perf_counter() - began) < LOAD_SECONDS:
        while sent < now * RATE:
            queue.put_nowait(time.perf_counter())
            sent += 1
        if len(memory) <= now / max(LOAD_SECONDS / 10, 1):
            memory.append(resident_mb(pid))
        await asyncio.sleep(0.005)
    await asyncio.wait_for(queue.join(), 60)
    whole = time.perf_counter() - began
    used = cpu_seconds(pid) - used
    for one in (*clients, *listeners):
        one.cancel()
    await asyncio.gather(*clients, *listeners, return_exceptions=True)
    took.sort()
    hundredths = [took[len(took) * part // 100] * 1000 for part in (50, 99)]
    return [
        f"bar: {RATE} overviews a second on one core for {LOAD_SECONDS:.0f} s; got {len(took) / whole:.0f} a second, half within"
        f" {hundredths[0]:.1f} ms, 99 % within {hundredths[1]:.0f} ms, all within {took[-1] * 1000:.0f} ms; the server used"
        f" {used / whole * 100:.0f} % of its core",
        f"bar: flat memory; got {' '.join(f'{one:.0f}' for one in memory)} MB",
        f"bar: events to {LISTENERS} clients; each got {min(heard)} to {max(heard)} in {whole:.0f} s",
    ]


async def listen(port: int, heard: list[int], at: int) -> None:
    """A page that stays open: it hears that there is something new."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    try:
        while line := await reader.readline():
            heard[at] += line.startswith(b"event: seen")
    finally:
        writer.close()


async def look(port: int, queue: "asyncio.Queue[float]", took: list[float]) -> None:
    """A browser: one connection, compressed answers. The time counts from when the request was due."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    asked = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept-Encoding: gzip\r\n\r\n".encode()
    try:
        while True:
            due = await queue.get()
            writer.write(asked)
            head = await reader.readuntil(b"\r\n\r\n")
            found = re.match(rb"HTTP/1.1 200 .*content-length: (\d+)", head, re.DOTALL)
            if not found:
                raise SystemExit(f"not answered by 200: {head!r}")
            await reader.readexactly(int(found.group(1)))
            took.append(time.perf_counter() - due)
            queue.task_done()
    finally:
        writer.close()


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        print(json.dumps(list(measure()), indent=1))
