"""A new package passes its own test as it is written, and its file is valid."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("more", [(), ("--sink",)], ids=["source", "sink"])
def test_its_test_passes_and_its_file_is_valid(more, playhead, tmp_path):
    ran = playhead("connectors", "new", "my-orders", *more, cwd=tmp_path).exits(0)
    folder = tmp_path / "my-orders"
    assert sorted(ran.out.splitlines()) == sorted(str(file.relative_to(tmp_path)) for file in files_of(folder))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    environment = {"PLAYHEAD_PLUGIN_PATH": str(folder)}
    for name in ("my_orders.MyOrders", "my-orders"):
        file = folder / "my-orders.properties"
        file.write_text(file.read_text().replace("connector.class=my_orders.MyOrders", f"connector.class={name}"))
        checked = playhead("connectors", "validate", "-f", str(file), cwd=folder, env=environment).exits(0)
        assert "no problem found" in checked.out + checked.err
    listed = playhead("connectors", "plugins", cwd=folder, env=environment).exits(0).out.splitlines()[1].split()
    assert listed[:4] == ["my_orders.MyOrders", "sink" if more else "source", "0.1.0", "spark"]


def test_a_folder_that_exists_and_a_name_that_is_none_are_refused(playhead, tmp_path):
    (tmp_path / "there").mkdir()
    assert "there exists already" in playhead("connectors", "new", "there", cwd=tmp_path).exits(1).err
    for name in ("Orders", "1st", "class", "a b", "../up"):
        assert "cannot be the name of a package" in playhead("connectors", "new", name, cwd=tmp_path).exits(2).err
    assert [one.name for one in tmp_path.iterdir()] == ["there"]


def files_of(folder: Path):
    return [file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
