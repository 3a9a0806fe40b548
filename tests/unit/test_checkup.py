"""`config validate`: every fault with its line, at once."""

from pathlib import Path

import pytest

from playhead.checkup import check_files
from playhead.errors import ConfigInvalid


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def faults_of(text: str) -> list[str]:
    Path("playhead.toml").write_text(text)
    with pytest.raises(ConfigInvalid) as caught:
        check_files(None)
    return [f"{fault.line}: {fault.what}" for fault in caught.value.faults]


def test_every_fault_is_reported_with_its_line():
    found = faults_of(
        """current = "nowhere"
[contexts.a]
worker-config = "${env:NOT_THERE}"
connect-ca = "no-ca.pem"
timout = "3s"
[contexts.b]
bootstrap-servers = "b:1"
connect-key = "playhead.toml"
[contexts.c]
bootstrap-servers = "c:1"
[contexts.c.kafka]
"no.such.setting" = "1"
"""
    )
    lines = sorted(int(line.split(":")[0]) for line in found if line[0].isdigit())
    assert lines == [1, 3, 4, 5, 8]
    assert any("no.such.setting" in line for line in found)
    assert any("timeout" in line for line in found)


def test_faults_inside_a_java_file_carry_its_own_line():
    Path("w.properties").write_text("bootstrap.servers=a:1\n# x\nsasl.jaas.config=evil.Module required;\n")
    [fault] = faults_of('[contexts.a]\nworker-config = "w.properties"\n')
    assert fault.startswith("3: the login module evil.Module")


def test_what_is_allowed_but_unwise_is_noted():
    Path("playhead.toml").write_text(
        '[contexts.a]\nbootstrap-servers = "a:1"\n[contexts.a.kafka]\n"security.protocol" = "SASL_PLAINTEXT"\n'
        '"sasl.mechanism" = "PLAIN"\n"sasl.username" = "u"\n"sasl.password" = "p"\n'
    )
    checked = check_files(None)
    assert checked.files == [str(Path.cwd() / "playhead.toml")]
    assert [note for note in checked.notes if "without TLS" in note]


def test_the_journal_is_a_folder_that_may_not_exist_yet():
    Path("playhead.toml").write_text('[contexts.a]\nbootstrap-servers = "a:1"\njournal = "changes"\n')
    assert check_files(None).files == [str(Path.cwd() / "playhead.toml")]
    Path("changes").mkdir()
    assert check_files(None).files == [str(Path.cwd() / "playhead.toml")]


def test_a_journal_that_is_a_file_is_a_fault():
    [fault] = faults_of('[contexts.a]\nbootstrap-servers = "a:1"\njournal = "playhead.toml"\n')
    assert fault == f"3: journal: {Path.cwd() / 'playhead.toml'} is not a folder"
