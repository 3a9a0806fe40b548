"""Connectors in Python as their authors would have them on disk: a module, a project, a wheel."""

import zipfile
from pathlib import Path

MODULE = """
from playhead.sdk import Option, Secret, SourceConnector, SourceTask, between


class NumbersTask(SourceTask):
    def poll(self):
        return None


class Numbers(SourceConnector):
    version = "1.3"
    config = [
        Option("count", int, check=between(1, 100), doc="How many"),
        Option("api.token", Secret, None),
        Option("label", str, "n"),
    ]
    task = NumbersTask
"""
ENTRIES = "[playhead.connectors]\n{name} = {module}:Numbers\n"


def make_module(folder: Path, name: str, text: str = MODULE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.py"
    file.write_text(text)
    return file


def make_project(folder: Path, package: str, alias: str) -> Path:
    """With its sources in `src`, as most projects have them."""
    make_module(folder / "src" / package, "__init__")
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "{package}"\nversion = "1"\n'
        f'[project.entry-points."playhead.connectors"]\n{alias} = "{package}:Numbers"\n'
    )
    return folder


def make_wheel(folder: Path, package: str, alias: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{package}-2.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr(f"{package}/__init__.py", MODULE)
        made.writestr(f"{package}-2.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.0\n")
        made.writestr(f"{package}-2.0.dist-info/entry_points.txt", ENTRIES.format(name=alias, module=package))
    return wheel
