"""Starts the server, and ends it with Ctrl-C."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

import uvicorn

from playhead.config import Context
from playhead.errors import Invalid
from playhead.web.app import build_app
from playhead.web.options import ServeOptions
from playhead.web.sessions import Sessions
from playhead.web.site import Site, Watched
from playhead.web.slow_clients import LARGEST_HEAD, TimedProtocol

MOST_CONNECTIONS = 1000


def serve_forever(options: ServeOptions, contexts: Sequence[Context], ready: Callable[[str], None]) -> None:
    """`ready` gets the address once the server listens. Port 0 takes a free one."""
    listener = _listener(options)
    options = replace(options, port=listener.getsockname()[1])
    watched = [Watched.of(context, options.interval) for context in contexts]
    config = uvicorn.Config(
        build_app(Site(options, watched, Sessions(options.tokens))),
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
    ready(options.url)
    uvicorn.Server(config).run(sockets=[listener])


def _listener(options: ServeOptions) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
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
