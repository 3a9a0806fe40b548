"""Where a checkpoint lies: addresses, missing libraries, remote file systems and folders that may not be read."""

import os
import subprocess
import sys

import pytest

from contract.checkpoints import laid, local, usual  # noqa: F401
from playhead.config import Context
from playhead.errors import AccessDenied, Invalid, MissingExtra, TimedOut, Unreachable
from playhead.model import Deadline
from playhead.stores import Access
from playhead.stores.checkpoint.folder import ArrowFolder, open_folder
from playhead.stores.checkpoint.store import SparkCheckpoint
from playhead.stores.open import open_store


def test_a_checkpoint_is_opened_by_its_uri_and_the_uri_opens_it_again(usual, monkeypatch):
    access = Access(Context(None), Deadline(10))
    monkeypatch.chdir(usual.root.parent)
    for uri in (
        f"checkpoint:{usual.root}",
        "checkpoint:checkpoint",
        f"checkpoint:file://{usual.root}",
        f"checkpoint:file:{usual.root}",
    ):
        store = open_store(uri, access)
        assert store.uri == f"checkpoint:{usual.root}"
        assert len(store.snapshot().entries) == 4
        assert (store.capabilities.write, store.capabilities.history, store.capabilities.atomic) == (True, True, True)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("checkpoint:", "the folder is missing"),
        ("checkpoint:ftp://host/x", "is not supported"),
        ("checkpoint:s3://key:secret@bucket/x", "must not contain credentials"),
    ],
)
def test_a_uri_that_leads_nowhere_is_refused(uri, why):
    with pytest.raises(Invalid, match=why) as caught:
        open_store(uri, Access(Context(None), Deadline(10)))
    assert "secret@" not in str(caught.value)


def test_without_pyarrow_a_remote_checkpoint_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra) as caught:
        open_folder("s3://bucket/x", Context(None), Deadline(10))
    assert caught.value.hint == "pip install 'playhead[spark]'"


def test_a_local_checkpoint_needs_no_pyarrow(usual):
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from playhead.config import Context\nfrom playhead.model import Deadline\nfrom playhead.stores import Access\n"
        "from playhead.stores.open import open_store\n"
        f"print(len(open_store('checkpoint:{usual.root}', Access(Context(None), Deadline(9))).snapshot().entries))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "4\n"


class Broken:
    """A file system of pyarrow that answers with an error."""

    type_name = "s3"

    def __init__(self, message):
        self.message = message

    def get_file_info(self, _selector):
        raise OSError(self.message)


def test_faults_of_a_remote_file_system_are_reported_by_kind():
    def read(message):
        return SparkCheckpoint(ArrowFolder(Broken(message), "b/c", "s3://b/c", Deadline(10)), Deadline(10)).snapshot()

    with pytest.raises(AccessDenied, match="s3://b/c/commits cannot be listed"):
        read("When listing objects: AWS Error ACCESS_DENIED during ListObjectsV2")
    with pytest.raises(Unreachable, match="curlCode: 7"):
        read("AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 7, Couldn't connect to server")
    with pytest.raises(TimedOut):
        SparkCheckpoint(ArrowFolder(Broken(""), "b/c", "s3://b/c", Deadline(0)), Deadline(0)).snapshot()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_said(usual):
    (usual.root / "offsets").chmod(0)
    with pytest.raises(Invalid, match="permission denied"):
        local(usual.root).snapshot()
    (usual.root / "offsets").chmod(0o755)
