"""A bucket of Amazon S3 or of a compatible server. A draft is an unnamed file on the local disk; publishing is one PUT, or one
multipart upload that is completed at its end, so a partial object is never visible.

The draft is passed to the client in a single call: Arrow completes an upload even if its stream is dropped halfway, which after
several calls would publish a partial object. Credentials are those of the AWS environment.
"""

import mmap
import tempfile
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa
from pyarrow import fs

from playhead.errors import AccessDenied, NotFound, PlayheadError, Unreachable
from playhead.pipeline.deliver.files.storage import DraftFile


@dataclass(frozen=True, slots=True)
class S3Storage:
    """`endpoint`: host:port of a server, empty for Amazon S3."""

    bucket: str
    region: str
    endpoint: str = ""
    scheme: str = "https"
    retries: int = 3

    def connect(self) -> "OpenBucket":
        try:
            system = fs.S3FileSystem(
                region=self.region,
                scheme=self.scheme,
                endpoint_override=self.endpoint or None,
                background_writes=False,  # parts go out one after the other: memory stays small
                allow_delayed_open=True,  # a small object is one PUT
                retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=self.retries + 1),
            )
        except (OSError, ValueError) as error:
            raise translated(self.bucket, error) from None
        return OpenBucket(system, self.bucket)


@dataclass(frozen=True, slots=True)
class SpooledDraft:
    name: str
    file: BinaryIO

    def discard(self) -> None:
        self.file.close()


@dataclass(frozen=True, slots=True)
class OpenBucket:
    """Any file system of Arrow; `root` is the bucket."""

    system: Any
    root: str

    def draft(self, name: str) -> DraftFile:
        return SpooledDraft(name, cast(BinaryIO, tempfile.TemporaryFile()))

    def publish(self, draft: DraftFile) -> int:
        draft.file.flush()
        size = draft.file.tell()
        content = _content(draft.file, size)
        try:
            stream = self.system.open_output_stream(f"{self.root}/{draft.name}", compression=None)
            stream.write(content)
            stream.close()
        except OSError as error:
            raise translated(f"{self.root}/{draft.name}", error) from None
        draft.file.close()
        return size

    def remove(self, name: str) -> None:
        try:
            self.system.delete_file(f"{self.root}/{name}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise translated(f"{self.root}/{name}", error) from None


def _content(file: BinaryIO, size: int) -> pa.Buffer:
    return pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")


def translated(what: str, error: Exception) -> PlayheadError:
    """Arrow has the name of the S3 error only in its text."""
    text = str(error)
    if "NO_SUCH_BUCKET" in text:
        return NotFound("bucket", what.split("/", maxsplit=1)[0], hint="create it, or correct s3.bucket.name")
    if any(
        name in text for name in ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "credentials")
    ):
        return AccessDenied(f"S3 denies writing {what}", "check AWS_ACCESS_KEY_ID, AWS_PROFILE and the policy")
    return Unreachable(f"{what} could not be written: {text[:300]}", "check store.url, s3.region and the network")
