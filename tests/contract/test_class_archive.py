"""The archive of classes, with the real Java: it says from where it took a class."""

import fcntl
import os
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from playhead.errors import Invalid
from playhead.model import Deadline
from playhead.pipeline import class_archive
from playhead.pipeline.class_archive import ClassArchive, archive_folder, find_archive, write_archive
from playhead.pipeline.jars import fetch_jars

HEAP = "-Xmx256m"
JAVA = Path("/usr/bin/java")  # finding an archive starts no Java
MAIN = "org.postgresql.util.PGJDBCMain"  # prints a line and ends


@pytest.fixture(autouse=True)
def switched_on(monkeypatch):
    """The suite turns archives off, and its JVMs have archives of their own."""
    monkeypatch.delenv(class_archive.SWITCH, raising=False)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)


@pytest.fixture
def plain_java():
    """Without the launcher of the suite."""
    listed = subprocess.run(
        ["java", "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True
    )
    (home,) = [line.split("=")[1].strip() for line in listed.stderr.splitlines() if "java.home =" in line]
    return str(Path(home) / "bin" / "java")


@pytest.fixture
def jar(tmp_path):
    """A copy of a pinned jar, which a test may change."""
    copy = tmp_path / "driver.jar"
    (original,) = [path for path in fetch_jars("jdbc") if "postgresql" in path.name]
    copy.write_bytes(original.read_bytes())
    return copy


def listed(java: str, jar: Path, classes: Path) -> Path:
    options = [f"-XX:DumpLoadedClassList={classes}", "-Xlog:disable", "-cp", str(jar)]
    subprocess.run([java, *options, MAIN], capture_output=True, check=False)
    assert MAIN.replace(".", "/") in classes.read_text()
    return classes


def is_mapped(java: str, jar: Path, archive: Path) -> bool:
    """Whether Java says that it took the class from the archive."""
    options = ["-Xshare:on", f"-XX:SharedArchiveFile={archive}", "-Xlog:class+load", "-cp", str(jar)]
    done = subprocess.run([java, *options, MAIN], capture_output=True, text=True, check=False)
    return f"{MAIN} source: shared objects file" in done.stdout


def written(java: str, jar: Path, classes: Path, start: Path) -> Path:
    archive = write_archive(java, str(jar), classes, start, [HEAP])
    assert archive is not None
    return archive


def placed(start: Path, content: bytes) -> Path:
    """An archive with the name that its content has."""
    file = start.with_name(f"{start.name}-{len(content)}-{zlib.crc32(content):08x}.jsa")
    file.write_bytes(content)
    return file


def found_for(jars: Sequence[Path], java: Path = JAVA, **settings: str) -> ClassArchive:
    found = find_archive(java, jars, {name.replace("_", "."): text for name, text in settings.items()})
    assert found is not None
    return found


def classes_of(found: ClassArchive) -> Path:
    assert found.classes is not None
    return found.classes


def test_java_maps_the_archive_that_was_written_from_its_list_of_classes(plain_java, jar, tmp_path):
    start, classes = tmp_path / "a", listed(plain_java, jar, tmp_path / "a.1.classes")
    archive = written(plain_java, jar, classes, start)
    assert archive.name == f"a-{archive.stat().st_size}-{zlib.crc32(archive.read_bytes()):08x}.jsa"
    assert is_mapped(plain_java, jar, archive)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", archive.name, "driver.jar"]


def test_java_does_not_map_the_archive_of_another_jar(plain_java, jar, tmp_path):
    start, classes = tmp_path / "a", listed(plain_java, jar, tmp_path / "a.1.classes")
    archive = written(plain_java, jar, classes, start)
    os.utime(jar, (1, 1))
    assert not is_mapped(plain_java, jar, archive)


def test_a_second_writer_leaves_the_first_one_alone(plain_java, jar, tmp_path):
    start, classes = tmp_path / "a", listed(plain_java, jar, tmp_path / "a.1.classes")
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert write_archive(plain_java, str(jar), classes, start, [HEAP]) is None
    assert list(tmp_path.glob("*.jsa")) == []
    assert not classes.exists()


def test_an_archive_that_exists_is_not_written_again(plain_java, jar, tmp_path):
    start, classes = tmp_path / "a", listed(plain_java, jar, tmp_path / "a.1.classes")
    made = placed(start, b"mapped")
    assert write_archive(plain_java, str(jar), classes, start, [HEAP]) is None
    assert made.read_bytes() == b"mapped"


def test_a_part_of_an_archive_is_replaced(plain_java, jar, tmp_path):
    start, classes = tmp_path / "a", listed(plain_java, jar, tmp_path / "a.1.classes")
    placed(start, b"all of it").write_bytes(b"part")
    archive = written(plain_java, jar, classes, start)
    assert list(tmp_path.glob("*.jsa")) == [archive]


def test_what_java_refuses_to_archive_is_not_tried_again(plain_java, jar, tmp_path, monkeypatch):
    """Java archives nothing if a folder with files is on the class path."""
    monkeypatch.setenv("PLAYHEAD_CACHE", str(tmp_path / "cache"))
    found = found_for([jar])
    classes = listed(plain_java, jar, classes_of(found))
    assert write_archive(plain_java, f"{tmp_path}{os.pathsep}{jar}", classes, found.start) is None
    assert list(archive_folder().glob("*.jsa")) == []
    assert "directory" in found.start.with_suffix(class_archive.FAILED).read_text()
    assert find_archive(JAVA, [jar], {}) is None


def test_what_java_cannot_map_is_not_kept(plain_java, jar, tmp_path):
    """The fake writes nothing that Java could map."""
    start, classes = tmp_path / "a", listed(plain_java, jar, tmp_path / "a.1.classes")
    fake = tmp_path / "java"
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *-Xshare:dump*) echo no > {tmp_path}/a.1.part;; *) exec {plain_java} "$@";; esac\n'
    )
    fake.chmod(0o755)
    assert write_archive(str(fake), str(jar), classes, start) is None
    assert list(tmp_path.glob("*.jsa")) == []
    assert "exit code 1" in start.with_suffix(class_archive.FAILED).read_text()


def test_one_writer_of_all_keys_works_at_a_time(plain_java, jar, tmp_path):
    """Runs that end together, with other jars or heaps, would take all cores."""
    classes = listed(plain_java, jar, tmp_path / "b.1.classes")
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert write_archive(plain_java, str(jar), classes, tmp_path / "b") is None
    assert list(tmp_path.glob("*.jsa")) == []


def test_the_writer_works_on_when_the_process_that_started_it_has_ended(plain_java, jar, tmp_path):
    start, classes = tmp_path / "a", listed(plain_java, jar, tmp_path / "a.1.classes")
    script = (
        "import sys; from pathlib import Path; from playhead.pipeline.class_archive import ClassArchive;"
        "ClassArchive(Path(sys.argv[1]), classes=Path(sys.argv[2])).write_later(sys.argv[3], sys.argv[4], sys.argv[5:])"
    )
    home = str(Path(plain_java).parent.parent)
    words = [str(start), str(classes), home, str(jar), HEAP, "-Dnot=passed"]
    subprocess.run([sys.executable, "-W", "error", "-c", script, *words], check=True, timeout=30)
    (archive,) = Deadline(120).wait_for(lambda: list(tmp_path.glob("*.jsa")), "writing the archive")
    assert is_mapped(plain_java, jar, archive)


def test_unused_archives_and_the_remains_of_killed_writers_are_deleted(plain_java, jar, tmp_path):
    folder = tmp_path / "classes"
    folder.mkdir()
    for name, days in {"old.jsa": 31, "used.jsa": 29, "x.9.part": 2, "y.9.part": 0}.items():
        (folder / name).write_bytes(b"")
        then = (folder / name).stat().st_mtime - days * 86_400
        os.utime(folder / name, (then, then))
    assert write_archive(plain_java, str(jar), listed(plain_java, jar, folder / "a.1.classes"), folder / "a")
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock",
        *(path.name for path in folder.glob("a-*.jsa")),
        "used.jsa",
        "y.9.part",
    ]


class TestFinding:
    @pytest.fixture(autouse=True)
    def own_cache(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PLAYHEAD_CACHE", str(tmp_path / "cache"))

    def test_the_first_run_lists_its_classes_and_a_later_one_maps_the_archive(self, jar):
        first = found_for([jar])
        assert first.java_options == f'"-XX:DumpLoadedClassList={first.classes}"'
        file = placed(first.start, b"archive")
        later = found_for([jar])
        assert later.classes is None
        assert f'"-XX:SharedArchiveFile={file}" -Xshare:auto' in later.java_options

    @pytest.mark.parametrize("damaged", [b"", b"archi", b"Archive"])
    def test_a_damaged_archive_is_not_mapped(self, jar, damaged):
        """A JVM would crash when it uses what is missing or wrong."""
        placed(found_for([jar]).start, b"archive").write_bytes(damaged)
        assert "DumpLoadedClassList" in found_for([jar]).java_options

    def test_an_archive_with_which_a_jvm_crashed_is_deleted_and_none_is_made_for_a_day(self, jar):
        file = placed(found_for([jar]).start, b"archive")
        found = found_for([jar])
        found.drop("crashed")
        assert not file.exists()
        assert find_archive(JAVA, [jar], {}) is None
        failed = found.start.with_suffix(class_archive.FAILED)
        assert failed.read_text() == "crashed"
        yesterday = failed.stat().st_mtime - 86_401
        os.utime(failed, (yesterday, yesterday))
        assert found_for([jar]).classes is not None

    def test_the_folder_of_archives_can_be_read_by_its_user_only(self, jar):
        found_for([jar])
        assert archive_folder().stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("place", ["folder", "its folder", "file"])
    def test_what_another_user_could_have_written_is_not_mapped(self, jar, place):
        file = placed(found_for([jar]).start, b"archive")
        assert found_for([jar]).file == file
        {"folder": file.parent, "its folder": file.parent.parent, "file": file}[place].chmod(0o777)
        found = find_archive(JAVA, [jar], {})
        assert found is None or found.file is None

    def test_what_another_user_owns_is_not_mapped(self, jar, monkeypatch):
        placed(found_for([jar]).start, b"archive")
        monkeypatch.setattr("playhead.config.trust._own_ids", lambda: {os.geteuid() + 1})
        assert find_archive(JAVA, [jar], {}) is None

    def test_two_runs_at_once_have_lists_of_their_own(self, jar):
        assert found_for([jar]).classes != found_for([jar]).classes

    def test_another_java_jar_or_heap_has_another_archive(self, jar, tmp_path):
        other_java = tmp_path / "jdk" / "bin" / "java"
        found = {
            found_for([jar]).start,
            found_for([jar], other_java).start,
            found_for([jar, tmp_path / "missing"]).start,
            found_for([jar], spark_driver_memory="40g").start,
        }
        os.utime(jar, (1, 1))
        assert found_for([jar]).start not in found
        assert len(found) == 4

    @pytest.mark.parametrize("part", ["release", "lib/modules", "lib/server/libjvm.so"])
    def test_a_java_that_was_replaced_in_its_folder_has_another_archive(self, jar, tmp_path, part):
        java, changed = tmp_path / "jdk" / "bin" / "java", tmp_path / "jdk" / part
        changed.parent.mkdir(parents=True)
        changed.write_text("17.0.15")
        before = found_for([jar], java).start
        changed.write_text("17.0.15+7")
        assert found_for([jar], java).start != before

    @pytest.mark.parametrize("name", ["SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "JAVA_TOOL_OPTIONS"])
    def test_a_variable_that_changes_the_jvm_has_another_archive(self, jar, name, monkeypatch):
        before = found_for([jar]).start
        monkeypatch.setenv(name, "-Dsome=thing")
        assert found_for([jar]).start != before

    def test_it_can_be_turned_off(self, jar, monkeypatch):
        monkeypatch.setenv(class_archive.SWITCH, "off")
        assert find_archive(JAVA, [jar], {}) is None
        assert not archive_folder().exists()

    @pytest.mark.parametrize("option", ["-XX:SharedArchiveFile=/x", "-Xshare:off", "-Xlog:gc"])
    def test_options_of_the_user_are_left_alone(self, jar, option, monkeypatch):
        assert find_archive(JAVA, [jar], {"spark.driver.extraJavaOptions": f"-Da=b {option}"}) is None
        monkeypatch.setenv("JDK_JAVA_OPTIONS", option)
        assert find_archive(JAVA, [jar], {}) is None

    def test_a_cache_that_cannot_be_made_is_no_error(self, jar, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("PLAYHEAD_CACHE", str(tmp_path / "file"))
        assert find_archive(JAVA, [jar], {}) is None

    def test_a_cache_that_cannot_be_written_is_no_error(self, jar, monkeypatch):
        monkeypatch.setattr(
            "playhead.pipeline.class_archive.os.access", lambda path, mode: False
        )  # root may write everywhere
        assert find_archive(JAVA, [jar], {}) is None

    def test_no_home_folder_is_no_error(self, jar, monkeypatch):
        def nowhere():
            raise Invalid("there is no home folder to keep jars in", "set PLAYHEAD_CACHE")

        monkeypatch.setattr(class_archive, "cache_folder", nowhere)
        assert find_archive(JAVA, [jar], {}) is None

    def test_a_full_disk_is_left_alone(self, jar, monkeypatch):
        monkeypatch.setattr(class_archive, "FREE_BYTES", 1 << 62)
        assert find_archive(JAVA, [jar], {}) is None

    def test_a_path_that_an_option_cannot_hold_gets_no_archive(self, jar, tmp_path, monkeypatch):
        monkeypatch.setenv("PLAYHEAD_CACHE", str(tmp_path / 'a "quoted" folder'))
        assert find_archive(JAVA, [jar], {}) is None

    def test_nothing_is_started_when_java_wrote_no_list(self, tmp_path, monkeypatch):
        def started(*words, **options):
            raise AssertionError("started")

        monkeypatch.setattr("playhead.pipeline.class_archive.subprocess.run", started)
        ClassArchive(tmp_path / "a", classes=tmp_path / "a.1.classes").write_later("/java", "", [HEAP])
        ClassArchive(tmp_path / "a").write_later("/java", "", [HEAP])
