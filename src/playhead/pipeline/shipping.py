"""The code of a connector in Python, sent to the executors of a cluster as a zip, which Spark adds to the path of its workers.

Sent is what was imported here: all modules and packages beside it on the plugin path, or of an installed package that package
alone. What it needs from others must be installed on the executors. A wheel is a zip already. Compiled modules cannot be imported
from a zip: such a package must be installed on the executors, too.
"""

import hashlib
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from playhead.pipeline.spark_faults import spark_translated
from playhead.sdk.loading import root_of

_COMPILED = (".so", ".pyd", ".dylib")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same content is the same zip


class Shipping:
    """Of one session. `roots`: the plugin path."""

    def __init__(self, session: SparkSession, roots: Sequence[Path]) -> None:
        self._context = session.sparkContext
        self._roots = frozenset(roots)
        self._lock = threading.Lock()
        self._sent: set[str] = set()

    def send(self, found: type[Any]) -> str | None:
        """Sends the code of a connector, if it was not sent before. Returns a note if it cannot be sent."""
        top, root = found.__module__.partition(".")[0], root_of(found)
        files = [] if root.is_file() else sorted(_files(root, None if root in self._roots else top))
        if compiled := [file for file in files if file.suffix in _COMPILED]:
            return f"{compiled[0].name} is a compiled module: install the package of {top} on the executors"
        with self._lock, spark_translated(f"sending {top} to the executors"):
            folder = Path(tempfile.mkdtemp(dir=self._context._temp_dir))  # Spark deletes it with the session
            made = folder / "code.zip"
            if root.is_file():
                shutil.copyfile(root, made)
            else:
                _write_zip(made, root, files)
            name = f"playhead-{top}-{hashlib.sha256(made.read_bytes()).hexdigest()[:16]}.zip"
            if name not in self._sent:
                self._context.addPyFile(str(made.rename(folder / name)))
                self._sent.add(name)
        return None


def _files(root: Path, only: str | None) -> Iterator[Path]:
    """The modules and packages of a folder. `only`: the one of this name."""
    for place in root.iterdir():
        if only is not None and place.name not in (only, f"{only}.py"):
            continue
        if place.is_file() and place.suffix in (".py", *_COMPILED):
            yield place
        elif place.is_dir() and (only is not None or (place / "__init__.py").is_file()):
            yield from (file for file in place.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def _write_zip(target: Path, root: Path, files: Sequence[Path]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.writestr(zipfile.ZipInfo(file.relative_to(root).as_posix(), _EPOCH), file.read_bytes())
