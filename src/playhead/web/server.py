"""Starts the server, and ends it with Ctrl-C."""

import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from playhead.config import Context
from playhead.errors import Invalid
from playhead.web.app import build_app
from playhead.web.options import ServeOptions
from playhead.web.sessions import Sessions
from playhead.web.site import Site, Watched
from playhead.web.slow_clients import LARGEST_HEAD, TimedProtocol

MOST_CONNECTIONS = 1000
SWITCH_SECONDS = 0.001  # an answer waits this long, not 5 ms, each time that a poller's thread computes


def serve_forever(
    options: ServeOptions, contexts: Sequence[Context], ready: Callable[[str], None], files: Sequence[Path] = ()
) -> None:
    """`ready` gets the address once the server listens. Port 0 takes a free one. `files`: of connectors, for their diff."""
    listener = open_listener(options)
    options = replace(options, port=listener.getsockname()[1])
    watched = [Watched.of(context, options.interval) for context in contexts]
    config = uvicorn_config(build_app(Site(options, watched, Sessions(options.tokens), files=files)), options)
    ready(options.url)
    sys.setswitchinterval(SWITCH_SECONDS)
    uvicorn.Server(config).run(sockets=[listener])


def uvicorn_config(app: ASGIApp, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=LARGEST_HEAD,
        ssl_certfile=options.cert,
        ssl_keyfile=None if options.key is None else str(options.key),
    )


def open_listener(options: ServeOptions) -> socket.socket:
    """asyncio turns Nagle's algorithm off only for sockets that name their protocol; with it every second answer takes 40 ms."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise Invalid(
            f"cannot listen on {options.host}:{options.port}: {error.strerror}",
            "choose another with --listen HOST:PORT",
        ) from None
    listener.listen(256)
    listener.set_inheritable(True)
    return listener
