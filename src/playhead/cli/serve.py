"""`playhead serve`."""

from pathlib import Path

import click

from playhead.cli.frame import Face, many_contexts_options, pass_face, say
from playhead.cli.ledgers import ledger_option
from playhead.config import open_context
from playhead.config.extras import check_extra

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="Where to listen.")
@click.option("--allow-writes", is_flag=True, help="Let users who log in execute plans. Without it nothing is changed.")
@click.option(
    "--token-file",
    type=FILE,
    metavar="FILE",
    help="Tokens to log in with, one a line: TOKEN or NAME:TOKEN. One token can be in PLAYHEAD_SERVE_TOKEN instead.",
)
@click.option("--interval", default="5s", show_default=True, metavar="TIME", help="How often the servers are asked.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name by which browsers call it; repeatable.")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE",
    help="Connector file or folder: a connector's page shows what applying it would change; repeatable.",
)
@click.option("--cert", type=FILE, metavar="FILE", help="Certificate chain for HTTPS, as PEM.")
@click.option("--key", type=FILE, metavar="FILE", help="Its private key, as PEM.")
@ledger_option
@many_contexts_options
@pass_face
def serve(  # noqa: PLR0913, PLR0917  (each is an option of its own)
    face: Face,
    listen: str,
    allow_writes: bool,
    token_file: Path | None,
    interval: str,
    hosts: tuple[str, ...],
    files: tuple[Path, ...],
    cert: Path | None,
    key: Path | None,
) -> None:
    """Serve pages and an API over what Playhead knows: pipelines, positions, topics, groups, runs, journal.

    By default it listens on this machine only and changes nothing. Another address, or --allow-writes, needs a token.
    One poller asks brokers and workers, however many pages are open. /metrics is for Prometheus.
    """
    from playhead.config.contexts import parse_duration

    check_extra("web")
    from playhead.web.options import ServeOptions, parse_listen, read_tokens
    from playhead.web.server import serve_forever

    host, port = parse_listen(listen)
    seconds = parse_duration(interval)
    options = ServeOptions(host, port, allow_writes, read_tokens(token_file), hosts, seconds, cert, key)
    contexts = [face.context, *(open_context(name) for name in face.more_contexts)]
    writes = "plans can be executed" if allow_writes else "nothing can be changed: --allow-writes allows it"
    serve_forever(options, contexts, lambda url: say(f"serving on {url} ({writes}); Ctrl-C ends it"), files)
