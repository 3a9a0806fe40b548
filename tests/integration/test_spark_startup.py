"""What makes a run start quickly is in effect, and nothing depends on it. The oracle is the operating system: which files the JVM
has mapped, which process is the parent of a worker."""

import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from playhead.model import Deadline
from playhead.pipeline.jars import cache_folder

SCRIPT = """
import json, sys
from pathlib import Path
from pyspark import SparkContext
from playhead.pipeline.spark import SparkOptions, spark_session

def look(batches):
    import gc, os, sys
    import pyarrow as pa
    from zipimport import zipimporter
    loaded = "playhead.pipeline.ingest.task" in sys.modules and "playhead.pipeline.deliver.task" in sys.modules
    zips = sum(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
    for batch in batches:
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_text().replace(chr(0), " ")
        yield pa.RecordBatch.from_pydict(
            {"id": [batch.num_rows], "loaded": [loaded], "frozen": [gc.get_freeze_count()], "zips": [zips], "parent": [parent]}
        )

with spark_session(SparkOptions("local[1]", json.loads(sys.argv[1]))) as session:
    maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text().split()
    archives = sorted({word for word in maps if word.endswith(".jsa")})
    columns = "id long, loaded boolean, frozen long, zips long, parent string"
    row = session.range(3, numPartitions=1).mapInArrow(look, columns).head()
    found = {
        "archives": archives, "ours": [path for path in archives if "server/classes" not in path],
        "rows": row.id, "loaded": row.loaded, "frozen": row.frozen, "zips": row.zips, "parent": row.parent,
        "ui": session.sparkContext.uiWebUrl,
        "catalog": session.conf.get("spark.sql.catalogImplementation"),
        "jars": session.sparkContext.getConf().get("spark.jars", ""),
        "properties": [session._jvm.java.lang.System.getProperty(name) for name in ("mine", "other")],
        "driver": session._jvm.java.lang.Class.forName("org.postgresql.Driver").getName(),
    }
print(json.dumps(found))
"""


def run_script(
    cache: Path, settings: dict[str, str], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if name not in ("PLAYHEAD_CLASS_ARCHIVE", "JAVA_HOME")}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(settings)],
        env=kept | {"PLAYHEAD_CACHE": str(cache)} | dict(environment or {}),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def session_facts(
    cache: Path, folder: Path | None = None, environment: Mapping[str, str] | None = None, **settings: str
) -> dict[str, object]:
    """Of a session in a process of its own. Its stdout holds nothing else: no warning of Java."""
    done = run_script(cache, {name.replace("_", "."): text for name, text in settings.items()}, folder, environment)
    assert done.returncode == 0, done.stderr
    facts: dict[str, object] = json.loads(done.stdout)
    return facts


def processes_with(word: str) -> list[int]:
    """Of this machine, by the words of their command."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if word.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


FILE = """connectors:
  {name}:
    engine: spark
    config:
      connector.class: io.confluent.connect.jdbc.JdbcSourceConnector
      connection.url: jdbc:postgresql://127.0.0.1:1/none
      mode: {mode}
      incrementing.column.name: id
      table.whitelist: small
      topic.prefix: {name}-
"""


CONVERTERS = "".join(f"{side}.converter=org.apache.kafka.connect.json.JsonConverter\n" for side in ("key", "value"))


@pytest.fixture
def started(tmp_path, unique):
    """Starts `playhead run` with brokers that do not answer. The word is in the command of its JVM and in no other."""
    word, runs = unique("mark"), []

    def start(mode: str) -> tuple[str, "subprocess.Popen[str]"]:
        (tmp_path / "c.yaml").write_text(FILE.format(name=unique("early"), mode=mode))
        (tmp_path / "w.properties").write_text(
            "bootstrap.servers=127.0.0.1:1\ngroup.id=g\noffset.storage.topic=o\n" + CONVERTERS
        )
        command = [sys.executable, "-m", "playhead", "run", "c.yaml", "--worker-config", "w.properties"]
        command += ["--ledger", f"sqlite:///{tmp_path}/l.db", "--spark-conf", f"spark.test.word={word}"]
        with (tmp_path / "said").open("w") as said:
            run = subprocess.Popen(command, cwd=tmp_path, stderr=said, stdout=subprocess.DEVNULL, text=True)
        runs.append(run)
        return word, run

    yield start
    for run in runs:
        run.kill()
        run.wait()


def jvms(word: str, run: "subprocess.Popen[str]") -> list[int]:
    return [number for number in processes_with(word) if number != run.pid]


def test_the_jvm_starts_while_the_run_asks_brokers_and_ends_with_it(started, tmp_path):
    word, run = started("incrementing")
    Deadline(60).wait_for(lambda: jvms(word, run), "starting Java")
    Deadline(60).wait_for(lambda: "asking brokers" in (tmp_path / "said").read_text(), "asking brokers")
    assert jvms(word, run)
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    run.wait(60)
    assert "starting Spark" not in (tmp_path / "said").read_text()
    Deadline(20).wait_for(lambda: not jvms(word, run), "the end of Java")


def test_a_refused_connector_leaves_no_jvm_behind(started, tmp_path):
    word, run = started("no-such-mode")
    assert run.wait(120) == 2
    assert "no-such-mode" in (tmp_path / "said").read_text()
    Deadline(20).wait_for(lambda: not jvms(word, run), "the end of Java")


def test_a_killed_run_leaves_no_jvm_behind(started):
    word, run = started("incrementing")
    Deadline(60).wait_for(lambda: jvms(word, run), "starting Java")
    run.kill()
    run.wait()
    Deadline(60).wait_for(lambda: not jvms(word, run), "the end of Java")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One without archives, and without the time in which they are written."""
    made = tmp_path_factory.mktemp("none")
    (made / "jars").symlink_to(cache_folder())
    (made / "classes").touch()
    return made


@pytest.fixture(scope="module")
def facts(cache):
    return session_facts(cache)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A cache with the archive that the first session has left, and the facts of that session."""
    cache = tmp_path_factory.mktemp("cache")
    (cache / "jars").symlink_to(cache_folder())
    facts = session_facts(cache)
    Deadline(400).wait_for(lambda: list((cache / "classes").glob("*.jsa")), "writing the archive")
    return cache, facts


@pytest.fixture
def archive(first):
    (found,) = (first[0] / "classes").glob("*.jsa")
    return found


@pytest.mark.soak
def test_the_second_session_maps_the_archive_that_the_first_one_left(first, archive):
    cache, facts = first
    assert str(archive) not in facts["archives"]
    later = session_facts(cache)
    assert later["archives"] == [str(archive)]
    assert later["rows"] == 3
    assert list(archive.parent.glob("*.classes")) == []


@pytest.fixture
def replaced(archive):
    """Replaces the archive by other bytes, under the name that they have."""
    whole = archive.with_suffix(".whole")

    def replace(content: bytes) -> Path:
        other: Path = archive.with_name(
            f"{archive.name.partition('-')[0]}-{len(content)}-{zlib.crc32(content):08x}.jsa"
        )
        archive.rename(whole)
        other.write_bytes(content)
        return other

    yield replace
    for path in [*archive.parent.glob("*.jsa"), *archive.parent.glob("*.failed")]:
        path.unlink()
    whole.replace(archive)


@pytest.mark.soak
def test_an_archive_that_does_not_fit_is_ignored_without_a_word_on_stdout(first, replaced):
    replaced(b"no archive")
    facts = session_facts(first[0])
    assert (facts["rows"], facts["ours"]) == (3, [])


@pytest.mark.soak
def test_a_jvm_that_crashes_on_its_archive_is_started_again_without_it(first, archive, replaced, tmp_path):
    """Not reached by damage of a file, which has another checksum: as from a fault of Java that wrote it."""
    content = bytearray(archive.read_bytes())
    tenth = len(content) // 10
    content[tenth : 2 * tenth] = b"A" * tenth
    crashing = replaced(bytes(content))
    facts = session_facts(first[0], folder=tmp_path)
    assert [path.name.partition("_pid")[0] for path in tmp_path.iterdir()] == [
        "hs_err"
    ]  # what Java leaves when it crashes
    assert (facts["rows"], facts["ours"]) == (3, [])
    assert not crashing.exists()
    assert len(list(archive.parent.glob("*.failed"))) == 1


@pytest.mark.soak
def test_a_truncated_archive_is_not_mapped_and_written_again(first, archive, replaced):
    whole = archive.read_bytes()
    part = replaced(whole)
    part.write_bytes(whole[: len(whole) // 2])
    facts = session_facts(first[0])
    assert (facts["rows"], facts["ours"]) == (3, [])
    Deadline(400).wait_for(
        lambda: all(path.stat().st_size > len(whole) // 2 for path in archive.parent.glob("*.jsa")), "replacing it"
    )


def test_a_jvm_that_refuses_an_option_of_the_user_is_reported_and_gone(cache):
    done = run_script(cache, {"spark.driver.extraJavaOptions": "-XX:ObjectAlignmentInBytes=7"})
    assert done.returncode == 1
    assert "Spark did not start" in done.stderr


def test_workers_are_forked_from_a_process_that_has_loaded_what_tasks_need(facts):
    assert "-m playhead.pipeline.worker_daemon" in str(facts["parent"])
    assert facts["loaded"]
    assert facts["frozen"] > 1000
    assert facts["zips"] == 0  # their lists would be read again for each task


def test_a_local_session_copies_no_jars_and_starts_no_page_and_no_hive(facts):
    assert (facts["jars"], facts["ui"], facts["catalog"]) == ("", None, "in-memory")
    assert facts["driver"] == "org.postgresql.Driver"


def test_settings_of_the_user_win_and_his_options_for_the_jvm_are_kept(cache):
    facts = session_facts(
        cache,
        environment={"JAVA_TOOL_OPTIONS": "-Dother=2"},
        spark_ui_enabled="true",
        spark_ui_port="0",
        spark_python_daemon_module="pyspark.daemon",
        spark_driver_extraJavaOptions="-Dmine=1",
    )
    assert str(facts["ui"]).startswith("http")
    assert "-m pyspark.daemon" in str(facts["parent"])
    assert facts["properties"] == ["1", "2"]
