"""Standalone workers that run on this machine, found in the process table, and the offset file each of them uses."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playhead.config import read_properties
from playhead.errors import PlayheadError

MAIN_CLASS = b"org.apache.kafka.connect.cli.ConnectStandalone"
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class StandaloneWorker:
    """`offset_file` None: its properties could not be read, so it may use any file."""

    pid: int
    offset_file: Path | None


def list_standalone_workers() -> list[StandaloneWorker] | None:
    """None where the system has no process table to read."""
    if not (_PROC / "self" / "cmdline").exists():
        return None
    return list(_found())


def _found() -> Iterator[StandaloneWorker]:
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended while we looked
        if MAIN_CLASS in words:
            yield StandaloneWorker(int(folder.name), _offset_file(folder, words[words.index(MAIN_CLASS) + 1 :]))


def _offset_file(folder: Path, arguments: list[bytes]) -> Path | None:
    try:
        here = (folder / "cwd").readlink()
        properties = {entry.key: entry.value.strip() for entry in read_properties(here / os.fsdecode(arguments[0]))}
        return here / properties["offset.storage.file.filename"]
    except (OSError, IndexError, KeyError, PlayheadError):
        return None
