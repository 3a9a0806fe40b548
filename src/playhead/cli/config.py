"""`playhead config`: contexts, settings, origins, faults."""

from pathlib import Path

import click

from playhead.cli.complete import context_names
from playhead.cli.frame import Face, LazyGroup, context_options, debug_option, output_option, pass_face, say
from playhead.config import load_files, search_files, use_context
from playhead.render import Column, Listing


@click.group(cls=LazyGroup, instead={"create": "contexts are written into playhead.toml; see docs/configuration.md"})
def config() -> None:
    """Contexts and settings, and the origin of each value."""


@config.command()
@click.option("--show-origin", is_flag=True, help="Add the flag, variable or file:line that set each value.")
@context_options
@output_option
@pass_face
def view(face: Face, show_origin: bool) -> None:
    """Show the settings in force. Secrets are shown as ***."""
    context = face.context
    rows = [{"key": "context", "value": context.name, "origin": ""}] if context.name else []
    rows += [
        {"key": key, "value": setting.shown, "origin": setting.origin}
        for key, setting in sorted(context.settings.items())
    ]
    columns = [Column("key", "KEY"), Column("value", "VALUE")]
    if show_origin or face.form not in ("table", "wide"):
        columns.append(Column("origin", "ORIGIN"))
    face.show(Listing(columns, rows, name="key"))


@config.command()
@output_option
@debug_option
@pass_face
def contexts(face: Face) -> None:
    """List the contexts of every playhead.toml in effect here."""
    files = load_files()
    current = face.context.name
    seen: set[str] = set()
    rows = []
    for file in files:
        for name, settings in file.contexts.items():
            kafka = settings.get("bootstrap-servers")
            connect = settings.get("connect")
            rows.append(
                {
                    "current": name == current and name not in seen,
                    "name": name,
                    "kafka": kafka.shown if kafka else None,
                    "connect": connect.shown if connect else None,
                    "file": str(file.path),
                    "shadowed": name in seen,
                }
            )
            seen.add(name)
    columns = [
        Column("current", "", show=lambda value: "*" if value else ""),
        Column("name", "CONTEXT"),
        Column("kafka", "KAFKA"),
        Column("connect", "CONNECT"),
        Column("file", "FILE", wide=True),
        Column("shadowed", "SHADOWED", wide=True),
    ]
    face.show(
        Listing(columns, rows, empty="no context yet: write a playhead.toml, or start the lab with `playhead lab up`")
    )


@config.command("use-context")
@click.argument("name", shell_complete=lambda ctx, param, incomplete: context_names(incomplete))
@debug_option
def use_context_command(name: str) -> None:
    """Make NAME the current context."""
    path = use_context(name)
    for note in search_files().ignored:
        say(f"note: {note}")
    say(f"{name} is the current context now ({path})")


@config.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@debug_option
def validate(file: Path | None) -> None:
    """Check FILE, or every playhead.toml in effect here, and list all faults.

    The Java property files of the contexts are checked too.
    """
    from playhead.checkup import check_files

    checked = check_files(file)
    for note in checked.notes:
        say(f"note: {note}")
    say(f"no fault found in {', '.join(checked.files)}" if checked.files else "there is no playhead.toml to check")
