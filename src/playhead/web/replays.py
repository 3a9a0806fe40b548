"""Replays of sinks as plans: planned here, carried out by a process of its own (`replay_process.py`).

A replay needs a Spark session: a JVM, of which a process has one, and which takes memory and time. The process gets its context
and the shown ranges through a pipe, so that no secret is in its arguments, and answers with a line per outcome. It ends when
the pipe is closed: with the server, also if that is killed. The same plan then completes it, as for `playhead replay`.

The rows of a source are looked up through Spark, so the replay of a source is not planned here.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from playhead.broker import moment_of
from playhead.config import Context
from playhead.config.extras import check_extra
from playhead.connectors.files.read import read_specs
from playhead.errors import Invalid, OutcomeUnknown, PlayheadError, Refused, Unreachable
from playhead.model import Result
from playhead.model.host import user_name
from playhead.web.options import VARIABLE
from playhead.web.verbs import IMPOSSIBLE, Deed, DeedRow

REPLAY = "replay"
_ERRORS: dict[int, type[PlayheadError]] = {2: Invalid, 3: Unreachable, 4: Refused, 5: OutcomeUnknown}
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The part in the words of the command line. `files`: those of the server; the first that has the connector counts."""

    owner: str
    ranges: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    last: int | None = None
    object: str = ""
    accept_changes: bool = False
    files: tuple[Path, ...] = ()

    @property
    def words(self) -> list[str]:
        """The command line without its context."""
        words = ["playhead", "replay", self.owner, *(word for one in self.ranges for word in ("--range", one))]
        given = {"--since": self.since, "--until": self.until, "--last": self.last, "--object": self.object}
        words += [word for option, value in given.items() if value for word in (option, str(value))]
        words += ["--accept-changes"] if self.accept_changes else []
        return [*words, *(["-f", self.file] if self.file else [])]

    @property
    def file(self) -> str | None:
        for path in self.files:
            if any(spec.name.strip() == self.owner for spec in read_specs([path], shared_topics=True)):
                return str(path)
        return None


class Span(msgspec.Struct, frozen=True):
    """A shown range of the plan: whole ranges of the ledger, as they were delivered last."""

    topic: str
    partition: int
    start: int
    end: int
    generation: int
    count: int


class ReplayOrder(msgspec.Struct, frozen=True):
    """What the process gets. `settings`: of the context, value and origin. `who`: for the journal."""

    owner: str
    context: str | None
    settings: dict[str, tuple[str, str]]
    who: str
    spans: list[Span]
    file: str | None = None
    accept_changes: bool = False


class ReplayNews(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the process: something to tell, an outcome, an error, or its end."""

    say: str = ""
    row: dict[str, Any] | None = None
    error: str = ""
    hint: str | None = None
    code: int | None = None


def plan_replay(context: Context, request: ReplayRequest) -> Deed:
    """Reads the ledger, the brokers and the config. Changes nothing, and opens no Spark session."""
    check_extra("spark")
    from playhead.pipeline.replay.asked import Asked, parse_range, parse_window
    from playhead.pipeline.replay.keys import looks_like_keys
    from playhead.pipeline.replay.run import ReplayOptions, planned_replay

    if any(looks_like_keys(text) for text in request.ranges):
        raise Invalid(
            "the rows of a source are looked up through Spark, which takes longer than a page may",
            f"run it in a shell: {shlex.join(request.words)}",
        )
    since, until = parse_window(request.since or None, request.until or None, moment_of)
    ranges = tuple(parse_range(text) for text in request.ranges)
    asked = Asked(ranges, since, until, request.last, request.object or None)
    options = replace(ReplayOptions.of_context(context, request.file), accepts=request.accept_changes)
    with planned_replay(context, request.owner, asked, options) as planned:
        rows, impossible = planned.rows, planned.impossible
        notes = [f"config: {planned.found_in}; to: {planned.target}", *planned.notes]
        if planned.run.is_alive:
            notes.insert(1, f"{request.owner} is {planned.run.words}: it goes on, above what is replayed")
    notes.append(
        f"Spark runs in a process of its own, on the machine of this server, with master {options.spark.master}"
    )
    spans = [msgspec.convert(row, Span) for row in rows]
    every = [_planned_row(row) for row in rows] + [_impossible_row(row) for row in impossible]
    return Deed(tuple(every), notes=tuple(notes), spans=tuple(spans))


def run_replay(
    context: Context, request: ReplayRequest, only: Deed, tell: Callable[[str], None], process: "ReplayProcess"
) -> Deed:
    """Carries out what `only` showed, and waits for it."""
    settings = {key: (setting.text, setting.origin) for key, setting in context.settings.items()}
    order = ReplayOrder(
        request.owner, context.name, settings, user_name(), list(only.spans), request.file, request.accept_changes
    )
    left = [row for row in only.rows if row.does == IMPOSSIBLE]
    done: list[Row] = []
    for news in process.run(order):
        if news.error:
            raise _ERRORS.get(news.code or 1, PlayheadError)(news.error, news.hint)
        if news.say:
            tell(news.say)
        if news.row is not None:
            done.append(news.row)
            tell(f"{_place(news.row)}: {news.row['result']}")
        elif news.code is not None:
            rows = [_done_row(row) for row in done] + [replace(row, result=Result.REFUSED) for row in left]
            return Deed(tuple(rows), executed=True, code=news.code or (1 if left else 0))
    raise OutcomeUnknown(
        f"the process of the replay ended early, after {len(done)} of {len(only.spans)} ranges",
        "each range has its old or its new output: plan it again, which completes it",
    )


class ReplayProcess:
    """One replay. `end` may be called by another thread."""

    def __init__(self) -> None:
        self._stdin: IO[bytes] | None = None

    def run(self, order: ReplayOrder) -> Iterator[ReplayNews]:
        words = [sys.executable, "-m", "playhead.web.replay_process"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        own = {name: value for name, value in os.environ.items() if name != VARIABLE}  # the login is not its business
        with subprocess.Popen(words, **pipes, env=own, start_new_session=True) as process:  # Ctrl-C is for the server
            self._stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
            yield ReplayNews(say=f"process {process.pid} starts Spark")
            try:
                with suppress(BrokenPipeError):
                    self._stdin.write(msgspec.json.encode(order) + b"\n")
                    self._stdin.flush()
                for line in stdout:
                    yield msgspec.json.decode(line, type=ReplayNews)
            finally:
                self.end()

    def end(self) -> None:
        """It ends as after a Ctrl-C."""
        if self._stdin is not None:
            with suppress(BrokenPipeError):
                self._stdin.close()


def _place(row: Row) -> str:
    return f"{row['topic']}-{row['partition']}: {row['start']:,} to {row['end']:,}"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _content(row: Row) -> str:
    objects = f", {_many(len(row['objects']), 'object')}" if row["objects"] else ""
    return f"{_many(row['count'], 'record')}{objects}, generation {row['generation']}"


def _planned_row(row: Row) -> DeedRow:
    before = f"{_many(row['ranges'], 'range')}, {_content(row)}"
    return DeedRow(_place(row), before, str(row["does"]))


def _impossible_row(row: Row) -> DeedRow:
    return DeedRow(_place(row), "-", IMPOSSIBLE, detail=str(row["why"]))


def _done_row(row: Row) -> DeedRow:
    removed = f"removed: {', '.join(row['removed'][:5])}" if row["removed"] else ""
    detail = "; ".join(filter(None, [row["detail"], removed]))
    return DeedRow(_place(row), "", "", _content(row), Result(row["result"]), detail)
