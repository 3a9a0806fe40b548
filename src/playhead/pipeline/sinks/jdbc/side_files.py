"""Rows on their way into SQLite: Arrow files beside the database, in a folder of their own.

SQLite has one writer, and no other database can be attached inside of its transaction: so tasks leave files, and who merges reads
them. An attempt is a folder that gets its name when all of it is on the disk. Values are already what SQLite stores.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from playhead.errors import Unreachable

_HEADER = "header.json"


@dataclass(frozen=True, slots=True)
class FileStaging:
    """One step's folder: `<database>-playhead/<sink>-<step>`."""

    folder: str

    @classmethod
    def named(cls, database: Path, sink: str) -> "FileStaging":
        return cls(str(database.with_name(database.name + "-playhead") / f"{sink}-{uuid.uuid4().hex[:8]}"))

    @contextmanager
    def loading(self) -> Iterator["FileLoader"]:
        attempt = Path(self.folder, f"{uuid.uuid4()}.part")
        with _told(self.folder):
            attempt.mkdir()
        loader = FileLoader(attempt)
        try:
            yield loader
            with _told(self.folder):
                loader.close()
                attempt.rename(attempt.with_suffix(""))
        finally:
            shutil.rmtree(attempt, ignore_errors=True)

    @contextmanager
    def reading(self) -> Iterator["FilesStaged"]:
        yield FilesStaged(Path(self.folder))

    def make(self) -> None:
        with _told(self.folder):
            Path(self.folder).mkdir(mode=0o700, parents=True)
            self._sweep(Path(self.folder).name)

    def drop(self) -> None:
        self._sweep("")
        with _told(self.folder):
            folder = Path(self.folder).parent
            if folder.exists() and not any(folder.iterdir()):
                folder.rmdir()

    def _sweep(self, kept: str) -> None:
        folder = Path(self.folder)
        sink = folder.name.rpartition("-")[0]
        for old in folder.parent.glob(f"{sink}-*"):
            if old.name != kept:
                shutil.rmtree(old, ignore_errors=True)


class FileLoader:
    def __init__(self, attempt: Path) -> None:
        self._attempt = attempt
        self._segment = -1
        self._file: pa.ipc.RecordBatchFileWriter | None = None

    def write_batch(self, segment: int, batch: pa.RecordBatch) -> None:
        if segment != self._segment or self._file is None:
            self.close()
            self._segment = segment
            self._file = pa.ipc.new_file(str(self._attempt / f"{segment}.arrow"), batch.schema)
        self._file.write_batch(batch)

    def finish(self, header: bytes) -> None:
        self.close()
        with (self._attempt / _HEADER).open("wb") as file:
            file.write(header)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True, slots=True)
class FilesStaged:
    folder: Path

    def headers(self) -> Mapping[str, bytes]:
        with _told(str(self.folder)):
            return {
                found.parent.name: found.read_bytes()
                for found in self.folder.glob(f"*/{_HEADER}")
                if not found.parent.suffix
            }

    def rows(self, attempt: str, segment: int) -> Iterator[tuple[object, ...]]:
        with _told(str(self.folder)), pa.ipc.open_file(str(self.folder / attempt / f"{segment}.arrow")) as file:
            for place in range(file.num_record_batches):
                yield from rows_of(file.get_batch(place))


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


@contextmanager
def _told(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "the folder beside the database must be writable for all tasks"
        raise Unreachable(f"the staging folder {folder}: {error.strerror or 'cannot be used'}", hint) from None
