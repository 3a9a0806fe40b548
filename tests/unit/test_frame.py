"""The frame every command stands in: exit codes, streams, errors, completion."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from playhead import errors
from playhead.cli.frame import context_options, debug_option, pass_face, run_command
from playhead.cli.ledgers import ledger_option
from playhead.cli.main import COMMANDS, root

PROGRAM = str(Path(sys.executable).parent / "playhead")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.PlayheadError("no"), 1),
        (errors.NotFound("topic", "x"), 1),
        (errors.Invalid("bad"), 2),
        (errors.Unreachable("gone"), 3),
        (errors.Refused("guarded"), 4),
        (errors.OutcomeUnknown("who knows"), 5),
        (KeyboardInterrupt(), 130),
        (click.UsageError("bad flag"), 2),
        (RuntimeError("a bug"), 1),
    ],
)
def test_every_error_ends_in_its_exit_code_and_one_line(error, code, capsys, monkeypatch):
    @click.command()
    def failing():
        raise error

    monkeypatch.setattr(sys, "argv", ["failing"])
    with pytest.raises(SystemExit) as caught:
        run_command(failing, "failing")
    assert caught.value.code == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert captured.err.strip()


def test_a_hint_follows_on_a_line_of_its_own(capsys, monkeypatch):
    @click.command()
    def failing():
        raise errors.Refused("it is RUNNING", "stop it first")

    monkeypatch.setattr(sys, "argv", ["failing"])
    with pytest.raises(SystemExit):
        run_command(failing, "failing")
    assert capsys.readouterr().err == "error: it is RUNNING\n  stop it first\n"


def test_control_characters_of_an_error_do_not_reach_the_terminal(capsys, monkeypatch):
    @click.command()
    def failing():
        raise errors.NotFound("connector", "evil\x1b[2J\u202ename")

    monkeypatch.setattr(sys, "argv", ["failing"])
    with pytest.raises(SystemExit):
        run_command(failing, "failing")
    assert "\x1b" not in (shown := capsys.readouterr().err)
    assert "\u202e" not in shown
    assert "evil" in shown


def test_the_trace_is_shown_only_on_request(playhead, tmp_path):
    words = ["config", "view", "--context", "nowhere"]
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    plain = playhead(*words, env=home, cwd=tmp_path).exits(2)
    assert "Traceback" not in plain.err
    assert "Traceback" in playhead(*words, "--debug", env=home, cwd=tmp_path).exits(2).err


@pytest.mark.parametrize("kind", [errors.Rejected, RuntimeError, OSError])
def test_a_trace_shows_neither_terminal_escapes_nor_secrets(kind, capsys, monkeypatch):
    said = f"\x1b]0;owned\x07 password={'hunter2'}"

    @click.command()
    @debug_option
    def failing():
        try:
            raise ValueError(said)
        except ValueError as error:
            raise kind(f"evil\x1b[2J {said}") from error

    monkeypatch.setattr(sys, "argv", ["failing", "--debug"])
    with pytest.raises(SystemExit):
        run_command(failing, "failing")
    trace, _, _ = capsys.readouterr().err.rpartition("error: ")
    assert "\\x1b]0;owned\\x07 password=***" in trace
    assert "hunter2" not in trace
    assert not {"\x1b", "\x07"} & set(trace)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_says_what_the_list_says(command, playhead):
    shown = playhead(command, "--help").exits(0).out
    assert shown.startswith(f"Usage: playhead {command}")


def test_help_names_every_noun_without_importing_it(playhead):
    shown = playhead("--help").exits(0).out
    assert all(f"\n  {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "near"), [(["conectors"], "connectors"), (["lab", "statsu"], "status"), (["config", "vew"], "view")]
)
def test_a_mistyped_command_is_answered_with_the_right_one(playhead, words, near):
    ran = playhead(*words).exits(2)
    assert f"did you mean {near}" in ran.err
    assert ran.out == ""


def test_describe_is_show(playhead):
    assert "Show one connector" in playhead("connectors", "describe", "--help").exits(0).out


def test_common_options_are_taken_before_and_after_the_command_the_later_wins(playhead, tmp_path):
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    before = playhead("-b", "one:1", "-o", "json", "config", "view", env=env, cwd=tmp_path).exits(0)
    assert {"key": "bootstrap-servers", "value": "one:1", "origin": "--bootstrap-server"} in json.loads(before.out)
    both = playhead("-b", "one:1", "config", "view", "-b", "two:2", "-o", "csv", env=env, cwd=tmp_path).exits(0)
    assert "bootstrap-servers,two:2,--bootstrap-server" in both.out


def test_an_override_without_a_value_is_a_usage_error(playhead):
    assert "key=value" in playhead("config", "view", "-X", "nonsense").exits(2).err


def test_a_secret_override_is_not_shown(playhead, tmp_path):
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    shown = playhead("config", "view", "-X", "sasl.password=canary-552", "-o", "json", env=env, cwd=tmp_path).exits(0)
    assert "canary-552" not in shown.out + shown.err
    assert "***" in shown.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(playhead, shell):
    script = playhead("completion", shell).exits(0).out
    assert "_PLAYHEAD_COMPLETE" in script
    if shell == "bash":
        subprocess.run(["bash", "-n", "-c", script], check=True)


def test_completion_offers_commands_formats_and_contexts(playhead, tmp_path):
    (tmp_path / "playhead.toml").write_text('[contexts.alpha]\nconnect = "http://a:1"\n[contexts.beta]\n')

    def complete(*words, at):
        env = {"_PLAYHEAD_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(at)}
        lines = playhead(env={**env, "XDG_CONFIG_HOME": str(tmp_path)}, cwd=tmp_path).exits(0).out.split()
        return [line.partition(",")[2] for line in lines]

    assert "connectors" in complete("playhead", "con", at=1)
    assert complete("playhead", "config", "use-context", "", at=3) == ["alpha", "beta"]
    assert complete("playhead", "config", "view", "--context", "b", at=4) == ["beta"]
    assert "yaml" in complete("playhead", "config", "view", "-o", "", at=4)


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    (tmp_path / "playhead.toml").write_text(
        "[contexts.x.kafka]\n" + "".join(f'"key.{n}" = "v"\n' for n in range(20000))
    )
    pipeline = f"cd {tmp_path}; {PROGRAM} config view --context x -o csv | head -n 1"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, check=True)
    assert done.stdout == "key,value,origin\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["connectors", "--help"], ["config", "view"], ["completion", "bash"]]
)
def test_a_reader_that_is_gone_from_the_start_ends_a_command_as_sigpipe_would(words, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [PROGRAM, *words], stdout=writer, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_ctrl_c_ends_with_130_and_a_word(tmp_path):
    """The process is stuck in a first contact with a listener that never answers."""
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [PROGRAM, "info", "-b", address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
        silent.settimeout(30)
        accepted, _ = silent.accept()  # it has come so far
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        accepted.close()
    assert process.returncode == 130, err
    assert err.strip().splitlines()[-1] == "interrupted"
    assert out == ""


def test_every_leaf_command_documents_its_arguments_and_options():
    """No option without help: walked over the whole tree."""
    missing: list[str] = []

    def walk(command, path):
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        missing.extend(f"{path} {option.opts[0]}" for option in options if not option.help and not option.hidden)
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                assert child.help, f"{path} {name} has no help"
                walk(child, f"{path} {name}")

    walk(root, "playhead")
    assert missing == []


@pytest.mark.parametrize("words", [[], ["lab"], ["config"]])
def test_a_group_without_a_command_shows_its_help_once(playhead, words):
    ran = playhead(*words).exits(2)
    assert ran.err.count("Usage:") == 1
    assert "Commands:" in ran.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["config", "view", "-b", ""], "it is empty"),
        (["connectors", "show", "", "--connect", "http://127.0.0.1:1"], "a name must not be empty"),
        (["connectors", "list", "--connect", "http://a..b:80"], "is not a Connect URL"),
        (["lab", "logs", "broker-1", "-n", "0"], "Invalid value"),
    ],
)
def test_nonsense_is_a_usage_error_in_words(playhead, words, expected):
    ran = playhead(*words).exits(2)
    assert expected in ran.err
    assert "bug" not in ran.err


def test_places_that_cannot_be_had_are_named_and_not_called_a_bug(playhead, tmp_path):
    (tmp_path / "file").write_text("")
    for words in (["lab", "up", "--dir", str(tmp_path / "file" / "x")], ["lab", "up", "--dir", "/proc/nope"]):
        ran = playhead(*words)
        assert ran.code in (1, 2)
        assert "bug" not in ran.err and "Traceback" not in ran.err


def test_a_full_or_closed_stdout_is_an_error_without_a_trace():
    for command in (f"{PROGRAM} --version > /dev/full", f"{PROGRAM} config view -o json > /dev/full"):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr and "No space left" in done.stderr


def test_a_user_without_a_home_can_still_ask(monkeypatch, tmp_path):
    from playhead.config import open_context

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CONFIG_HOME")

    def no_home(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    assert open_context().name is None


def test_a_trace_is_shown_line_by_line():
    from playhead.render import Details, render

    text = render(Details({"name": "x", "trace": "Error\n\tat one\n\tat \x1btwo\n"}), "table")
    assert text.splitlines() == ["name   x", "trace  Error", "           at one", "           at \\x1btwo"]


@pytest.mark.parametrize(
    ("hint", "printed"),
    [
        ("playhead runs stop orders --execute", "playhead runs stop orders --execute {all} --ledger sqlite:///l.db"),
        ("playhead connectors stop a, or add --stop", "playhead connectors stop a {all}, or add --stop"),
        ("`playhead groups list` shows them", "`playhead groups list {all}` shows them"),
        ("playhead topics show t -b other:1", "playhead topics show t -b other:1 -X client.id=me"),
        ("`playhead offsets set` moves it", "`playhead offsets set` moves it"),
        ("playhead offsets set a ...", "playhead offsets set a ..."),
        ("`playhead lab up` starts one", "`playhead lab up` starts one"),
        ("give it more time with --timeout", "give it more time with --timeout"),
    ],
)
def test_the_command_of_a_hint_can_be_pasted_it_has_the_options_that_were_typed(
    hint, printed, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)

    @click.command()
    @context_options
    @ledger_option
    @pass_face
    def failing(face):
        assert face.context
        raise errors.Refused("no", hint)

    monkeypatch.setitem(root.commands, "failing", failing)
    typed = [
        "--bootstrap-server",
        "h:1",
        "-X",
        "client.id=me",
        "-X",
        "sasl.password=canary",
        "--ledger",
        "sqlite:///l.db",
    ]
    monkeypatch.setattr(sys, "argv", ["playhead", "failing", *typed, "--timeout", "9s"])
    with pytest.raises(SystemExit):
        run_command(root, "playhead")
    said = capsys.readouterr().err
    assert said.splitlines()[-1].strip() == printed.format(all="--bootstrap-server h:1 -X client.id=me")
    assert "canary" not in said
