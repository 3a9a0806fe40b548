"""Start-up is a feature: what a fresh interpreter loads, and what it says when something is not installed."""

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "pyarrow", "sqlalchemy", "httpx2", "confluent_kafka", "kafka", "starlette", "uvicorn", "jinja2")


def modules_after(code: str) -> set[str]:
    program = code + "\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["config", "--help"],
        ["connectors", "--help"],
        ["serve", "--help"],
        ["config", "view"],
    ],
)
def test_light_commands_load_no_heavy_library(arguments):
    code = f"""
import sys
from playhead.__main__ import main
sys.argv = ["playhead", *{arguments!r}]
try:
    main()
except SystemExit:
    pass
"""
    loaded = modules_after(code)
    assert [name for name in HEAVY if name in loaded] == []


def test_the_version_is_printed_before_even_click_is_loaded():
    code = "import sys\nfrom playhead.__main__ import main\nsys.argv = ['playhead', '--version']\nmain()"
    assert "click" not in modules_after(code)


def test_importing_playhead_loads_nothing_of_it_and_dir_names_the_public_api():
    loaded = modules_after("import playhead")
    assert [name for name in loaded if name.startswith("playhead.")] == []
    loaded = modules_after("import playhead; playhead.open_context")
    assert "playhead.config" in loaded


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("broker", "playhead.broker"),
        ("connectors", "playhead.connectors"),
        ("offsets", "playhead.offsets"),
        ("consume", "playhead.consumer"),
    ],
)
def test_the_public_names_are_loaded_when_they_are_asked_for(name, module):
    assert module not in modules_after("import playhead")
    loaded = modules_after(f"import playhead; assert playhead.{name} is playhead.{name}; dir(playhead.{name})")
    assert module in loaded
    assert module in modules_after(f"from playhead import {name}")
    assert "pyspark" not in loaded


def test_the_public_modules_are_the_ones_that_an_import_gives():
    code = """
import playhead
assert callable(playhead.connectors.plan) and callable(playhead.broker.show_topics)
from playhead import broker, connectors
assert (playhead.broker, playhead.connectors) == (broker, connectors)
"""
    loaded = modules_after(code)
    assert "pyspark" not in loaded


def test_the_version_loads_nothing_but_the_way_to_it():
    code = "import sys\nfrom playhead.__main__ import main\nsys.argv = ['playhead', '--version']\nmain()"
    assert {name for name in modules_after(code) if name.startswith("playhead.")} == {"playhead.__main__"}


def test_an_unknown_public_name_is_an_attribute_error():
    import playhead

    with pytest.raises(AttributeError, match="nothing_like_that"):
        _ = playhead.nothing_like_that
    assert {"broker", "connectors", "consume", "open_context"} <= set(dir(playhead))


@pytest.mark.parametrize(("module", "extra"), [("psutil", "lab"), ("pyspark", "lab")])
def test_a_missing_extra_is_one_line_naming_the_install(module, extra, tmp_path):
    code = f"""
import sys
sys.modules[{module!r}] = None
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == {module!r} else real(name, package)
from playhead.__main__ import main
sys.argv = ["playhead", "lab", "up", "--dir", {str(tmp_path / "lab")!r}]
main()
"""
    environment = {"PLAYHEAD_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert f"pip install 'playhead[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["starlette", "uvicorn", "jinja2", "prometheus_client"])
def test_serve_without_its_extra_is_one_line_naming_the_install(module):
    code = f"""
import sys
sys.modules[{module!r}] = None
from playhead.__main__ import main
sys.argv = ["playhead", "serve"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'playhead[web]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_module_runs_like_the_command():
    from playhead import __version__

    done = subprocess.run([sys.executable, "-m", "playhead", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"playhead {__version__}\n"
