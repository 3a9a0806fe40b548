"""A bucket of Amazon's S3 or of a server like it. A draft is a file without a name on the local disk; publishing is one PUT, or
one multipart upload that is completed at its end, so an object is never seen in part.

The draft is handed to the client in a single call: Arrow completes an upload even when it is dropped half way, and then no call
may have been left out. Credentials are those of the AWS environment.
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
    """`endpoint` is host:port of a server, empty for Amazon's own."""

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


def _content(file: BinaryIO, size: int) -> pa.Buffer:
    return pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")


def translated(what: str, error: Exception) -> PlayheadError:
    """Arrow tells an answer of S3 by its name inside of the text."""
    said = str(error)
    if "NO_SUCH_BUCKET" in said:
        return NotFound("bucket", what.split("/", maxsplit=1)[0], hint="create it, or mend s3.bucket.name")
    if any(
        word in said for word in ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "credentials")
    ):
        return AccessDenied(f"S3 does not let us write {what}", "look at AWS_ACCESS_KEY_ID, AWS_PROFILE and the policy")
    return Unreachable(f"{what} could not be written: {said[:300]}", "look at store.url, s3.region and the network")
