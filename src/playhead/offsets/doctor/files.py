"""The offset file of a standalone worker: is it whole?"""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from playhead.connect.javafile import CorruptFile, decode_file
from playhead.offsets.doctor.findings import Finding, Said


def corrupt_file(path: Path, error: CorruptFile) -> Finding:
    """A worker takes a truncated file for an empty one. Copies that we kept beside it are the way back."""
    what = f"{error.what}; a worker that starts on it forgets every position, without a word if the file is cut off"
    copy = next(_whole_copies(path), None)
    source = str(copy) if copy else f"BACKUP-OF-{path.name}"
    return Finding("corrupt-file", str(path), what, f"cp {quote(source)} {quote(str(path))}")


def _whole_copies(path: Path) -> Iterator[Path]:
    """Newest first."""
    for copy in sorted(path.parent.glob("*.playhead"), reverse=True):
        if copy.name.startswith(f"{path.name}."):
            try:
                decode_file(copy.read_bytes())
            except (CorruptFile, OSError):
                continue  # not one to go back to
            yield copy


def check_copies(path: Path) -> Iterator[Said]:
    """A file that is gone while copies of it are there was not there from the start."""
    if not path.exists() and (copy := next(_whole_copies(path), None)):
        what = f"{path} does not exist, but a copy of it does: it was removed, and the worker starts over everywhere"
        yield Finding("file-gone", str(path), what, f"cp {quote(str(copy))} {quote(str(path))}")
