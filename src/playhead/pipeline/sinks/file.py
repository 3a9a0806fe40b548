"""FileStreamSink on Spark: the value of each record as one line at the end of one file of this machine.

As the connector does it: Java's text of the value and a newline, `null` for a tombstone, all topics and partitions in one file,
what is in the file already stays. ByteArrayConverter is refused by name: of bytes Java's text is an address in memory. A value
that is not UTF-8 is a poison record here; the connector would replace its bytes in silence. The order is that of topics,
partitions and offsets within a step. Tasks write parts, and the driver appends them (see file_target): exactly once.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from playhead.errors import ConfigInvalid, Fault
from playhead.files import sync_folder
from playhead.pipeline.sinks import OFFSET, Recall, Reject, Rejected, Sink, Step
from playhead.pipeline.sinks.file_target import End, Part, Target, parts_folder, translated
from playhead.pipeline.sinks.tally import Tally
from playhead.pipeline.sinks.values.javatext import JavaLines
from playhead.pipeline.sinks.values.jsontext import join_lines
from playhead.pipeline.sinks.values.options import BYTES, Converter, check_converters, parse_converter
from playhead.sql.range_kept import swap_kept
from playhead.sql.range_values import ClosedRange, Done, Output, OutputKind, RangeClaim

if TYPE_CHECKING:
    from playhead.sql.range_ledger import Also

FILE = "file"
OF_RUN = frozenset({"topics", "topics.regex", "key.converter", "value.converter"})
HARMLESS = frozenset({"name", "connector.class", "connector.plugin.version", "tasks.max", "tasks.max.enforce"})
HARMLESS_MORE = frozenset({"config.action.reload", "header.converter"})
PREFIXES = (
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "consumer.override.",
    "producer.override.",
    "errors.",
)
EMPTY_ONLY = frozenset({"transforms", "predicates"})


def check_options(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """Everything that is wrong with a connector's config, as far as the config alone can tell."""
    known = OF_RUN | HARMLESS | HARMLESS_MORE | {FILE}
    faults = [
        Fault(key, None, "the Spark engine does not honour this option")
        for key, value in config.items()
        if key not in known and not key.startswith(PREFIXES) and (key not in EMPTY_ONLY or value.strip())
    ]
    if not config.get(FILE, "").strip():
        faults.append(Fault(FILE, None, "must be set: the executors of Spark have no stdout to show"))
    elif Path(config[FILE]).is_dir():
        faults.append(Fault(FILE, None, f"{config[FILE]} is a folder"))
    converters = check_converters(config, worker)
    if not converters and parse_converter(config, worker).name == BYTES:
        what = "FileStreamSink has no text for bytes: on a worker it would write their addresses in memory"
        converters.append(Fault("value.converter", None, what))
    return faults + converters


def open_file_sink(config: Mapping[str, str], worker: Mapping[str, str]) -> Sink:
    """Nothing is touched before the first step."""
    if faults := check_options(config, worker):
        raise ConfigInvalid(faults)
    return FileSink(Path(config[FILE]).resolve(), parse_converter(config, worker))


class FileSink:
    def __init__(self, path: Path, converter: Converter) -> None:
        self._target = Target(path)
        self._converter = converter
        self._recall: Recall | None = None

    @property
    def shape(self) -> str:
        """With the file and the converter: what is half appended there must not be finished elsewhere, or otherwise."""
        return sha256(f"file 2 {self._target.path} {self._converter}".encode()).hexdigest()

    @property
    def notes(self) -> Sequence[str]:
        return ()

    @property
    def fewest_records(self) -> int:
        return 0

    @property
    def has_keys(self) -> bool:
        return False

    @property
    def commits_in_tasks(self) -> bool:
        return False

    def writer(self, step: Step) -> "LineWriter":
        """The file is looked at before the work begins, not only when it is done."""
        is_first, self._recall = self._recall is None, step.recall
        self._target.lock()
        end = self._end()
        self._target.examine(end)
        if is_first:
            self._target.tidy(end)
        return LineWriter(str(self._target.path), JavaLines(self._converter))

    def tail_is_due(self, last_closed_ms: int, now_ms: int) -> bool:  # noqa: ARG002  every claim is written whole
        return False

    def merging(self, done: Sequence[Done]) -> "Also | None":
        """Appends, and gives what tells the ledger of it: only with that commit the new lines count."""
        before = self._end()
        after = self._target.append(before, list(_parts_of(done)))
        return swap_kept(self._key, before.text, after.text)

    def settled(self, done: Sequence[RangeClaim]) -> None:  # noqa: ARG002  the intent knows them
        self._target.settle()

    def close(self) -> None:
        self._target.close()

    @property
    def _key(self) -> str:
        return f"end of {self._target.path}"

    def _end(self) -> End:
        """As the ledger says now, whoever committed last."""
        assert self._recall is not None  # noqa: S101  a step begins with its writer
        return End.from_text(self._recall(self._key, lambda: self._target.present_end().text))


@dataclass(frozen=True, slots=True)
class LineWriter:
    """In the executor, on the same machine: the lines of one claim as one part, under a name that only the claim decides."""

    path: str
    values: JavaLines

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        folder, tally = parts_folder(Path(self.path)), Tally()
        draft = folder / f"{part_name(claim)}.{secrets.token_hex(4)}"
        try:
            with translated(folder):
                file = draft.open("xb")
            with file:
                for batch in batches:
                    lines = self._lines_of(batch, tally, _rejecting(claim, batch, tally, reject))
                    with translated(folder):
                        file.write(lines)
                with translated(folder):
                    size = _publish(file, draft, folder / part_name(claim))
        finally:
            draft.unlink(missing_ok=True)
        outputs = (Output(self.path, tally.count, size, OutputKind.FILE),) if size else ()
        yield tally.closed(claim.range, outputs)

    def _lines_of(self, batch: pa.RecordBatch, tally: Tally, bad: Callable[[int, str], None]) -> pa.Buffer:
        texts, faults = self.values.lines(batch)
        for fault in faults:
            bad(fault.row, fault.reason)
        tally.add_rows(batch, texts.is_valid().to_numpy(zero_copy_only=False))
        return join_lines(texts.cast(pa.binary()))


def part_name(claim: RangeClaim) -> str:
    """A digest: with the name of its topic it could be too long for a file."""
    told = f"{claim.range.topic_id} {claim.range} {claim.generation} {claim.shape}"
    return f"{sha256(told.encode()).hexdigest()[:40]}.lines"


def _parts_of(done: Sequence[Done]) -> Iterator[Part]:
    for claim, closed in sorted(done, key=lambda one: one[0].range):
        if size := sum(output.size for each in closed for output in each.outputs):
            yield Part(part_name(claim), size)


def _publish(file: BinaryIO, draft: Path, final: Path) -> int:
    """Durable under its name; the answer is its size."""
    file.flush()
    os.fsync(file.fileno())
    draft.replace(final)
    sync_folder(final.parent)
    return file.tell()


def _rejecting(claim: RangeClaim, batch: pa.RecordBatch, tally: Tally, reject: Reject) -> Callable[[int, str], None]:
    def bad(row: int, reason: str) -> None:
        offset = batch.column(OFFSET)[row].as_py()
        reject(Rejected(claim.range.topic, claim.range.partition, offset, reason))
        tally.rejected += 1

    return bad
