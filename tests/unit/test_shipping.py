"""The code of a connector that is sent to the executors of a cluster."""

import importlib
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
from playhead.pipeline.shipping import Shipping
from playhead.sdk.loading import add_roots

CODE = "from playhead.sdk import SourceConnector\nclass Source(SourceConnector): pass\n"


@pytest.fixture
def sent(tmp_path):
    """A session that keeps what it is given, and how code is sent to it."""
    folder, files = tmp_path / "spark", []
    folder.mkdir()
    context = SimpleNamespace(_temp_dir=str(folder), addPyFile=lambda path: files.append(Path(path)))

    def shipping(*roots: Path) -> Shipping:
        session: Any = SimpleNamespace(sparkContext=context)
        return Shipping(session, roots)

    return SimpleNamespace(shipping=shipping, files=files)


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A folder with a package, a module beside it, and things that are no code."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    root = tmp_path / "plugins"
    (root / "shipped_package" / "inner").mkdir(parents=True)
    (root / "shipped_package" / "__init__.py").write_text(CODE)
    (root / "shipped_package" / "inner" / "words.txt").write_text("words")
    (root / "shipped_beside.py").write_text("")
    (root / "some-java-plugin").mkdir()
    (root / "some-java-plugin" / "large.jar").write_text("")
    yield root
    for name in [name for name in sys.modules if name.startswith("shipped_")]:
        del sys.modules[name]


def source_in(root):
    add_roots([root])
    return importlib.import_module("shipped_package").Source


def test_all_code_of_a_plugin_folder_is_sent_once(sent, code):
    found, shipping = source_in(code), sent.shipping(code)
    assert shipping.send(found) is None
    assert shipping.send(found) is None
    [file] = sent.files
    names = {"shipped_package/__init__.py", "shipped_package/inner/words.txt", "shipped_beside.py"}
    assert set(zipfile.ZipFile(file).namelist()) == names
    (code / "shipped_beside.py").write_text("changed = True")
    assert shipping.send(found) is None
    assert len({one.name for one in sent.files}) == 2


def test_of_an_installed_package_only_the_package_is_sent(sent, code):
    assert sent.shipping().send(source_in(code)) is None
    [file] = sent.files
    assert {name.partition("/")[0] for name in zipfile.ZipFile(file).namelist()} == {"shipped_package"}


def test_a_wheel_is_sent_as_it_is(sent, code, tmp_path):
    wheel = tmp_path / "shipped-1-py3-none-any.whl"
    Path(shutil.make_archive(str(tmp_path / "made"), "zip", code)).rename(wheel)
    assert sent.shipping(wheel).send(source_in(wheel)) is None
    [file] = sent.files
    assert file.suffix == ".zip"
    assert file.read_bytes() == wheel.read_bytes()


def test_compiled_modules_are_named(sent, code):
    (code / "shipped_package" / "fast.so").write_text("")
    note = sent.shipping(code).send(source_in(code))
    assert note == "fast.so is a compiled module: install the package of shipped_package on the executors"
    assert sent.files == []
