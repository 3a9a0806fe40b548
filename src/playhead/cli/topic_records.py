"""`playhead topics records`: prints records as they are read and keeps none.

Each batch is written at once. On a terminal, control characters in records are escaped. This includes `-o raw`, which
elsewhere prints the exact bytes.
"""

import base64
import csv
import select
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

import click
import msgspec

from playhead.cli.frame import Face, context_options, folded, pass_face, say, width_of, write
from playhead.cli.topics import opened, topic_names
from playhead.errors import Invalid, PlayheadError
from playhead.render import clean
from playhead.render.clean import clean_json
from playhead.render.topics import LONGEST, RECORD_COLUMNS, encoded, record_cells, time_of
from playhead.render.width import pad, text_width, wrap

if TYPE_CHECKING:
    from playhead.topics.records import Query, TopicRecord

LEAST_ROOM = 20  # for a wrapped value
FORMS = ("table", "wide", "json", "csv", "raw")
CSV_FIELDS = ("partition", "offset", "timestamp", "key", "key_encoding", "value", "value_encoding", "headers")


def _remember(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Face).form = value


_RANGE = (
    click.option(
        "--partition", "partitions", multiple=True, type=click.IntRange(min=0), help="Only this partition; repeatable."
    ),
    click.option(
        "--from-offset", type=click.IntRange(min=0), metavar="N", help="Start at this offset, in every partition."
    ),
    click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="Stop before this offset."),
    click.option(
        "--from-time",
        metavar="T",
        help="Start at the first record at or after T: 2026-01-31T08:00, milliseconds since 1970, or 1h for an hour ago.",
    ),
    click.option("--to-time", metavar="T", help="Stop before the first record at or after T."),
    click.option(
        "--last", type=click.IntRange(min=1), metavar="N", help="The newest N records of all partitions together."
    ),
    click.option("--key", metavar="K", help="Only records whose key is exactly this text."),
    click.option("--grep", metavar="REGEX", help="Only records with a match in value, key or a header."),
    click.option("--max", "limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records."),
    click.option("--follow", "-f", is_flag=True, help="Continue as records arrive, until Ctrl-C."),
    click.option(
        "--committed/--uncommitted",
        default=True,
        help="Exclude or include records of open and aborted transactions [default: --committed].",
    ),
)


def query_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command gets the options as `query`: a function from a topic name to a `Query`."""
    names = ("partitions", "from_offset", "to_offset", "from_time", "to_time", "last", "key", "grep", "limit", "follow")

    def fold(words: dict[str, Any]) -> Callable[[str], "Query"]:
        given = {name: words.pop(name) for name in (*names, "committed")}
        return lambda topic: _query(topic, given)

    return folded(command, _RANGE, "query", fold)


def _query(topic: str, given: dict[str, Any]) -> "Query":
    from playhead.broker import moment_of
    from playhead.topics.records import Query, compile_grep

    parsed = {
        "from_time": moment_of(given["from_time"]),
        "to_time": moment_of(given["to_time"]),
        "key": None if given["key"] is None else given["key"].encode(errors="surrogateescape"),
        "grep": None if given["grep"] is None else compile_grep(given["grep"]),
    }
    return Query(topic, **{**given, **parsed})


@click.command()
@click.argument("name", shell_complete=topic_names)
@query_options
@click.option(
    "--json", "decode", is_flag=True, help="With -o json: print keys and values that are JSON as JSON, not as text."
)
@context_options
@click.option(
    "-o",
    "--output",
    callback=_remember,
    expose_value=False,
    type=click.Choice(FORMS),
    help="Output format [default: table]. json: one object per line. raw: the bytes of each value and a line break.",
)
@pass_face
def records(face: Face, name: str, query: "Callable[[str], Query]", decode: bool) -> None:
    """Print the records of a topic, from its start to its current end.

    T is a time like 2026-01-31T08:00:00 (UTC, or with a zone like +09:00), or how long ago, like PT1H30M. A record without a
    value is shown as a tombstone. In JSON, bytes that are not text are {"base64": ...}. Nothing is committed. --timeout counts
    from the last record.
    """
    from playhead.topics.records import open_reading

    if decode and face.form != "json":
        raise click.UsageError("--json requires -o json")
    with opened(face) as session:
        reading = open_reading(session, query(name))
        for note in reading.notes:
            say(f"note: {note}")
        form = form_of(face.form, decode=decode, widest_offset=reading.widest_offset)
        count = 0
        with closing(reading.batches(check_reader)) as batches:
            for batch in batches:
                count += len(batch)
                form.put(batch)
    if not count and face.form in ("table", "wide"):
        say("no record")
    for note in form.notes():
        say(f"note: {note}")


def check_reader() -> None:
    """Detects a closed pipe while no records arrive: without a write there is no error."""
    try:
        poller = select.poll()
        poller.register(sys.stdout.fileno(), 0)
        gone = any(event & select.POLLERR for _, event in poller.poll(0))
    except (AttributeError, OSError):  # no poll on this system, or no real file
        return
    if gone:
        raise BrokenPipeError


class RecordForm(Protocol):
    def put(self, batch: "Sequence[TopicRecord]") -> None: ...

    def notes(self) -> list[str]: ...


def form_of(name: str, *, decode: bool = False, widest_offset: int = 0) -> RecordForm:
    match name:
        case "json":
            return JsonOutput(decode=decode)
        case "csv":
            return Csv()
        case "raw":
            return RawValues()
        case "table" | "wide":
            return TableOutput(wide=name == "wide", widest_offset=widest_offset)
    raise Invalid(f"records cannot be printed as {name}", f"choose one of {', '.join(FORMS)}")


class JsonOutput:
    def __init__(self, *, decode: bool) -> None:
        self._content = _decoded if decode else encoded
        self._encoder = msgspec.json.Encoder()

    def put(self, batch: "Sequence[TopicRecord]") -> None:
        lines = b"".join([self._encoder.encode(self._object(record)) + b"\n" for record in batch])
        write(clean_json(lines.decode()))

    def _object(self, record: "TopicRecord") -> dict[str, Any]:
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": time_of(record.timestamp_ms),
            "timestamp_ms": record.timestamp_ms,
            "timestamp_type": record.time_type,
            "key": self._content(record.key),
            "value": self._content(record.value),
            "headers": [{"key": name, "value": encoded(value)} for name, value in record.headers],
        }

    def notes(self) -> list[str]:
        return []


def _decoded(data: bytes | None) -> Any:
    """JSON as written, with all digits of numbers, on one line. Other data stays text."""
    text = encoded(data)
    if data is None or not isinstance(text, str):
        return text
    try:
        msgspec.json.decode(data)
        return msgspec.Raw(msgspec.json.format(data, indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return text


class _Lines(list[str]):
    """Lines that end in a line feed. csv is set to CR LF: only then does it quote a carriage return."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


class Csv:
    """`*_encoding` is text, base64 or empty: a record without a key or value."""

    def __init__(self) -> None:
        self._begun = False

    def put(self, batch: "Sequence[TopicRecord]") -> None:
        lines = _Lines()
        writer = csv.writer(lines, lineterminator="\r\n")
        if not self._begun:
            writer.writerow(CSV_FIELDS)
            self._begun = True
        writer.writerows(map(self._cells, batch))
        text = "".join(lines)
        write(clean(text, keep="\n") if sys.stdout.isatty() else text)

    @staticmethod
    def _cells(record: "TopicRecord") -> list[Any]:
        headers = [{"key": name, "value": encoded(value)} for name, value in record.headers]
        return [
            record.partition,
            record.offset,
            time_of(record.timestamp_ms),
            *_csv_content(record.key),
            *_csv_content(record.value),
            msgspec.json.encode(headers).decode() if headers else "",
        ]

    def notes(self) -> list[str]:
        return []


def _csv_content(data: bytes | None) -> tuple[str, str]:
    if data is None:
        return "", ""
    try:
        return data.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


class RawValues:
    def __init__(self) -> None:
        self._tombstones = 0

    def put(self, batch: "Sequence[TopicRecord]") -> None:
        self._tombstones += sum(record.value is None for record in batch)
        data = b"".join([(record.value or b"") + b"\n" for record in batch])
        if sys.stdout is None:
            raise PlayheadError("cannot write: stdout is closed")
        if sys.stdout.isatty():
            write(clean(data.decode("utf-8", "backslashreplace"), keep="\n\t"))
        else:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def notes(self) -> list[str]:
        return [f"{self._tombstones} of the lines are empty: tombstones"] if self._tombstones else []


class TableOutput:
    """Columns are as wide as the first batch needs. A wider cell widens the rows after it. On a terminal values are wrapped."""

    def __init__(self, *, wide: bool, widest_offset: int) -> None:
        self._terminal = None if wide else width_of(sys.stdout)
        self._longest = None if wide else LONGEST
        self._widths = [len(column.title) for column in RECORD_COLUMNS]
        self._widths[1] = max(self._widths[1], len(str(widest_offset)))
        self._begun = False
        self._truncated = False

    def put(self, batch: "Sequence[TopicRecord]") -> None:
        rows = [self._row(record) for record in batch]
        for index, column in enumerate(zip(*(row[:-1] for row in rows), strict=True)):
            self._widths[index] = max(self._widths[index], *map(text_width, column))
        if not self._begun:
            rows.insert(0, [column.title for column in RECORD_COLUMNS])
            self._begun = True
        write("".join([self._line(row) for row in rows]))

    def _row(self, record: "TopicRecord") -> list[str]:
        cells = record_cells(record, self._longest)
        texts = ["-" if cell is None else str(cell) for cell in cells.values()]
        self._truncated = self._truncated or any(len(text) == self._longest and text.endswith("...") for text in texts)
        return [text if text.isprintable() else clean(text) for text in texts]

    def _line(self, row: Sequence[str]) -> str:
        partition, offset, *others, last = row
        first, second, *rest, _ = self._widths
        start = "  ".join([partition.rjust(first), offset.rjust(second), *map(pad, others, rest), ""])
        if self._terminal is None:
            return (start + last).rstrip() + "\n"
        room = self._terminal - text_width(start)
        if room < LEAST_ROOM:
            return "".join(f"{line}\n" for line in wrap(start + last, self._terminal))
        lines = wrap(last, room)
        return "".join(
            f"{start if at == 0 else ' ' * text_width(start)}{line}".rstrip() + "\n" for at, line in enumerate(lines)
        )

    def notes(self) -> list[str]:
        return ["long keys or values are truncated; -o wide shows them in full"] if self._truncated else []
