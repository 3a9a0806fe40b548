"""The path from which Python workers load their modules."""

import zipfile

import pytest

from playhead.pipeline.worker_daemon import without_archives


@pytest.fixture
def installed(tmp_path):
    """A folder as pip makes it, and the archives in it that Spark puts before it in the path."""
    folder = tmp_path / "site-packages"
    library = folder / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    for name in ("pyspark", "py4j"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").touch()
    archives = [library / "pyspark.zip", library / "py4j-0.10-src.zip", folder / "pyspark" / "spark-core.jar"]
    for archive in archives:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("pyspark/__init__.py", "")
            file.writestr("py4j/__init__.py", "")
    return folder, [str(archive) for archive in archives]


def test_archives_of_an_installation_that_is_unpacked_are_not_searched(installed):
    folder, archives = installed
    assert without_archives(["", *archives, "/mine.zip", str(folder)]) == ["", "/mine.zip", str(folder)]


def test_archives_named_by_a_link_are_the_same(installed, tmp_path):
    folder, archives = installed
    link = tmp_path / "link"
    link.symlink_to(folder)
    shown = [archive.replace(str(folder), str(link)) for archive in archives]
    assert without_archives([*shown, str(folder)]) == [str(folder)]


def test_archives_stay_where_nothing_is_unpacked_or_it_is_of_another_installation(installed, tmp_path):
    folder, archives = installed
    assert without_archives([*archives, "/nowhere"]) == [*archives, "/nowhere"]
    other = tmp_path / "other"
    (folder / "pyspark").rename(tmp_path / "spark")
    moved = [archive.replace(str(folder / "pyspark"), str(tmp_path / "spark")) for archive in archives]
    for name in ("pyspark", "py4j"):
        (other / name).mkdir(parents=True)
        (other / name / "__init__.py").touch()
    assert without_archives([*moved, str(other)]) == [*moved, str(other)]
