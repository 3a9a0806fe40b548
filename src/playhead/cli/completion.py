"""`playhead completion bash|zsh|fish`."""

import click

from playhead.cli.frame import debug_option, write
from playhead.errors import Invalid


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@debug_option
def completion(shell: str) -> None:
    """Print a completion script; names of contexts and connectors are looked up when completed.

    \b
    bash:  playhead completion bash > ~/.local/share/bash-completion/completions/playhead
    zsh:   playhead completion zsh > "${fpath[1]}/_playhead"
    fish:  playhead completion fish > ~/.config/fish/completions/playhead.fish
    """
    from click.shell_completion import get_completion_class

    from playhead.cli.main import root

    kind = get_completion_class(shell)
    if kind is None:
        raise Invalid(f"completion for {shell} is not supported")
    write(kind(root, {}, "playhead", "_PLAYHEAD_COMPLETE").source() + "\n")
