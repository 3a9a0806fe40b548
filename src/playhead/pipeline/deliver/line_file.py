"""FileStreamSink on Spark: the value of each record as one line at the end of one file of this machine.

As in the connector: Java's text of the value and a newline, `null` for a tombstone, all topics and partitions in one file, and
existing content is kept. ByteArrayConverter is refused by name: Java's text of bytes is an address in memory. A value that is
not UTF-8 is a poison record here; the connector would silently replace its bytes. Within a step, lines are ordered by topic,
partition and offset. Tasks write parts, and the driver appends them exactly once (see growing_file).
"""

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa

from playhead.errors import Fault
from playhead.files import sync_folder
from playhead.ledger.model import ClosedRange, Done, Output, OutputKind, RangeClaim
from playhead.ledger.ranges import swap_kept
from playhead.pipeline.deliver.chain import PREFIXES, SinkChain, check_chain, find_chain
from playhead.pipeline.deliver.growing_file import End, FilePart, GrowingFile, parts_folder, translated
from playhead.pipeline.deliver.sink import OFFSET, Recall, Reject, RejectedRecord, Sink, SinkStep
from playhead.pipeline.digest import Tally
from playhead.pipeline.options import OF_EVERY, KnownOptions, OptionReading
from playhead.pipeline.records.batch import TASK_PUT
from playhead.pipeline.records.decode.javatext import JavaLines, row_texts
from playhead.pipeline.records.decode.jsontext import join_lines
from playhead.pipeline.records.decode.options import BYTES, Converter, check_converters, parse_converter
from playhead.pipeline.records.transforms.options import OF_TRANSFORMS

if TYPE_CHECKING:
    from playhead.ledger.ranges import Also

FILE = "file"
KNOWN = KnownOptions(
    OF_EVERY | {FILE, "topics", "topics.regex", "key.converter", "value.converter", "header.converter", *OF_TRANSFORMS},
    (
        "key.converter.",
        "value.converter.",
        "header.converter.",
        "consumer.override.",
        "producer.override.",
        "errors.",
        *PREFIXES,
    ),
    {},
)


@dataclass(frozen=True, slots=True)
class LineFileOptions:
    path: Path
    converter: Converter
    chain: SinkChain | None = None


def check_options(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """Everything that is wrong with a connector's config, as far as the config alone shows."""
    return _Reading(config, worker).read()[1]


def open_file_sink(config: Mapping[str, str], worker: Mapping[str, str]) -> Sink:
    """The file is not opened before the first step."""
    options = _Reading(config, worker).parsed()
    return FileSink(options.path.resolve(), options.converter, options.chain)


class _Reading(OptionReading[LineFileOptions]):
    def read(self) -> tuple[LineFileOptions | None, list[Fault]]:
        self.check_names(KNOWN)
        path = self.config.get(FILE, "")
        if not path.strip():
            self.fault(FILE, "must be set: the stdout of Spark's executors is not shown")
        elif Path(path).is_dir():
            self.fault(FILE, f"{path} is a folder")
        if found := [*check_converters(self.config, self.worker), *check_chain(self.config, self.worker)]:
            self.faults += found
            return None, self.faults
        converter = parse_converter(self.config, self.worker)
        if converter.name == BYTES:
            what = "FileStreamSink has no text for bytes: on a worker it would write their addresses in memory"
            self.fault("value.converter", what)
        return LineFileOptions(Path(path), converter, find_chain(self.config, self.worker)), self.faults


class FileSink:
    def __init__(self, path: Path, converter: Converter, chain: SinkChain | None = None) -> None:
        self._target = GrowingFile(path)
        self._converter = converter
        self._chain = chain
        self._recall: Recall | None = None

    @property
    def shape(self) -> str:
        """Depends on file, converter and transforms: a claim that is open must not be finished with others."""
        chain = f" {self._chain.digest}" if self._chain else ""
        return sha256(f"file 2 {self._target.path} {self._converter}{chain}".encode()).hexdigest()

    @property
    def notes(self) -> Sequence[str]:
        return ()

    @property
    def fewest_records(self) -> int:
        return 0

    @property
    def has_keys(self) -> bool:
        return self._chain is not None and self._chain.has_keys

    @property
    def has_headers(self) -> bool:
        return self._chain is not None and self._chain.has_headers

    @property
    def commits_in_tasks(self) -> bool:
        return False

    def writer(self, step: SinkStep) -> "LineWriter":
        """The file is checked before the work begins, not only at the commit."""
        is_first, self._recall = self._recall is None, step.recall
        self._target.lock()
        end = self._end()
        self._target.examine(end)
        if is_first:
            self._target.tidy(end)
        return LineWriter(str(self._target.path), JavaLines(self._converter), self._chain)

    def tail_is_due(self, last_closed_ms: int, now_ms: int) -> bool:  # noqa: ARG002  every claim is written completely
        return False

    def merging(self, done: Sequence[Done]) -> "Also | None":
        """Appends the lines. They count only when the ledger's transaction has committed the new end."""
        before = self._end()
        after = self._target.append(before, list(_parts_of(done)))
        return swap_kept(self._key, before.text, after.text)

    def settled(self, done: Sequence[RangeClaim]) -> None:  # noqa: ARG002  the intent lists them
        self._target.settle()

    def close(self) -> None:
        self._target.close()

    @property
    def _key(self) -> str:
        return f"end of {self._target.path}"

    def _end(self) -> End:
        """The end in the ledger now."""
        assert self._recall is not None  # noqa: S101  a step begins with its writer
        return End.from_text(self._recall(self._key, lambda: self._target.present_end().text))


@dataclass(frozen=True, slots=True)
class LineWriter:
    """In the executor, on the same machine: writes the lines of a claim as one part. Its name depends on the claim only."""

    path: str
    values: JavaLines
    chain: SinkChain | None = None

    def write(self, claim: RangeClaim, batches: Iterator[pa.RecordBatch], reject: Reject) -> Iterator[ClosedRange]:
        folder, tally, count = parts_folder(Path(self.path)), Tally(), 0
        draft = folder / f"{part_name(claim)}.{secrets.token_hex(4)}"
        try:
            with translated(folder):
                file = draft.open("xb")
            with file:
                for batch in batches:
                    texts = self._lines_of(claim, batch, tally, reject)
                    count += len(texts) - texts.null_count
                    with translated(folder):
                        file.write(join_lines(texts))
                with translated(folder):
                    size = _publish(file, draft, folder / part_name(claim))
        finally:
            draft.unlink(missing_ok=True)
        outputs = (Output(self.path, count, size, OutputKind.FILE),) if size else ()
        yield tally.closed(claim.range, outputs)

    def _lines_of(self, claim: RangeClaim, batch: pa.RecordBatch, tally: Tally, reject: Reject) -> pa.Array:
        """Null for a record that has none."""
        filtered = np.empty(0, np.int64)
        if self.chain is None:
            texts, faults = self.values.lines(batch)
        else:
            made = self.chain.apply(batch, claim.range.place)
            texts, unfit = row_texts(((one.rows, one.value) for one in made.batches), batch.num_rows, TASK_PUT)
            faults, filtered = sorted([*made.bad, *unfit]), made.filtered
        for one in faults:
            offset = batch.column(OFFSET)[one.row].as_py()
            reject(RejectedRecord.of(claim.range, offset, one))
            tally.rejected += 1
        is_done = texts.is_valid().to_numpy(zero_copy_only=False)
        is_done[filtered] = True
        tally.add_rows(batch, is_done)
        return texts.cast(pa.binary())


def part_name(claim: RangeClaim) -> str:
    """A digest, because the name of a topic can be too long for a file name."""
    text = f"{claim.range.topic_id} {claim.range} {claim.generation} {claim.shape}"
    return f"{sha256(text.encode()).hexdigest()[:40]}.lines"


def _parts_of(done: Sequence[Done]) -> Iterator[FilePart]:
    for claim, closed in sorted(done, key=lambda one: one[0].range):
        if size := sum(output.size for each in closed for output in each.outputs):
            yield FilePart(part_name(claim), size)


def _publish(file: BinaryIO, draft: Path, final: Path) -> int:
    """Makes the file durable under its name. Returns its size."""
    file.flush()
    os.fsync(file.fileno())
    draft.replace(final)
    sync_folder(final.parent)
    return file.tell()
