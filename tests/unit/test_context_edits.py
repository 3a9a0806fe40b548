"""Edits of playhead.toml: what the user wrote stays, and a file is whole or untouched."""

import os
import tomllib
from pathlib import Path

import pytest

from playhead.config import open_context, save_context, use_context
from playhead.config.contexts import user_file
from playhead.errors import ConfigInvalid, Invalid

TEXT = """\
# my clusters

current = "a"  # for now

# the first
[contexts.a]  # a
connect = "http://a"  # by hand
[contexts.a.kafka]
"client.id" = 'me'

# the second
[contexts.b]
connect    =    "http://b"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("PLAYHEAD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    user_file().parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def comments(text: str) -> list[str]:
    return [line[line.index("#") :] for line in text.splitlines() if "#" in line]


def test_using_another_context_changes_one_word_of_the_file():
    user_file().write_text(TEXT)
    assert use_context("b") == user_file()
    assert user_file().read_text() == TEXT.replace('current = "a"', 'current = "b"')
    assert open_context().name == "b"


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_saving_a_context_keeps_comments_and_the_other_contexts(name):
    user_file().write_text(TEXT)
    save_context(name, {"connect": "http://new", "timeout": "5s"})
    text = user_file().read_text()
    kept = [comment for comment in comments(TEXT) if name != "a" or comment != "# by hand"]
    assert [comment for comment in kept if comment not in comments(text)] == []
    read, before = tomllib.loads(text), tomllib.loads(TEXT)["contexts"]
    assert read == {"current": name, "contexts": {**before, name: {"connect": "http://new", "timeout": "5s"}}}
    assert text.index("# the second") < text.index("[contexts.b]")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a title",
        "# title\n\n[contexts.a]\ntimeout = 1\n",
        "# of a\n[contexts.a]\ntimeout = 1\n",
        "[contexts.a]\ntimeout = 1\n",
        "[contexts]\na = {timeout = 1}\n[contexts.b]\ntimeout = 2\n",
        "contexts.a.timeout = 1\ncontexts.b.timeout = 2\n",
        "contexts = {a = {timeout = 1}}\n",
        '[contexts.a.kafka]\n"x" = "1"\n',
        "[contexts.a]\r\ntimeout = 1\r\n",
    ],
)
def test_the_current_context_never_ends_up_inside_a_table(text, monkeypatch):
    """Whatever the file looks like: it says what was meant afterwards, or it was refused and is as it was."""
    user_file().write_text(text, newline="")
    before = tomllib.loads(text.replace("\r\n", "\n"))
    try:
        save_context("n", {"connect": "http://n"})
        expected = {"current": "n", "contexts": {**before.get("contexts", {}), "n": {"connect": "http://n"}}}
    except Invalid as error:
        assert text.startswith("contexts")
        assert "[contexts.NAME]" in (error.hint or "")
        expected = before
    assert tomllib.loads(user_file().read_text()) == expected
    assert comments(user_file().read_text()) == comments(text)
    if "a" in before.get("contexts", {}):
        use_context("a")
        assert tomllib.loads(user_file().read_text()) == {**expected, "current": "a"}


def test_a_comment_of_the_first_table_stays_with_it():
    user_file().write_text("# title\n\n# of a\n[contexts.a]\ntimeout = 1\n")
    use_context("a")
    assert user_file().read_text() == '# title\n\ncurrent = "a"\n\n# of a\n[contexts.a]\ntimeout = 1\n'


def test_the_file_that_decides_is_the_one_that_is_edited(home, monkeypatch):
    nearer = home / "playhead.toml"
    nearer.write_text('current = "p"\n[contexts.p]\n')
    user_file().write_text("[contexts.u]\n")
    assert use_context("u") == nearer
    assert open_context().name == "u"
    nearer.write_text("[contexts.p]\n")
    assert use_context("p") == user_file()
    assert open_context().name == "p"


def test_playhead_config_is_edited_even_when_it_names_no_current_one(home, monkeypatch):
    only = home / "only.toml"
    only.write_text("[contexts.x]\n")
    monkeypatch.setenv("PLAYHEAD_CONFIG", str(only))
    assert use_context("x") == only
    assert open_context().name == "x"
    assert save_context("y", {"timeout": "1s"}) == only
    assert not user_file().exists()


def test_an_unknown_context_is_answered_with_the_right_spelling_and_nothing_is_written():
    user_file().write_text(TEXT.replace("contexts.b", "contexts.staging"))
    before = user_file().read_text()
    with pytest.raises(Invalid, match="context 'stagin' does not exist") as caught:
        use_context("stagin")
    assert caught.value.hint == "did you mean staging?"
    assert user_file().read_text() == before


def test_a_file_that_cannot_be_read_is_not_overwritten():
    user_file().write_text("[contexts.a\n")
    with pytest.raises(ConfigInvalid):
        save_context("b", {"timeout": "1s"})
    assert user_file().read_text() == "[contexts.a\n"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(monkeypatch):
    user_file().write_text(TEXT)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        use_context("b")
    assert user_file().read_text() == TEXT
    assert list(user_file().parent.iterdir()) == [user_file()]


def test_the_new_file_takes_the_place_of_the_old_in_one_step(monkeypatch):
    """At the moment of the swap the old file is still whole and the new one is complete beside it."""
    user_file().write_text(TEXT)
    seen: list[tuple[str, str]] = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.append((target.read_text(), self.read_text()))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    use_context("b")
    assert seen == [(TEXT, TEXT.replace('current = "a"', 'current = "b"'))]


def test_a_new_file_is_private_and_an_old_one_keeps_its_mode():
    save_context("a", {"connect-password": "x"})
    assert user_file().stat().st_mode & 0o777 == 0o600
    user_file().chmod(0o640)
    save_context("b", {})
    assert user_file().stat().st_mode & 0o777 == 0o640


def test_a_link_into_another_folder_stays_a_link(home):
    real = home / "dotfiles.toml"
    real.write_text(TEXT)
    user_file().symlink_to(real)
    use_context("b")
    assert user_file().is_symlink()
    assert tomllib.loads(real.read_text())["current"] == "b"
