"""The folder of a checkpoint: local, or on a file system that pyarrow supports (S3, HDFS, Google, Azure).

A file is replaced as a whole. On disks: by a temporary file, fsync, rename and fsync of the folder, with the mode and owner of
the old file. On object stores: by one PUT. HDFS cannot rename over an existing file: the old one is deleted just before, and a
crash in between leaves a gap, which the next read reports. A flock on a local folder excludes other Playhead processes; object
stores have no such lock.

Settings for S3 are those of Spark, from the context's `spark` table (`spark.hadoop.fs.s3a.endpoint`, `.access.key`,
`.secret.key`, `.session.token`, `.endpoint.region`, `.connection.ssl.enabled`). Without them, the usual AWS environment variables
and files apply.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from os import environ
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote
from uuid import uuid4

from playhead.config import Context
from playhead.errors import AccessDenied, Invalid, MissingExtra, PlayheadError, Unreachable
from playhead.files import sync_folder
from playhead.model import Deadline

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)
_S3 = ("s3", "s3a", "s3n")
_OTHERS = ("hdfs", "viewfs", "gs", "abfs", "abfss")
_DENIED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|HTTP status 40[13]|permission denied", re.IGNORECASE
)

_HDFS = "pyarrow connects to HDFS through Java: set JAVA_HOME, HADOOP_HOME and CLASSPATH (`hadoop classpath --glob`)"


class Folder(Protocol):
    """Paths are relative, with slashes. A missing file or folder is None or empty, never an error."""

    @property
    def address(self) -> str: ...

    def list_files(self, path: str) -> dict[str, datetime]:
        """Name -> time of the last write."""
        ...

    def list_folders(self, path: str) -> list[str]: ...

    def find(self, path: str) -> bytes | None: ...

    def replace(self, path: str, data: bytes, like: str = "") -> None:
        """Never leaves a partial file. Mode and owner are those of the file `like`, by default of the file that is replaced."""
        ...

    def remove(self, path: str) -> None: ...

    def locked(self) -> AbstractContextManager[None]: ...

    def has_above(self, name: str) -> bool:
        """Whether a folder of this name is next to the checkpoint, or one level up: the checkpoint is in a sink's output."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFolder:
    root: Path
    deadline: Deadline

    @property
    def address(self) -> str:
        return str(self.root)

    def list_files(self, path: str) -> dict[str, datetime]:
        found = {}
        for entry in self._scan(path):
            with suppress(FileNotFoundError):  # a running query purges its logs
                if entry.is_file():
                    found[entry.name] = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
        return found

    def list_folders(self, path: str) -> list[str]:
        return sorted(entry.name for entry in self._scan(path) if entry.is_dir())

    def _scan(self, path: str) -> list[os.DirEntry[str]]:
        with _translated(f"{self.root / path} cannot be read"):
            try:
                with os.scandir(self.root / path) as entries:
                    return list(entries)
            except FileNotFoundError:
                return []
            except NotADirectoryError:
                raise Invalid(f"{self.root / path} is not a folder") from None

    def find(self, path: str) -> bytes | None:
        with _translated(f"{self.root / path} cannot be read"):
            try:
                return (self.root / path).read_bytes()
            except FileNotFoundError:
                return None

    def replace(self, path: str, data: bytes, like: str = "") -> None:
        target = self.root / path
        temporary = target.with_name(
            f".{target.name}.{uuid4()}.tmp"
        )  # named like Spark's own, so that Spark ignores it
        with _translated(f"{target} cannot be written"):
            _make_folders(target.parent)
            model = _stat(self.root / like if like else target)
            try:
                _write_synced(temporary, data, model or target.parent.stat(), new=model is None)
                temporary.replace(target)
            except BaseException:
                with suppress(FileNotFoundError):
                    temporary.unlink()
                raise
            sync_folder(target.parent)

    def remove(self, path: str) -> None:
        target = self.root / path
        with _translated(f"{target} cannot be removed"):
            try:
                target.unlink()
            except FileNotFoundError:
                return
            sync_folder(target.parent)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with _translated(f"{self.root} cannot be opened"):
            _make_folders(self.root)
            descriptor = os.open(self.root, os.O_RDONLY)
        try:
            self.deadline.wait_for(
                lambda: _try_lock(descriptor), f"waiting for another Playhead process at {self.root}", 0.02
            )
            yield
        finally:
            os.close(descriptor)

    def has_above(self, name: str) -> bool:
        return any((folder / name).is_dir() for folder in list(self.root.parents)[:2])


@dataclass(frozen=True, slots=True)
class ArrowFolder:
    files: Any  # pyarrow.fs.FileSystem, which has no types
    base: str
    address: str
    deadline: Deadline

    def list_files(self, path: str) -> dict[str, datetime]:
        found = self._infos(path)
        return {info.base_name: info.mtime or datetime.fromtimestamp(0, UTC) for info in found if info.is_file}

    def list_folders(self, path: str) -> list[str]:
        return sorted(info.base_name for info in self._infos(path) if not info.is_file)

    def _infos(self, path: str) -> list[Any]:
        from pyarrow.fs import FileSelector

        with self._translated(path, "listed"):
            return list(self.files.get_file_info(FileSelector(self._at(path), allow_not_found=True)))

    def find(self, path: str) -> bytes | None:
        with self._translated(path, "read"):
            try:
                with self.files.open_input_stream(self._at(path)) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def replace(self, path: str, data: bytes, like: str = "") -> None:  # noqa: ARG002  object stores keep no modes
        target = self._at(path)
        with self._translated(path, "written"):
            if self.files.type_name in ("s3", "gcs", "abfs"):
                self._put(target, data)
                return
            folder, _, name = target.rpartition("/")
            temporary = f"{folder}/.{name}.{uuid4()}.tmp"
            self.files.create_dir(folder, recursive=True)
            self._put(temporary, data)
            with suppress(FileNotFoundError):
                self.files.delete_file(target)
            self.files.move(temporary, target)

    def _put(self, path: str, data: bytes) -> None:
        with self.files.open_output_stream(path) as stream:
            stream.write(data)

    def remove(self, path: str) -> None:
        with self._translated(path, "removed"), suppress(FileNotFoundError):
            self.files.delete_file(self._at(path))

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()

    def has_above(self, name: str) -> bool:
        parent = self.base.rpartition("/")[0]
        places = [place for place in (parent, parent.rpartition("/")[0]) if place]
        with self._translated("", "listed"):
            found = self.files.get_file_info([f"{place}/{name}" for place in places])
        return any(info.type.name == "Directory" for info in found)

    def _at(self, path: str) -> str:
        return f"{self.base}/{path}" if path else self.base

    def _translated(self, path: str, done: str) -> AbstractContextManager[None]:
        self.deadline.check(f"reaching {self.address}")
        return _translated_remote(f"{self.address}/{path} cannot be {done}")


def is_local(address: str) -> bool:
    """True for a folder of this machine: opening it contacts no server."""
    return _SCHEME.fullmatch(_without_file(address)) is None


def _without_file(address: str) -> str:
    return unquote(re.sub(r"^file:(//[^/]*(?=/))?", "", address)) if address.startswith("file:") else address


def open_folder(address: str, context: Context, deadline: Deadline) -> Folder:
    """`path`, `file:///path`, or `scheme://...` of a file system that pyarrow.fs supports."""
    address = _without_file(address)
    matched = _SCHEME.fullmatch(address)
    if matched is None:
        if not address:
            raise Invalid(
                "checkpoint: is not a complete URI; the folder is missing", "write checkpoint:/path/of/the/checkpoint"
            )
        return LocalFolder(Path(address).expanduser().absolute(), deadline)
    scheme, rest = matched.groups()
    if scheme not in _S3 + _OTHERS:
        raise Invalid(
            f"a checkpoint on {scheme}:// is not supported", f"use {', '.join(_S3 + _OTHERS)}, or a local folder"
        )
    if "@" in rest.partition("/")[0] and not scheme.startswith("abfs"):
        raise Invalid(
            "a URI must not contain credentials: it is shown, and stored in plans", "put them into the environment"
        )
    return _open_arrow(scheme, rest.rstrip("/"), address.rstrip("/"), context, deadline)


def _open_arrow(scheme: str, rest: str, address: str, context: Context, deadline: Deadline) -> ArrowFolder:
    try:
        from pyarrow import fs
    except ImportError:
        raise MissingExtra("spark", "pyarrow") from None
    with _translated_remote(f"{address} cannot be opened"):
        if scheme in _S3:
            return ArrowFolder(fs.S3FileSystem(**_s3_options(context, rest.partition("/")[0])), rest, address, deadline)
        files, base = fs.FileSystem.from_uri(address)
        return ArrowFolder(files, base.rstrip("/"), address, deadline)


def _s3_options(context: Context, bucket: str) -> dict[str, str]:
    from pyarrow import fs

    named = {
        "endpoint_override": "endpoint",
        "access_key": "access.key",
        "secret_key": "secret.key",
        "session_token": "session.token",
        "region": "endpoint.region",
    }
    found = {option: context.get(f"spark.spark.hadoop.fs.s3a.{name}") for option, name in named.items()}
    options = {option: value for option, value in found.items() if value}
    if context.get("spark.spark.hadoop.fs.s3a.connection.ssl.enabled") == "false":
        options["scheme"] = "http"
    endpoint = options.get("endpoint_override") or environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    region = options.get("region") or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        options["endpoint_override"] = endpoint  # pyarrow itself does not read it from the environment
        region = region or "us-east-1"
    options["region"] = region or fs.resolve_s3_region(bucket)
    return options


def _make_folders(folder: Path) -> None:
    """Creates missing folders, with the owner of the parent if permitted: an edit by root must not lock out the query."""
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    _give(folder, folder.parent.stat())


def _write_synced(path: Path, data: bytes, model: os.stat_result, *, new: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if new else 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        _give(path, model)
        if not new:
            os.fchmod(descriptor, stat.S_IMODE(model.st_mode))
        os.fsync(descriptor)


def _give(path: Path, model: os.stat_result) -> None:
    own = path.stat()
    if (own.st_uid, own.st_gid) != (model.st_uid, model.st_gid):
        with suppress(PermissionError):  # only root may change the owner
            os.chown(path, model.st_uid, model.st_gid)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Network file systems that cannot lock a folder: only the comparison before the write protects it.
        return error.errno in (errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)
    return True


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except PermissionError:
        raise Invalid(f"{what}: permission denied", "run it as the user of the Spark query") from None
    except OSError as error:
        raise PlayheadError(f"{what}: {error.strerror or error}") from None


@contextmanager
def _translated_remote(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:
        why = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        if _DENIED.search(why):
            raise AccessDenied(f"{what}: {why}", "check the credentials") from None
        hint = _HDFS if "libjvm" in why or "libhdfs" in why else None
        raise Unreachable(f"{what}: {why}", hint) from None
