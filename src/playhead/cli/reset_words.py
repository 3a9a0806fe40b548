"""The options of a reset, in the words of Kafka's own tool: where to, which partitions, what if that lies outside the log."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from playhead.cli.frame import folded

if TYPE_CHECKING:
    from playhead.offsets.reset import Reset
    from playhead.offsets.reset_words import ResetTo
    from playhead.stores import Store

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)


@dataclass(frozen=True, slots=True)
class ResetWords:
    """As they were typed: `word` is one of Kafka's, `value` what came with it."""

    word: str
    value: Any
    topics: tuple[str, ...]
    all_topics: bool
    out_of_range: str

    def reset(self, store: "Store", owners: Sequence[str]) -> "Reset":
        """What they mean for these owners of this store."""
        from playhead.offsets.reset import Reset
        from playhead.offsets.reset_words import parse_scope

        scope = parse_scope(self.topics, all_topics=self.all_topics)
        return Reset(self._to(store, owners), scope, self.out_of_range)

    def for_owner(self, store: "Store", owners: Sequence[str]) -> "Reset":
        """The same for one owner that was named itself: without a scope all of its positions are meant."""
        everything = self if self.topics or self.word == "from-file" else replace(self, all_topics=True)
        return everything.reset(store, owners)

    def _to(self, store: "Store", owners: Sequence[str]) -> "ResetTo":
        from playhead.offsets.reset import reset_to_file, reset_to_group
        from playhead.offsets.reset_words import ResetTo, Word, parse_duration, parse_time

        match Word(self.word):
            case Word.DATETIME:
                return ResetTo(Word.DATETIME, parse_time(self.value))
            case Word.DURATION:
                return ResetTo(Word.DURATION, parse_duration(self.value))
            case Word.GROUP:
                return reset_to_group(store, self.value, owners)
            case Word.FILE:
                data = sys.stdin.buffer.read() if str(self.value) == "-" else self.value.read_bytes()
                return reset_to_file(data, str(self.value), owners)
            case Word.OFFSET | Word.SHIFT as word:
                return ResetTo(word, self.value)
            case word:
                return ResetTo(word)


_WORDS = (
    click.option("--to-earliest", is_flag=True, help="To the log start."),
    click.option("--to-latest", is_flag=True, help="To the log end."),
    click.option("--to-current", is_flag=True, help="To the commit as it is; the log end where there is none."),
    click.option("--to-offset", type=int, metavar="N", help="To this offset, in every partition."),
    click.option("--shift-by", type=int, metavar="N", help="N records forward, or back if N is negative."),
    click.option(
        "--to-datetime", metavar="TIME", help="To the first record of 2026-01-31T08:00:00.000 or later; UTC or a zone."
    ),
    click.option("--by-duration", metavar="PnDTnHnMnS", help="To the first record of this long ago or later."),
    click.option(
        "--from-file", type=FILE, metavar="FILE", help="To what FILE says: Kafka's CSV, rpk's or Connect's form."
    ),
    click.option("--to-group", metavar="OTHER", help="To where OTHER is."),
)
_MORE = (
    click.option("--topic", "topics", multiple=True, metavar="T[:0,1]", help="This topic, or some of its partitions."),
    click.option("--all-topics", is_flag=True, help="Every partition that has a commit."),
    click.option(
        "--out-of-range",
        type=click.Choice(["clamp", "error"]),
        default="clamp",
        show_default=True,
        help="An offset outside the log: go to the edge of the log, or refuse.",
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
    return folded(command, (*_WORDS, *_MORE), "words", _fold)


def _fold(words: dict[str, Any]) -> ResetWords:
    chosen = {name: value for name in _NAMES if (value := words.pop(name)) is not None and value is not False}
    options = {name.replace("_", "-"): value for name, value in chosen.items()}
    if len(options) != 1:
        every = ", ".join(f"--{name.replace('_', '-')}" for name in _NAMES)
        said = f"only one of --{' and --'.join(options)} can be meant" if options else "where to?"
        raise click.UsageError(f"{said} Give one of {every}")
    [(word, value)] = options.items()
    topics, all_topics, out_of_range = (words.pop(name) for name in ("topics", "all_topics", "out_of_range"))
    return ResetWords(word, value, topics, all_topics, out_of_range)
