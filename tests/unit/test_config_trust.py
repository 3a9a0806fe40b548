"""A `playhead.toml` that another user can have written is not used: it could send the user's secrets to any server."""

import grp
import os
import pwd
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from playhead.broker import _session
from playhead.checkup import check_files
from playhead.config import load_files, open_context, use_context
from playhead.config.contexts import search_files, user_file
from playhead.config.trust import distrust
from playhead.errors import ConfigInvalid, Invalid

SOME_USER = 54321
SHOP = '[contexts.shop]\nconnect = "http://foreign:8083"\nconnect-password = "${file:/etc/shop/secret}"\n'
OWN = '[contexts.shop]\nconnect = "http://own:8083"\n'


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a `playhead.toml`; the working directory is below it."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    folder = tmp_path / "shared"
    (folder / "work").mkdir(parents=True)
    (folder / "playhead.toml").write_text(SHOP)
    monkeypatch.chdir(folder / "work")
    return folder


@pytest.fixture
def foreign(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Gives a path to another user. Only root can; anyone else becomes another user than the owner of all paths."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, SOME_USER, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: SOME_USER)

    return give


def own_file(text: str) -> Path:
    user_file().parent.mkdir(parents=True)
    user_file().write_text(text)
    return user_file()


def test_a_file_of_the_user_in_a_folder_of_the_user_is_used(shared):
    assert distrust(shared / "playhead.toml") is None
    assert open_context("shop").connect_urls == ["http://foreign:8083"]
    assert open_context("shop").notes == ()


def test_a_file_of_another_user_is_ignored_and_named(shared, foreign):
    foreign(shared / "playhead.toml")
    [note] = open_context().notes
    assert note.startswith(f"{shared / 'playhead.toml'} is ignored: it")
    assert "belongs to" in note
    assert load_files() == []


def test_a_file_in_a_folder_of_another_user_is_ignored(shared, foreign):
    foreign(shared)
    [note] = search_files().ignored
    assert note.startswith(f"{shared / 'playhead.toml'} is ignored: its folder belongs to ")


@pytest.mark.parametrize(("which", "named"), [("playhead.toml", "it"), (".", "its folder")])
@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777])
def test_what_every_user_may_write_is_ignored(shared, which, named, mode):
    (shared / which).chmod(mode)
    assert distrust(shared / "playhead.toml") == f"{named} can be written by every user"


def test_a_group_of_the_user_alone_may_write_and_one_with_others_may_not(shared, monkeypatch):
    (shared / "playhead.toml").chmod(0o664)
    me = pwd.getpwuid(os.geteuid())
    members: list[str] = []
    group = grp.struct_group(("crew", "x", os.getegid(), members))
    monkeypatch.setattr(grp, "getgrgid", lambda _: group)
    monkeypatch.setattr(pwd, "getpwall", lambda: [me])
    assert distrust(shared / "playhead.toml") is None
    members.append("mallory")
    assert distrust(shared / "playhead.toml") == "it can be written by the group crew"
    members.clear()
    mallory = pwd.struct_passwd(("mallory", "x", SOME_USER, os.getegid(), "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [me, mallory])
    assert distrust(shared / "playhead.toml") == "it can be written by the group crew"


def test_the_target_of_a_link_is_checked_too(shared, tmp_path):
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    (shared / "playhead.toml").rename(open_to_all / "real.toml")
    (shared / "playhead.toml").symlink_to(open_to_all / "real.toml")
    assert distrust(shared / "playhead.toml") is None
    open_to_all.chmod(0o777)
    assert distrust(shared / "playhead.toml") == "its folder can be written by every user"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_by_sudo_uses_the_file_of_the_user_who_called_it(shared, monkeypatch):
    os.chown(shared / "playhead.toml", SOME_USER, -1)
    monkeypatch.setenv("SUDO_UID", str(SOME_USER))
    assert distrust(shared / "playhead.toml") is None
    monkeypatch.setenv("SUDO_UID", str(SOME_USER + 1))
    assert distrust(shared / "playhead.toml") is not None


def test_the_search_goes_on_above_an_ignored_file(shared, tmp_path):
    (tmp_path / "playhead.toml").write_text(OWN)
    (shared / "playhead.toml").chmod(0o666)
    context = open_context("shop")
    assert context.connect_urls == ["http://own:8083"]
    assert len(context.notes) == 1


def test_a_context_that_is_only_in_an_ignored_file_is_an_error_that_names_the_file(shared, playhead):
    shared.chmod(0o777)
    with pytest.raises(Invalid, match=r"^context 'shop' does not exist$") as caught:
        open_context("shop")
    assert f"{shared / 'playhead.toml'} is ignored: its folder can be written by every user" in (
        caught.value.hint or ""
    )
    with pytest.raises(Invalid) as caught:
        use_context("shop")
    assert "is ignored" in (caught.value.hint or "")
    ran = playhead("connectors", "list", "--context", "shop", cwd=Path.cwd()).exits(2)
    assert str(shared / "playhead.toml") in ran.err


def test_a_command_that_goes_on_without_the_file_says_so_once(shared, playhead):
    own_file(f'current = "shop"\n{OWN}')
    shared.chmod(0o777)
    ran = playhead("config", "view", cwd=Path.cwd()).exits(0)
    assert "http://own:8083" in ran.out
    assert ran.err.count(f"note: {shared / 'playhead.toml'} is ignored") == 1
    for words in (["config", "use-context", "shop"], ["config", "validate"], ["config", "contexts"]):
        assert playhead(*words, cwd=Path.cwd()).exits(0).err.count("is ignored") == 1


def test_a_file_that_is_named_is_trusted_as_given(shared, monkeypatch):
    shared.chmod(0o777)
    monkeypatch.setenv("PLAYHEAD_CONFIG", str(shared / "playhead.toml"))
    context = open_context("shop")
    assert context.connect_urls == ["http://foreign:8083"]
    assert context.notes == ()


def test_the_users_own_file_is_used_from_within_its_folder(monkeypatch):
    path = own_file(OWN)
    path.chmod(0o666)
    monkeypatch.chdir(path.parent)
    assert open_context("shop").connect_urls == ["http://own:8083"]
    assert open_context("shop").notes == ()


def test_a_context_that_hides_the_users_own_one_says_so(shared):
    own = own_file(f'{OWN}[contexts.other]\nconnect = "http://other:8083"\n')
    context = open_context("shop")
    assert context.connect_urls == ["http://foreign:8083"]
    assert context.notes == (
        f"context 'shop' is that of {shared / 'playhead.toml'}, not the one of that name in {own}",
    )
    assert open_context("other").notes == ()


def test_a_caller_in_python_is_warned(shared):
    own_file(OWN)
    with pytest.warns(UserWarning, match="context 'shop' is that of"), pytest.raises(Invalid), _session("shop"):
        pass  # the context names no broker


def test_references_of_a_context_that_is_not_in_use_are_not_resolved(shared, monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    (shared / "playhead.toml").write_text(
        '[contexts.a]\nconnect-password = "${env:NOT_SET}"\n[contexts.b]\nconnect = "http://b"\n'
    )
    assert open_context("b").connect_urls == ["http://b"]
    with pytest.raises(Invalid, match="NOT_SET"):
        open_context("a").get("connect-password")


def test_validating_contexts_connects_to_none_of_their_brokers(shared):
    with socket.create_server(("127.0.0.1", 0)) as broker:
        broker.settimeout(1.5)
        (shared / "playhead.toml").write_text(
            f'[contexts.a]\nbootstrap-servers = "127.0.0.1:{broker.getsockname()[1]}"\n'
        )
        assert check_files(None).files == [str(shared / "playhead.toml")]
        with pytest.raises(TimeoutError):
            broker.accept()


def test_a_fault_of_a_path_does_not_show_what_its_reference_holds(shared, tmp_path):
    (tmp_path / "secret").write_text("canary-71b3")
    (shared / "playhead.toml").write_text(f'[contexts.a]\nworker-config = "${{file:{tmp_path / "secret"}}}"\n')
    with pytest.raises(ConfigInvalid) as caught:
        check_files(None)
    assert "canary-71b3" not in caught.value.what
    assert "is not a file" in caught.value.what
