"""Connector files in Python: what they may return, how their errors read, and that nothing of them stays behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from playhead.connectors.files import read_specs
from playhead.model import ConnectorSpec, Engine, Map, Position, Positions, WantedState
from unit.connector_files import bare, file_faults


def program(folder: Path, text: str, name: str = "file.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_dicts_and_specs_are_taken_and_their_values_become_text(tmp_path):
    path = program(
        tmp_path,
        """
from enum import StrEnum
from playhead.model import ConnectorSpec, Engine, Map, Position, Positions, WantedState

class Mode(StrEnum):
    BULK = "bulk"

def connectors():
    yield {"name": "a", "engine": "spark", "state": "paused",
           "config": {"connector.class": "x", "t": True, "i": 1, "f": 1.0, "l": ("a", 2, False), "m": Mode.BULK, "name": "a"},
           "offsets": [{"partition": {"p": 1}, "offset": {"o": True}}]}
    yield ConnectorSpec("b", {"connector.class": "x", "n": 7}, Engine.CONNECT, WantedState.STOPPED,
                        Positions([Position("b", Map({"p": 1}), None)]))
    yield {"name": "c", "connector.class": "x"}
""",
    )
    offsets = Positions([Position("a", Map({"p": 1}), Map({"o": True}))])
    config = {"connector.class": "x", "t": "true", "i": "1", "f": "1.0", "l": "a,2,false", "m": "bulk"}
    specs = read_specs([path])
    assert bare(specs) == [
        ConnectorSpec("a", config, Engine.SPARK, WantedState.PAUSED, offsets),
        ConnectorSpec(
            "b",
            {"connector.class": "x", "n": "7"},
            state=WantedState.STOPPED,
            offsets=Positions([Position("b", Map({"p": 1}), None)]),
        ),
        ConnectorSpec("c", {"connector.class": "x"}),
    ]
    assert str(specs[0].origins["i"]) == f"{path}:8 (connectors())"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("def connectors(:\n", "1: this is not Python: invalid syntax"),
        ("x = 1\n", "there is no function connectors(); it returns the connectors, as dicts or ConnectorSpec"),
        ("\nimport nothing_like_this\n", "2: ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("def connectors():\n    return inner()\ndef inner():\n    return {}['PASSWORD']\n", "4: KeyError: 'PASSWORD'"),
        ("def connectors():\n    yield {}\n    raise RuntimeError('first\\nsecond')\n", "3: RuntimeError: first"),
        ("import sys\nsys.exit(0)\n", "2: the file ends the program instead of returning connectors"),
        ("def connectors(x):\n    return []\n", "TypeError: connectors() missing 1 required positional argument: 'x'"),
        (
            "\ndef connectors():\n    pass\n",
            "2: connectors() returned nothing; return a list of connectors, or yield them",
        ),
        (
            "def connectors():\n    return {'name': 'a'}\n",
            "1: connectors() returned a dict; return a list of connectors, or yield them",
        ),
        (
            "def connectors():\n    return ['a']\n",
            "1: an item of connectors() is a str; a connector is a dict or a ConnectorSpec",
        ),
        (
            "def connectors():\n    return [{'name': 'a', 'config': {'connector.class': 'x', 'k': {1}}}]\n",
            "1: a connector, key 'config', key 'k': a set is not a value for a connector; "
            "use text, numbers, True, False or a list",
        ),
        (
            "def connectors():\n    return [{'name': 'a', 'config': {'connector.class': 'x', 1: 'k'}}]\n",
            "1: a connector, key 'config': the key 1 is not text",
        ),
        (
            "def connectors():\n    return [{'name': 'a', 'connector.class': 'x', 'k': None}]\n",
            "1: 'k' has no value; write \"\" for an empty text, or leave the key out",
        ),
        ("def connectors():\n    return [{'nme': 'a', 'config': {}}]\n", "1: unknown key 'nme'; did you mean name?"),
        (
            "from playhead.model import Map\nM = Map({'a': []})\n",
            "2: Invalid: $.a: a list is not allowed; Connect takes only flat values here",
        ),
    ],
)
def test_a_mistake_in_python_is_one_sentence_with_its_line(tmp_path, text, fault):
    expected = f"file.py:{fault}" if fault[0].isdigit() else f"file.py: {fault}"
    assert file_faults(program(tmp_path, text))[0] == expected


def test_neighbours_are_importable_and_two_folders_may_use_the_same_name(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "parts").mkdir(parents=True)
        program(folder, f"NAME = {name!r}\n", "tables.py")
        program(folder / "parts", f"KIND = 'x.{name}'\n", "__init__.py")
        program(
            folder,
            "import tables\nfrom parts import KIND\n"
            "def connectors():\n    return [{'name': tables.NAME, 'connector.class': KIND}]\n",
        )
    modules, paths = set(sys.modules), list(sys.path)
    specs = read_specs([tmp_path / "one" / "file.py", tmp_path / "two" / "file.py"])
    assert [(spec.name, spec.connector_class) for spec in specs] == [("one", "x.one"), ("two", "x.two")]
    assert set(sys.modules) - modules == set()
    assert sys.path == paths
    assert list(tmp_path.rglob("__pycache__")) == []


def test_a_relative_path_has_lines_and_neighbours_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program(tmp_path, "NAME = 'a'\n", "tables.py")
    program(
        tmp_path, "from tables import NAME\ndef connectors():\n    return [{'name': NAME, 'connector.class': 'x'}]\n"
    )
    (spec,) = read_specs(["file.py"])
    assert str(spec.origin) == "file.py:2 (connectors())"
    assert file_faults(Path(program(tmp_path, "\n1 / 0\n").name)) == ["file.py:2: ZeroDivisionError: division by zero"]


def test_the_interpreter_is_as_it_was_also_after_an_error(tmp_path):
    before = (list(sys.path), sys.dont_write_bytecode, set(sys.modules), sys.stdout)
    file_faults(program(tmp_path, "import sys\nsys.path.append('/x')\nprint(1)\nraise ValueError\n"))
    assert (list(sys.path), sys.dont_write_bytecode, set(sys.modules), sys.stdout) == before


def test_what_a_file_prints_is_no_data(tmp_path, capsys):
    read_specs([program(tmp_path, "print('hello')\ndef connectors():\n    print('there')\n    return []\n")])
    assert tuple(capsys.readouterr()) == ("", "hello\nthere\n")


def test_a_dataclass_works_in_a_connector_file(tmp_path):
    text = """\
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Table:
    name: str

def connectors():
    return [{"name": Table("t").name, "connector.class": "x"}]
"""
    assert read_specs([program(tmp_path, text)])[0].name == "t"


def test_ctrl_c_in_a_connector_file_is_ctrl_c(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        read_specs([program(tmp_path, "raise KeyboardInterrupt\n")])


def test_reading_files_loads_no_python_reader_unless_python_is_named(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"name": "a", "connector.class": "x"}')
    code = (
        "import sys; from playhead.connectors.files import read_specs; "
        f"read_specs([{str(path)!r}]); print('python_form' in str(list(sys.modules)), 'ruamel.yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
