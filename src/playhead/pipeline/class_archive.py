"""Class data of Spark's JVM, kept for later runs: a JVM that maps it starts with half of the work.

The first run with a Java and a set of jars lists the classes that its JVM loads. When it has ended, a process in the background
has Java write an archive of them (class data sharing) into the user's cache; later runs map that file. Nothing depends on it: a
JVM ignores an archive that does not fit its version or its jars, and a run without one starts later.

A JVM trusts the bytes of its archive and crashes on damaged ones. So an archive is renamed into place after Java has mapped it
once, its name has its size and checksum (KEY-SIZE-CRC.jsa), and it is used only if no other user can write it (`trust.py`).
If a JVM crashes all the same, the archive is deleted and none is made for a day; `spark.py` starts the JVM again without it.

One writer works at a time, and others end at once. `PLAYHEAD_CLASS_ARCHIVE=off` turns all of it off.
"""

import fcntl
import hashlib
import mmap
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from playhead.config.trust import distrust
from playhead.errors import Invalid
from playhead.pipeline.jars import cache_folder

SWITCH = "PLAYHEAD_CLASS_ARCHIVE"
FAILED, LOCK = ".failed", ".lock"
UNUSED_DAYS = 30
FREE_BYTES = 1 << 30  # an archive has about 160 MB; a disk with less than this is left alone
WRITE_SECONDS = 900.0
_USERS_OWN = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-XX:DumpLoadedClassList", "-Xshare", "-Xlog")
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_CLASS_PATH_VARIABLES = ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
_PLAIN = re.compile(r"[\w./ +@%=:,-]+")  # a path that a quoted option of a JVM can hold
_LAYOUT = re.compile(r"-Xmx|-XX:[+-]Use|-XX:ObjectAlignmentInBytes")  # what an archive has in common with its JVMs
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one Java and one set of jars: `file` if there is one, else `classes`, the list from which it is made.
    `start` is what the names of both begin with."""

    start: Path
    file: Path | None = None
    classes: Path | None = None

    @property
    def java_options(self) -> str:
        """For the JVM, as text that Spark splits. Java would print its warnings about archives on stdout."""
        if self.classes is not None:
            return f'"-XX:DumpLoadedClassList={self.classes}"'
        if self.file is not None:
            return f'"-XX:SharedArchiveFile={self.file}" -Xshare:auto -Xlog:disable -Xlog:all=warning:stderr'
        return ""

    def write_later(self, java_home: str, class_path: str, jvm_options: Sequence[str]) -> None:
        """Starts the writer, if this run has listed its classes. It outlives this process. `jvm_options`: those of the JVM."""
        if self.classes is None or not self.classes.is_file():
            return
        java = str(Path(java_home) / "bin" / "java")
        words = [java, class_path, str(self.classes), str(self.start), *filter(_LAYOUT.match, jvm_options)]
        with suppress(OSError):  # no archive then: the next run starts as this one did
            subprocess.run(  # the shell ends at once, and the writer has no parent that would have to wait for it
                ["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-m", "playhead.pipeline.class_archive", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                cwd=self.start.parent,  # the folder of the run may be deleted in the meantime
                start_new_session=True,
            )

    def drop(self, why: str) -> None:
        """After a JVM has crashed with it: deletes it, and none is made for a day."""
        with suppress(OSError):  # a cache that cannot be written; the JVM is started without archive in any case
            for path in (self.file, self.classes):
                if path is not None:
                    path.unlink(missing_ok=True)
            self.start.with_suffix(FAILED).write_text(why)


def find_archive(java: Path, jars: Sequence[Path], settings: Mapping[str, str]) -> ClassArchive | None:
    """None: turned off, not possible here, or the user's own options for the JVM concern such archives."""
    own = [settings.get("spark.driver.extraJavaOptions", ""), *(os.environ.get(name, "") for name in _JAVA_VARIABLES)]
    if os.environ.get(SWITCH) == "off" or any(option in text for option in _USERS_OWN for text in own):
        return None
    own += [settings.get("spark.driver.memory", ""), *(os.environ.get(name, "") for name in _CLASS_PATH_VARIABLES)]
    try:
        folder = archive_folder()
        named = "\n".join([*own, *map(_stamp, _java_files(java)), *map(_stamp, jars)])
        start = folder / hashlib.sha256(named.encode()).hexdigest()[:16]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _PLAIN.fullmatch(str(start)) or distrust(folder) or _has_failed(start):
            return None
        if (file := _whole(start)) is not None:
            with suppress(OSError):  # a cache that is shared and cannot be written
                os.utime(file)
            return ClassArchive(start, file)
        if not os.access(folder, os.W_OK) or shutil.disk_usage(folder).free < FREE_BYTES:
            return None
    except (OSError, Invalid):
        return None
    return ClassArchive(start, classes=start.with_suffix(f".{os.getpid()}-{time.monotonic_ns()}.classes"))


def archive_folder() -> Path:
    return cache_folder().parent / "classes"


def _java_files(java: Path) -> list[Path]:
    """What differs between two versions, vendors or builds of Java, even if one replaced the other in its folder."""
    home = java.resolve().parent.parent
    return [java.resolve(), home / "release", home / "lib" / "modules", home / "lib" / "server" / "libjvm.so"]


def _stamp(path: Path) -> str:
    """A JVM ignores an archive when a jar has another time or size, so such a jar needs another archive."""
    try:
        found = path.stat()
    except FileNotFoundError:  # Java skips it; it may also be a pattern
        return str(path)
    return f"{path} {found.st_mtime_ns} {found.st_size}"


def _has_failed(start: Path) -> bool:
    """Java's reason may pass (a full disk), but a try after every run would cost more than it gains."""
    try:
        return time.time() - start.with_suffix(FAILED).stat().st_mtime < _DAY
    except FileNotFoundError:
        return False


def _whole(start: Path) -> Path | None:
    """The archive, if all of it is there, undamaged, and no other user can have written it."""
    for file in start.parent.glob(f"{start.name}-*.jsa"):
        if file.name == _name(start, file) and distrust(file) is None:
            return file
    return None


def _name(start: Path, written: Path) -> str:
    with written.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return ""
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return f"{start.name}-{size}-{zlib.crc32(content):08x}.jsa"


def write_archive(
    java: str, class_path: str, classes: Path, start: Path, jvm_options: Sequence[str] = ()
) -> Path | None:
    """The archive, if this process has written it. The list of classes is deleted in any case."""
    part = classes.with_suffix(".part")
    try:
        with _alone(start.with_name(LOCK)) as is_alone:
            if not is_alone or _whole(start) is not None:
                return None
            common = [java, f"-XX:SharedArchiveFile={part}", *jvm_options, "-Xlog:disable", "-Xlog:all=error:stderr"]
            common += ["-cp", class_path]
            fault = _java_fault([*common, "-Xshare:dump", f"-XX:SharedClassListFile={classes}"])
            if fault is None and part.is_file():
                fault = _java_fault([*common, "-Xshare:on", "-version"])  # ends with an error if it cannot be mapped
            if fault is not None or not part.is_file():  # as with a folder on the class path
                start.with_suffix(FAILED).write_text(fault or "Java wrote no archive")
                return None
            with part.open("rb") as written:
                os.fsync(written.fileno())
            file = part.replace(start.with_name(_name(start, part)))
            _delete_unused(file, start)
            return file
    finally:
        classes.unlink(missing_ok=True)
        part.unlink(missing_ok=True)


def _java_fault(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=WRITE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"Java did not end within {WRITE_SECONDS:g} s"
    return f"exit code {done.returncode}\n{done.stdout}{done.stderr}" if done.returncode else None


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """False if another process writes. The file stays: deleting it would let two processes lock two files of one name."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _delete_unused(kept: Path, start: Path) -> None:
    """Archives of a Java or of jars that are not used any more, damaged ones of this one, and what killed runs left."""
    for path in kept.parent.iterdir():
        if path == kept or path.name == LOCK:
            continue
        with suppress(FileNotFoundError):  # a run has deleted it
            days = (time.time() - path.stat().st_mtime) / _DAY
            is_damaged = path.name.startswith(f"{start.name}-") and path.suffix == ".jsa"
            if is_damaged or days > (UNUSED_DAYS if path.suffix == ".jsa" else 1):
                path.unlink()


if __name__ == "__main__":
    os.nice(19)
    write_archive(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
