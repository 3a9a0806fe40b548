"""The offset map of a copy: for every copied record, its source offset and its place in the target. Parquet, one folder per copy.

A file is written before the commit of its records, so it may belong to an attempt that was never committed. Which files count
follows from the group of the copy: each committed position names the token of its last file, and the name of a file has the
token of the one before it. What no chain reaches is not part of the map, and is deleted by the next run.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from playhead.config import Context
from playhead.config.ledger import default_ledger_url, ledger_url
from playhead.errors import Refused
from playhead.files import sync_folder

LONGEST = 200  # of 255: a file that is being written has a longer name
FIRST = "0" * 12  # the token before the first file
SCHEMA = pa.schema([("source_offset", pa.int64()), ("target_partition", pa.int32()), ("target_offset", pa.int64())])
_NAME = re.compile(r"p(\d+)-(\d+)-(\d+)-([0-9a-f]{12})-([0-9a-f]{12})\.parquet")
_FILE = "sqlite:///"
Summary = dict[int, tuple[int, int, int]]  # target partition -> first and last offset there, number of records
_SUMMARY = b"playhead.summary"
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MapFile:
    """The records of one range of a source partition. `previous`: the token of the file before it."""

    partition: int
    start: int
    end: int
    previous: str
    token: str

    @property
    def name(self) -> str:
        return f"p{self.partition}-{self.start:020}-{self.end:020}-{self.previous}-{self.token}.parquet"

    @classmethod
    def parse(cls, name: str) -> "MapFile | None":
        found = _NAME.fullmatch(name)
        return cls(int(found[1]), int(found[2]), int(found[3]), found[4], found[5]) if found else None


def new_token() -> str:
    return secrets.token_hex(6)


def map_folder(context: Context, given: Path | None, cluster: str, source: str, target: str) -> Path:
    """Beside the ledger; for a ledger that is no file, where the default one would be."""
    if given is None:
        url = ledger_url(context)
        url = url if url.startswith(_FILE) else default_ledger_url()
        ledger = Path(unquote(url.removeprefix(_FILE).partition("?")[0]))
        given = ledger.with_name(f"{ledger.stem}-copies")
    return given / cluster / _folder_name(source, target)


def _folder_name(source: str, target: str) -> str:
    """Another one for every pair: `a` to `b--c` is not `a--b` to `c`. No name of a topic has a tilde."""
    plain = f"{source}--{target}"
    return short_name(plain if plain.index("--") == len(source) else f"{source}~{target}")


def short_name(name: str) -> str:
    """For a file: the names of two topics may be longer than a file system accepts."""
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 17]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def write_file(
    folder: Path, file: MapFile, source: Offsets, target_partition: npt.NDArray[np.int32], target: Offsets
) -> None:
    """Complete under its name, or not there; also after a power cut."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = msgspec.json.encode(_summarized(target_partition, target))
    schema = SCHEMA.with_metadata({_SUMMARY: summary})
    table = pa.table([pa.array(source), pa.array(target_partition), pa.array(target)], schema=schema)
    temporary = folder / f".{file.name}"
    with temporary.open("wb") as sink:
        pq.write_table(
            table,
            sink,
            compression="zstd",
            use_dictionary=["target_partition"],
            column_encoding={"source_offset": "DELTA_BINARY_PACKED", "target_offset": "DELTA_BINARY_PACKED"},
        )
        sink.flush()
        os.fsync(sink.fileno())
    temporary.replace(folder / file.name)
    sync_folder(folder)  # the commit that follows is durable, too


def _summarized(target_partition: npt.NDArray[np.int32], target: Offsets) -> "Summary":
    """Within a file the offsets of a target partition increase."""
    found: Summary = {}
    for number in np.unique(target_partition).tolist():
        mine = target[target_partition == number]
        found[number] = (int(mine[0]), int(mine[-1]), len(mine))
    return found


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """`chains`: by source partition, the committed files in order."""

    folder: Path
    chains: Mapping[int, Sequence[MapFile]]

    @classmethod
    def load(cls, folder: Path, tokens: Mapping[int, str]) -> "OffsetMap":
        """`tokens`: by source partition, the token of the committed position. A missing file is an error: without it the map
        would have a hole that looks like records which were never there."""
        found = {file.token + str(file.partition): file for file in list_files(folder)}
        chains: dict[int, list[MapFile]] = {}
        for partition, last in tokens.items():
            token, chain = last, list[MapFile]()
            while token != FIRST:
                file = found.get(token + str(partition))
                if file is None:
                    raise Refused(
                        f"the offset map in {folder} is not complete: the file {token} of partition {partition} is missing",
                        "name the folder of the run that copied with --map",
                    )
                chain.append(file)
                token = file.previous
            chains[partition] = chain[::-1]
        return cls(folder, chains)

    def rows(self, partition: int, start: int = 0) -> Iterator[tuple[Offsets, npt.NDArray[np.int32], Offsets]]:
        """Source offset, target partition and target offset of the records from `start` on, file by file."""
        for file in self.chains.get(partition, ()):
            if file.end <= start:
                continue
            source, place, target = self.read(file)
            first = int(np.searchsorted(source, start))
            yield source[first:], place[first:], target[first:]

    def read(self, file: MapFile) -> tuple[Offsets, npt.NDArray[np.int32], Offsets]:
        """The columns of one file, in the order of the source."""
        table = pq.read_table(self.folder / file.name, memory_map=True)
        source, place, target = (column.to_numpy() for column in table.columns)
        return source, place, target

    def summary(self, file: MapFile) -> Summary:
        """Without reading the rows."""
        found = pq.read_schema(self.folder / file.name).metadata[_SUMMARY]
        return msgspec.json.decode(found, type=Summary)

    def drop_others(self) -> int:
        """Deletes files that belong to no chain: of attempts that were not committed."""
        kept = {file.name for chain in self.chains.values() for file in chain}
        dropped = [path for path in self.folder.glob("*.parquet") if path.name not in kept]
        for path in [*dropped, *self.folder.glob(".*.parquet")]:
            path.unlink(missing_ok=True)
        return len(dropped)


def list_files(folder: Path) -> list[MapFile]:
    return [file for path in folder.glob("*.parquet") if (file := MapFile.parse(path.name)) is not None]
