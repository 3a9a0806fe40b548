"""`playhead run`: connector files on Spark."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from playhead.cli.frame import Face, context_options, folded, output_option, pass_face, say
from playhead.cli.ledgers import ledger_option
from playhead.cli.run_screen import RunScreen, one_line
from playhead.config.extras import check_extra
from playhead.render import Column, Listing

if TYPE_CHECKING:
    from playhead.config import Context
    from playhead.model import ConnectorSpec
    from playhead.pipeline.jvm import SparkJvm, SparkOptions
    from playhead.pipeline.run import RunOptions
    from playhead.pipeline.supervisor import Progress

COLUMNS = (
    Column("connector", "CONNECTOR"),
    Column("state", "STATE"),
    Column("rows", "ROWS", right=True),
    Column("steps", "STEPS", right=True),
    Column("seconds", "SECONDS", right=True),
    Column("stream", "STREAM"),
    Column("position", "POSITION"),
    Column("detail", "DETAIL"),
    Column("notes", "NOTES", wide=True, show="; ".join),
)


SUFFIXES = (".yaml", ".yml", ".json", ".properties", ".py")
_OPTIONS = (
    click.option(
        "--once/--continuous", "once", default=True, help="Run until caught up, or until stopped [default: once]."
    ),
    click.option(
        "--interval", default="5s", show_default=True, metavar="TIME", help="Pause between rounds, with --continuous."
    ),
    click.option(
        "--give-up-after",
        "give_up",
        default="2m",
        show_default=True,
        metavar="TIME",
        help="How long --once retries while a system is unavailable; --continuous retries without limit.",
    ),
    click.option("--master", metavar="URL", help="Spark master [default: the context's, else local[*]]."),
    click.option("--spark-conf", "settings", multiple=True, metavar="KEY=VALUE", help="A Spark setting; repeatable."),
    click.option(
        "--jar",
        "jars",
        multiple=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help="An additional JDBC driver; repeatable.",
    ),
    click.option(
        "--chunk-rows",
        type=click.IntRange(min=1),
        default=500_000,
        show_default=True,
        help="Approximate rows per transaction; for a sink, offsets per partition and step.",
    ),
    click.option(
        "--horizon-timeout",
        "horizon",
        default="60s",
        show_default=True,
        metavar="TIME",
        help="How long to wait for open transactions of the database.",
    ),
    click.option(
        "--force", is_flag=True, help="Run a source that Connect also runs: the tasks on Connect are fenced and fail."
    ),
    click.option(
        "--accept-repeats",
        is_flag=True,
        help="Send again what a worker without exactly-once support sent after its stored position.",
    ),
    click.option(
        "--unordered",
        is_flag=True,
        help="Let the tasks of a source produce side by side: faster, without the order of the source. Not for keys.",
    ),
    click.option("--all-or-nothing", is_flag=True, help="Run nothing if one of the connectors is refused."),
    click.option(
        "--keep-tail", is_flag=True, help="When a sink has caught up, leave fewer than flush.size records in the topic."
    ),
)


_FLAGS = ("force", "accept_repeats", "unordered", "keep_tail", "all_or_nothing")


def _folded_options(words: dict[str, Any]) -> dict[str, Any]:
    names = ("once", "interval", "give_up", "master", "settings", "jars", "chunk_rows", "horizon")
    return {name: words.pop(name) for name in (*names, *_FLAGS)}


def _run_options(command: Any) -> Any:
    """Adds the options of a run; the command gets them as `given`, still as text."""
    return folded(command, _OPTIONS, "given", _folded_options)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="FILE... [NAME]...")
@click.option(
    "--engine", type=click.Choice(["spark"]), help="Run the named connectors, whatever engine their file sets."
)
@_run_options
@click.option(
    "--summary", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the result as JSON."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr; the result and its notes only.")
@ledger_option
@context_options
@output_option
@pass_face
def run(
    face: Face, words: tuple[str, ...], engine: str | None, given: dict[str, Any], summary: Path | None, quiet: bool
) -> None:
    """Run connectors of FILE on Spark, exactly once: all with `engine: spark`, or only NAME.

    A run continues from the position that Connect stored, and stores its own where Connect reads it. A sink's position
    is stored in the ledger and published in the consumer group. After a kill, run the same command again. The first
    Ctrl-C ends the run after the open steps, the second one abandons them.
    """
    specs = _chosen(face.context, words, whatever_engine=engine is not None)
    check_extra("spark")
    screen = RunScreen(is_once=given["once"], is_quiet=quiet)
    screen.start()
    try:
        with _early_jvm(_spark_options(face, given), specs) as jvm:
            from playhead.pipeline.run import run_connectors

            end = run_connectors(face.context, specs, _options(face, given, jvm.options), screen.update, jvm)
    finally:
        screen.close()
    rows = [_row(progress) for progress in end.connectors]
    if summary is not None:
        _write_summary(summary, rows)
    face.show(Listing(COLUMNS, rows, name="connector"))
    if face.form == "table":
        for note in dict.fromkeys(f"{one.name}: {note}" for one in end.connectors for note in one.notes):
            say(f"note: {note}")
    if face.form not in ("json", "yaml"):
        for hint in _hints(end.connectors):
            say(hint)
    if end.log is not None:
        say(f"Spark log: {end.log}")
    if end.exit_code:
        raise click.exceptions.Exit(end.exit_code)


def _chosen(context: "Context", words: Sequence[str], *, whatever_engine: bool) -> "list[ConnectorSpec]":
    from playhead.connectors.python_classes import with_engines
    from playhead.errors import NotFound
    from playhead.model import Engine
    from playhead.offsets.plugins import use_plugins

    files, specs = _read_files(words)
    use_plugins(context)
    specs = with_engines(specs)
    known = {spec.name: spec for spec in specs}
    names = [word for word in words if word not in files]
    for name in names:
        if name not in known:
            hint = f"there is no file {name} either" if _has_suffix(name) else None
            raise NotFound("connector", name, sorted(known), hint)
    chosen = [known[name] for name in names] if names else specs
    if whatever_engine:
        return chosen
    others = [spec.name for spec in chosen if spec.engine is not Engine.SPARK]
    if others and len(others) == len(chosen):
        _check_classes(context, chosen)
    if names and others:
        raise click.UsageError(f"{others[0]} is not marked engine: spark; add --engine spark to run it anyway")
    return [spec for spec in chosen if spec.engine is Engine.SPARK]


def _check_classes(context: "Context", specs: "Sequence[ConnectorSpec]") -> None:
    """Of files that name no engine and none of which Spark can run: the usual reason is a class in Python that is not found."""
    from playhead.connectors.python_classes import unknown_class
    from playhead.errors import ConfigInvalid, Fault
    from playhead.pipeline.classes import CLASSES

    unknown = [spec for spec in specs if not spec.is_engine_given and spec.connector_class not in CLASSES]
    if len(unknown) < len(specs):
        return
    raise ConfigInvalid(
        [Fault(spec.name, None, unknown_class(context, spec.connector_class)) for spec in unknown],
        "correct connector.class, or name its folder or wheel with plugin-path; Spark does not run other classes of Java",
    )


def _read_files(words: Sequence[str]) -> "tuple[list[str], list[ConnectorSpec]]":
    """The words that are files, and what is in them. A word without a slash and a suffix, such as `orders`, may be a folder and a
    connector of the other files: then the connector is meant, and `./orders` is the folder."""
    from playhead.connectors.files import read_files

    stdin = sys.stdin.buffer.read() if "-" in words else None
    files = [word for word in words if word == "-" or "/" in word or (_has_suffix(word) and Path(word).exists())]
    found = read_files(files, stdin=stdin, shared_topics=True)
    known = {spec.name for spec in found.specs}
    more = [word for word in words if word not in files and word not in known and Path(word).exists()]
    if not files and not more:
        # No file exists: an argument that looks like a file is a missing file.
        more = [word for word in words if _has_suffix(word)]
        if not more:
            raise click.UsageError("name at least one connector file")
    if more:
        files = [word for word in words if word in files or word in more]
        found = read_files(files, stdin=stdin, shared_topics=True)
    for note in found.notes:
        say(f"note: {note}")
    return files, found.specs


def _has_suffix(word: str) -> bool:
    return Path(word).suffix in SUFFIXES


@contextmanager
def _early_jvm(options: "SparkOptions", specs: "Sequence[ConnectorSpec]") -> "Iterator[SparkJvm]":
    """Java starts while Python imports the rest of the run."""
    from playhead.pipeline.jvm import SparkJvm

    with SparkJvm(options) as jvm:
        if specs:
            jvm.start_early()
        yield jvm


def _spark_options(face: Face, given: dict[str, Any]) -> "SparkOptions":
    from playhead.pipeline.jvm import SparkOptions

    master, settings = spark_settings(face, given)
    return SparkOptions(master, settings, given["jars"])


def _options(face: Face, given: dict[str, Any], spark: "SparkOptions") -> "RunOptions":
    from playhead.config.contexts import parse_duration
    from playhead.pipeline.run import RunOptions

    return RunOptions(
        spark,
        None if given["once"] else parse_duration(given["interval"]),
        given["chunk_rows"],
        parse_duration(given["horizon"]),
        given["force"],
        given["accept_repeats"],
        given["keep_tail"],
        face.context.timeout_seconds,
        parse_duration(given["give_up"]),
        given["unordered"],
        given["all_or_nothing"],
    )


def spark_settings(face: Face, given: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The master, and Spark's settings, of the context and of the command line."""
    settings = {_spark_key(key): setting.text for key, setting in face.context.table("spark").items()}
    for pair in given["settings"]:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--spark-conf {pair!r} is not KEY=VALUE")
        settings[_spark_key(key.strip())] = value
    master = given["master"] or settings.pop("spark.master", None) or "local[*]"
    settings.pop("spark.master", None)
    return master, settings


def _spark_key(key: str) -> str:
    return key if key.startswith("spark.") else f"spark.{key}"


def _row(progress: "Progress") -> dict[str, Any]:
    return {
        "connector": progress.name,
        "state": _state(progress),
        "rows": progress.rows,
        "steps": progress.steps,
        "seconds": round(progress.seconds, 2),
        "stream": progress.stream or None,
        "position": progress.position.to_dict() if progress.position is not None else None,
        "detail": one_line(progress.error.what) if progress.error else progress.held or None,
        "hint": _hint(progress),
        "notes": list(progress.notes),
    }


def _state(progress: "Progress") -> str:
    if progress.is_refused:
        return "refused"
    return progress.state.value if progress.state else "stopped"


def _hint(progress: "Progress") -> str | None:
    if progress.error is not None:
        return progress.error.hint
    return "run it again when they have ended; --horizon-timeout waits longer" if progress.held else None


def _hints(connectors: "Sequence[Progress]") -> list[str]:
    """The hints of connectors that failed or are held back, each once, with the names it applies to."""
    names: dict[str, list[str]] = {}
    for one in connectors:
        if hint := _hint(one):
            names.setdefault(hint, []).append(one.name)
    return [f"hint: {', '.join(some)}: {hint}" for hint, some in names.items()]


def _write_summary(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    import msgspec

    from playhead.files import replace_file

    replace_file(path, msgspec.json.format(msgspec.json.encode({"connectors": rows}), indent=2) + b"\n")
