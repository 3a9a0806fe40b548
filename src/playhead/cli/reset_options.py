"""The options of a reset, named as in Kafka's own tool: target, partitions, and what to do outside the log."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from playhead.cli.frame import folded

if TYPE_CHECKING:
    from playhead.offsets.reset_options import Reset, ResetTo, Scope
    from playhead.stores import Store

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)


@dataclass(frozen=True, slots=True)
class ResetWords:
    """`to` is None if the positions must be read first: `source` is the file or group to read."""

    to: "ResetTo | None"
    source: Path | str | None
    scope: "Scope"
    out_of_range: str
    to_ledger: bool = False

    def reset(self, store: "Store", owners: Sequence[str]) -> "Reset":
        """The reset for these owners of this store."""
        from playhead.offsets.reset_options import Reset

        return Reset(self.to or self._read(store, owners), self.scope, self.out_of_range)

    def _read(self, store: "Store", owners: Sequence[str]) -> "ResetTo":
        from playhead.offsets.reset import reset_to_file, reset_to_group

        if isinstance(self.source, Path):
            data = sys.stdin.buffer.read() if str(self.source) == "-" else self.source.read_bytes()
            return reset_to_file(data, str(self.source), owners)
        return reset_to_group(store, str(self.source), owners)


_WORDS = (
    click.option("--to-earliest", is_flag=True, help="To the log start."),
    click.option("--to-latest", is_flag=True, help="To the log end."),
    click.option("--to-current", is_flag=True, help="To the current commit; to the log end if there is none."),
    click.option("--to-offset", type=int, metavar="N", help="To this offset, in every partition."),
    click.option("--shift-by", type=int, metavar="N", help="N records forward, or back if N is negative."),
    click.option(
        "--to-datetime",
        metavar="TIME",
        help="To the first record at or after 2026-01-31T08:00:00.000 (UTC or a zone), milliseconds since 1970, or 1h ago as 1h.",
    ),
    click.option(
        "--by-duration", metavar="TIME", help="To the first record at or after this long ago: 1h, 2d12h or PnDTnHnMnS."
    ),
    click.option(
        "--from-file", type=FILE, metavar="FILE", help="To the offsets in FILE: Kafka's CSV, rpk's or Connect's format."
    ),
    click.option("--to-group", metavar="OTHER", help="To the position of OTHER."),
)
_TO_LEDGER = click.option(
    "--to-ledger",
    is_flag=True,
    help="For a sink that runs on Spark: to its position in the ledger, so that it can run again.",
)
_MORE = (
    click.option("--topic", "topics", multiple=True, metavar="T[:0,1]", help="This topic, or some of its partitions."),
    click.option("--all-topics", is_flag=True, help="Every partition that has a commit."),
    click.option(
        "--out-of-range",
        type=click.Choice(["clamp", "error"]),
        default="clamp",
        show_default=True,
        help="An offset outside the log: use the nearest end of the log, or refuse.",
    ),
)
_NAMES = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "to_datetime",
    "by_duration",
    "from_file",
    "to_group",
)


def reset_options(command: F) -> F:
    """Adds the options of a reset; the command gets them as `words: ResetWords`."""
    return folded(command, (*_WORDS, _TO_LEDGER, *_MORE), "words", _fold)


def owner_reset_options(command: F) -> F:
    """The same for a single owner: without a scope, all of its positions."""
    return folded(command, (*_WORDS, *_MORE), "words", _fold_of_owner)


def _fold_of_owner(words: dict[str, Any]) -> ResetWords | None:
    """None if `--to-batch` is the only target."""
    if words.get("to_batch") is None:
        return _fold(words, all_by_default=True)
    if given := [f"--{name.replace('_', '-')}" for name in _NAMES if words.pop(name) not in (None, False)]:
        raise click.UsageError(f"--to-batch and {given[0]} exclude each other")
    for name in ("topics", "all_topics", "out_of_range"):
        words.pop(name)
    return None


def _fold(words: dict[str, Any], *, all_by_default: bool = False) -> ResetWords:
    """Reports invalid combinations before any server is contacted."""
    from playhead.offsets.reset_options import Reset, Word, parse_reset, parse_scope

    names = [name for name in (*_NAMES, "to_ledger") if name in words]
    chosen = {name: value for name in names if (value := words.pop(name)) is not None and value is not False}
    options = {name.replace("_", "-"): value for name, value in chosen.items()}
    if len(options) != 1:
        every = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        problem = f"--{' and --'.join(options)} exclude each other" if options else "no target is given"
        raise click.UsageError(f"{problem}; give one of {every}")
    [(word, value)] = options.items()
    topics, all_topics, out_of_range = (words.pop(name) for name in ("topics", "all_topics", "out_of_range"))
    if word == "to-ledger":
        return ResetWords(None, None, parse_scope(topics, all_topics=all_topics), out_of_range, to_ledger=True)
    brings_positions = Word(word) in (Word.FILE, Word.GROUP)
    all_topics = all_topics or (all_by_default and not topics and not brings_positions)
    scope = parse_scope(topics, all_topics=all_topics)
    if brings_positions:
        return ResetWords(None, value, scope, out_of_range)
    return ResetWords(Reset(parse_reset(Word(word), value), scope).to, None, scope, out_of_range)
