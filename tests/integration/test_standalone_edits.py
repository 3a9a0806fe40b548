"""The offset file of a real standalone worker: edited while it is down, resumed from, restored byte for byte."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from contract.workers import ask
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic
from playhead.lab import LabOptions
from playhead.model import Deadline

TEXT = "org.apache.kafka.connect.storage.StringConverter"


class Standalone:
    """A standalone worker with one file source, which is made anew after every start: this worker keeps no connectors."""

    def __init__(self, lab, folder: Path, deadline: Deadline) -> None:
        self.lab = lab
        self.deadline = deadline
        self.lines = folder / "lines.txt"
        self.lines.write_text("a\nb\nc\n")
        self.config = lab.folder / "standalone" / "worker.properties"
        properties = dict(line.split("=", 1) for line in self.config.read_text().splitlines() if "=" in line)
        self.file = Path(properties["offset.storage.file.filename"])
        with Admin(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}), deadline) as admin:
            create_topic(admin, "lines", 1, deadline)

    def run_source(self) -> None:
        config = {
            "connector.class": "FileStreamSource",
            "file": str(self.lines),
            "topic": "lines",
            "value.converter": TEXT,
        }
        status, said = ask(self.lab.standalone_url + "/connectors", "POST", {"name": "files", "config": config})
        assert status == 201, said

    def at(self, position: int) -> None:
        wanted = {"offsets": [{"partition": {"filename": str(self.lines)}, "offset": {"position": position}}]}
        url = self.lab.standalone_url + "/connectors/files/offsets"
        self.deadline.wait_for(lambda: ask(url)[1] == wanted, f"the source at {position}")

    def records(self) -> list[str]:
        shown: str = self.lab.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", self.lab.bootstrap_servers, "--topic", "lines", "--from-beginning"),
            *("--timeout-ms", "2500"),
        )
        return shown.split()

    def records_if(self, count: int) -> list[str] | None:
        """Those of one reading, if it showed so many: the console consumer may give up before it has begun."""
        found = self.records()
        return found if len(found) >= count else None


@pytest.fixture(scope="module")
def standalone(make_lab, tmp_path_factory):
    lab = make_lab(LabOptions(workers=0, standalone=True, postgres=False))
    made = Standalone(lab, tmp_path_factory.mktemp("standalone"), Deadline(120))
    made.run_source()
    made.at(6)
    made.deadline.wait_for(made.file.exists, "the offset file")
    return made


@pytest.fixture
def there(standalone):
    return ("--worker-config", str(standalone.config))


def test_a_running_worker_is_refused_and_its_file_untouched(standalone, playhead, there):
    before = standalone.file.read_bytes()
    ran = playhead("offsets", "set", "files", "position=2", "--execute", "--worker-is-down", *there).exits(4)
    assert "a standalone worker with this file runs" in ran.out
    words = ["--config", str(standalone.config), "--import", "-"]
    document = json.dumps({"files": [{"partition": {"filename": str(standalone.lines)}, "offset": {"position": 2}}]})
    done = subprocess.run(
        [str(Path(sys.executable).parent / "connect-offsets"), *words],
        input=document,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 4
    assert "a standalone worker with this file runs" in done.stdout
    assert standalone.file.read_bytes() == before


def test_a_worker_that_only_answers_no_more_is_not_called_down(standalone, playhead, there):
    """SIGSTOP: it holds its offsets in memory and would write them when it wakes."""
    standalone.lab.pause("standalone")
    try:
        playhead("offsets", "set", "files", "position=2", "--execute", *there).exits(4)
    finally:
        standalone.lab.resume("standalone")


def test_the_worker_resumes_from_the_edited_file_and_undo_restores_it_byte_for_byte(standalone, playhead, there):
    standalone.lab.stop("standalone")
    written_by_java = standalone.file.read_bytes()
    mode = standalone.file.stat().st_mode
    playhead("offsets", "set", "files", "position=2", "--execute", *there).exits(0)
    assert standalone.file.stat().st_mode == mode
    playhead("offsets", "undo", "--execute", *there).exits(0)
    assert standalone.file.read_bytes() == written_by_java
    playhead("offsets", "delete", "files", "--execute", *there).exits(0)
    playhead("offsets", "undo", "--execute", *there).exits(0)
    assert standalone.file.read_bytes() == written_by_java
    playhead("offsets", "set", "files", "position=4", "--execute", *there).exits(0)
    shown = playhead("offsets", "list", "-o", "json", *there).exits(0).out
    assert [row["offset"] for row in json.loads(shown)] == [{"position": 4}]
    standalone.lab.start("standalone")
    standalone.run_source()
    standalone.at(6)
    seen = standalone.deadline.wait_for(lambda: standalone.records_if(4), "the line coming again")
    assert seen == ["a", "b", "c", "c"]


@pytest.mark.parametrize("damage", ["truncated", "empty", "zeroed tail"])
def test_a_damaged_file_is_corrupt_for_every_command_and_stays_as_it_is(standalone, playhead, tmp_path, damage):
    whole = standalone.file.read_bytes()
    bytes_ = {"truncated": whole[:-5], "empty": b"", "zeroed tail": whole[:-20] + bytes(20)}[damage]
    file = tmp_path / "damaged.offsets"
    file.write_bytes(bytes_)
    store = ("--store", f"file:{file}", "--worker-is-down")
    for words in (
        ["list"],
        ["set", "files", "position=1", "--execute", "--worker-is-down"],
        ["delete", "files", "--execute"],
    ):
        more = store[:2]
        ran = playhead("offsets", *words, *more).exits(1)
        assert f"the offset file {file} is corrupt at byte" in ran.err
    assert file.read_bytes() == bytes_


def test_a_file_with_an_unknown_worker_needs_a_flag(playhead, tmp_path):
    file = tmp_path / "new.offsets"
    words = [
        "offsets",
        "set",
        "c",
        "position=1",
        "--partition",
        "filename=/x",
        "--create",
        "--store",
        f"file:{file}",
        "--execute",
    ]
    ran = playhead(*words).exits(4)
    assert "--worker-is-down" in ran.out
    assert not file.exists()
    playhead(*words, "--worker-is-down").exits(0)
    assert (
        json.loads(playhead("offsets", "list", "--store", f"file:{file}", "-o", "json").exits(0).out)[0]["owner"] == "c"
    )
