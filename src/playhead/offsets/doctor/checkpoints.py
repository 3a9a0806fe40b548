"""Checks that Spark starts on a checkpoint: the files that it reads first must exist."""

from collections.abc import Iterator
from shlex import quote

from playhead.offsets.doctor.findings import Finding
from playhead.stores.checkpoint.batches import MissingFile
from playhead.stores.checkpoint.folder import LocalFolder
from playhead.stores.checkpoint.store import SparkCheckpoint


def check_gaps(store: SparkCheckpoint) -> Iterator[Finding]:
    for gap in store.find_missing():
        yield Finding("checkpoint-gap", store.folder.address, gap.why, _restore(store, gap))


def _restore(store: SparkCheckpoint, gap: MissingFile) -> str:
    """From a file of the checkpoint that serves as well, else from the copies of an edit, else from the user's backup."""
    address = store.folder.address
    source = gap.like or store.find_copy(gap.path)
    whole = f"{address}/{source}" if source else f"BACKUP-OF-THE-CHECKPOINT/{gap.path}"
    if not isinstance(store.folder, LocalFolder):
        return f"copy {whole} to {address}/{gap.path}"
    return f"cp {quote(whole)} {quote(f'{address}/{gap.path}')}"
