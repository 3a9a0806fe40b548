"""Connectors in Python are found in packages, folders and wheels, and their files are checked by what they declare."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Ran
from unit.python_connectors import make_module, make_project, make_wheel

SOURCE = "connector.class={}\nname=n\ncount=5\n"


@pytest.fixture
def place(tmp_path, playhead):
    """Runs a command in a folder whose context has the plugin path `plugins`."""
    (tmp_path / "playhead.toml").write_text('current = "here"\n[contexts.here]\nplugin-path = "plugins"\n')

    return Place(playhead, tmp_path)


@dataclass
class Place:
    playhead: Callable[..., Ran]
    folder: Path

    @property
    def plugins(self):
        return self.folder / "plugins"

    def __call__(self, *words, **more):
        return self.playhead(*words, cwd=self.folder, **more)


def plugins_of(place, *words, **more):
    return json.loads(place("connectors", "plugins", "-o", "json", *words, **more).exits(0).out)


def test_plugins_of_a_folder_are_listed_with_version_type_engine_and_origin(place):
    file = make_module(place.plugins, "numbers_module")
    project = make_project(place.plugins / "a-project", "numbers_project", "projected")
    make_wheel(place.plugins, "numbers_wheel", "wheeled")
    same = {"type": "source", "version": "1.3", "engine": "spark"}
    assert plugins_of(place) == [
        {"class": "numbers_module.Numbers", **same, "origin": str(file)},
        {"class": "numbers_project.Numbers", **same, "origin": str(project / "src")},
        {"class": "numbers_wheel.Numbers", **same, "origin": "numbers_wheel 2.0"},
    ]
    ran = place("connectors", "plugins").exits(0)
    assert ran.out.splitlines()[0].split() == ["CLASS", "TYPE", "VERSION", "ENGINE", "ORIGIN"]
    assert "no Connect worker is named" in ran.err


def test_a_module_that_cannot_be_imported_is_named_and_hides_no_other(place):
    make_module(place.plugins, "numbers_module")
    make_module(place.plugins, "broken", "import playhead.sdk\nimport no_such_package\n")
    ran = place("connectors", "plugins").exits(0)
    assert "numbers_module.Numbers" in ran.out
    assert "broken.py: cannot be imported: ModuleNotFoundError: No module named 'no_such_package'" in ran.err


@pytest.mark.parametrize("where", ["plugin.path of the worker", "one wheel", "environment"])
def test_a_plugin_path_is_named_in_several_places(place, where):
    there = place.folder / "there"
    wheel = make_wheel(there, "numbers_wheel", "wheeled")
    worker = place.folder / "worker.properties"
    worker.write_text(f"bootstrap.servers=127.0.0.1:1\nplugin.path=/no/such/folder, {there}\n")
    if where == "environment":
        env = {"PLAYHEAD_PLUGIN_PATH": str(there)}
    elif where == "one wheel":
        env = {"PLAYHEAD_PLUGIN_PATH": str(wheel)}
    else:
        env = {"PLAYHEAD_WORKER_CONFIG": str(worker)}
    assert [one["class"] for one in plugins_of(place, env=env)] == ["numbers_wheel.Numbers"]


@pytest.mark.parametrize("name", ["numbers_module.Numbers", "numbers_module:Numbers", "projected", "wheeled"])
def test_a_class_is_named_by_its_module_or_by_its_entry_point(place, name):
    make_module(place.plugins, "numbers_module")
    make_project(place.plugins / "a-project", "numbers_project", "projected")
    make_wheel(place.plugins, "numbers_wheel", "wheeled")
    (place.folder / "n.properties").write_text(SOURCE.format(name))
    ran = place("connectors", "validate", "-f", "n.properties").exits(0)
    assert "1 connector(s) checked: no problem found" in ran.out + ran.err


def test_a_file_is_checked_by_the_declared_options_without_a_worker(place):
    make_module(place.plugins, "numbers_module")
    (place.folder / "n.properties").write_text(
        "name=n\nconnector.class=numbers_module.Numbers\ncount=1000\nlabl=x\napi.token=${env:NOT_SET_HERE}\n"
        "key.converter=org.apache.kafka.connect.storage.StringConverter\ntransaction.boundary=poll\n"
        "transforms=a\ntransforms.a.type=whatever\n"
    )
    (place.folder / "m.properties").write_text("name=m\nconnector.class=numbers_module.Numbers\n")
    ran = place("connectors", "validate", "-f", "n.properties", "-f", "m.properties", "-o", "json").exits(1)
    found = [(one["name"], one["key"], one["what"]) for one in json.loads(ran.out)]
    assert found == [
        ("n", "labl", "is not an option of this connector; did you mean label?"),
        ("n", "count", "must be from 1 to 100, not '1000'"),
        ("m", "count", "must be set: How many"),
    ]


def test_a_wrong_value_of_another_type_names_the_type(place):
    make_module(place.plugins, "numbers_module")
    (place.folder / "n.properties").write_text("name=n\nconnector.class=numbers_module.Numbers\ncount=many\n")
    ran = place("connectors", "validate", "-f", "n.properties").exits(1)
    assert "must be a whole number, not 'many'" in ran.out


def test_a_class_that_is_no_connector_or_lacks_its_task_is_named(place):
    make_module(
        place.plugins,
        "half",
        "from playhead.sdk import SourceConnector\nclass Half(SourceConnector): pass\nclass No: pass\n",
    )
    for name, said in (("half.Half", "names no task"), ("half.No", "is no connector")):
        (place.folder / "n.properties").write_text(SOURCE.format(name))
        assert said in place("connectors", "validate", "-f", "n.properties").exits(1).out


def test_engine_connect_is_refused_with_the_reason(place):
    make_module(place.plugins, "numbers_module")
    config = {"connector.class": "numbers_module.Numbers", "count": "5"}
    for engine, code in (("connect", 1), ("spark", 0)):
        (place.folder / "n.json").write_text(json.dumps({"name": "n", "engine": engine, "config": config}))
        ran = place("connectors", "validate", "-f", "n.json").exits(code)
        assert ("is written in Python, and a Connect worker runs Java classes only" in ran.out) is (code == 1)


def test_java_classes_are_not_taken_for_python():
    from playhead.sdk.loading import find_class

    for name in (
        "io.confluent.connect.s3.S3SinkConnector",
        "org.apache.kafka.X",
        "FileStreamSource",
        "",
        "a b.c",
        "os.nope",
    ):
        assert find_class(name) is None


def test_a_worker_that_does_not_answer_hides_no_class_in_python(place):
    make_module(place.plugins, "numbers_module")
    ran = place("connectors", "plugins", "--connect", "http://127.0.0.1:1").exits(3)
    assert "numbers_module.Numbers" in ran.out
    assert "127.0.0.1:1" in ran.err


def test_a_run_of_a_class_that_is_not_found_names_it_the_nearest_one_and_the_path(place):
    make_module(place.plugins, "numbers_module")
    file = place.folder / "n.properties"
    file.write_text(SOURCE.format("number_module.Numbers"))
    ran = place("run", str(file)).exits(2)
    assert "no class in Python has the name number_module.Numbers; did you mean numbers_module.Numbers?" in ran.err
    assert f"(plugin.path: {place.plugins})" in ran.err
    file.write_text(SOURCE.format("counter.Counter"))
    (place.folder / "playhead.toml").write_text("")
    assert "(plugin.path: none is named)" in place("run", str(file)).exits(2).err
