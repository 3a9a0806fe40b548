"""An HTTP API of orders by region, with pages and a token, on loopback. It can fail, throttle, and get more orders meanwhile."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "t0p-secret"


class OrdersServer(ThreadingHTTPServer):
    """`troubles`: what every so manieth request gets instead of an answer: a status, or 0 for a closed connection. `pause`:
    seconds that each page takes."""

    daemon_threads = True

    def __init__(self, orders: dict[str, int], troubles: dict[int, int] | None = None, pause: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.counts = Counter(orders)
        self.troubles = troubles or {}
        self.pause = threading.Event()
        self.pause_seconds = pause
        self.requests = 0
        self.grows = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def keys(self) -> set[str]:
        return {f"{region}-{number}" for region, count in self.counts.items() for number in range(1, count + 1)}

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        if path == "/regions":
            return sorted(self.counts)
        region = path.split("/")[1]
        after, limit = int(query["after"][0]), int(query["limit"][0])
        self.pause.wait(self.pause_seconds)
        found = [
            {"id": n, "name": f"{region}-{n}"} for n in range(after + 1, min(after + limit, self.counts[region]) + 1)
        ]
        self.counts[region] += self.grows  # the API changes under whoever reads it
        self.grows = max(0, self.grows - 1)
        return found


class _Handler(BaseHTTPRequestHandler):
    server: OrdersServer

    def do_GET(self) -> None:
        server = self.server
        server.requests += 1
        trouble = next((status for every, status in server.troubles.items() if server.requests % every == 0), None)
        if trouble == 0:
            self.close_connection = True
            self.connection.close()
            return
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            trouble = 401
        if trouble:
            self.send_error(trouble)
            return
        address = urlsplit(self.path)
        body = json.dumps(server.answer(address.path, parse_qs(address.query))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:
            self.close_connection = True  # the connection that was closed on purpose


@contextmanager
def orders_api(
    orders: dict[str, int], troubles: dict[int, int] | None = None, pause: float = 0.0
) -> Iterator[OrdersServer]:
    server = OrdersServer(orders, troubles, pause)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
