"""The lab's own life: up, crash, status, up again, down. The process table and real clients are the judges."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from playhead.connect.answers import OffsetEntry
from playhead.connect.rest import Rest
from playhead.errors import PartFailed, Refused
from playhead.kafka.client import Admin, describe_cluster
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic, list_topics
from playhead.lab import Lab, LabOptions
from playhead.lab.parts.postgres import postgres_programs
from playhead.model import Deadline

BROKER_AND_POSTGRES = LabOptions(workers=0)


def states(lab: Lab) -> dict[str, str]:
    return {part.name: part.state for part in lab.status()}


def topics_of(lab: Lab) -> list[str]:
    settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})
    with Admin(settings, Deadline(20)) as admin:
        return list_topics(admin, Deadline(20))


def processes_of(lab: Lab) -> list[str]:
    """Everything on this machine whose command line names the lab's folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(lab.folder) in word for word in words):
            found.append(" ".join(words)[:80])
    return found


@pytest.fixture(scope="module")
def one_lab(make_lab):
    return make_lab(BROKER_AND_POSTGRES)


@pytest.fixture
def small_lab(one_lab):
    """Up, whatever the test before did to it."""
    one_lab.up()
    return one_lab


def test_a_killed_broker_is_seen_and_comes_back_with_its_data_at_the_same_address(small_lab):
    lab = small_lab
    address = lab.bootstrap_servers
    with Admin(ClientSettings({"bootstrap.servers": address}), Deadline(20)) as admin:
        create_topic(admin, "kept", 1, Deadline(20))
    lab.psql("create table kept (id int)")

    lab.kill("broker-1")
    assert states(lab) == {"broker-1": "down", "postgres": "up"}

    lab.up()
    assert states(lab) == {"broker-1": "up", "postgres": "up"}
    assert lab.bootstrap_servers == address
    assert "kept" in topics_of(lab)

    assert sorted(lab.down()) == ["broker-1", "postgres"]
    assert processes_of(lab) == []

    lab.up()
    assert "kept" in topics_of(lab)
    assert lab.psql("select count(*) from kept") == "0"
    lab.down()


def test_a_postgresql_that_is_killed_while_its_backends_compute_starts_at_once(small_lab):
    """Such a backend does not notice that its server is gone, and holds its shared memory."""
    psql = [str(postgres_programs() / "psql"), small_lab.postgres_url, "-Atc"]
    busy = subprocess.Popen([*psql, "SELECT count(*) FROM generate_series(1, 10000000000)"], stderr=subprocess.DEVNULL)
    try:
        seen = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT count(*) FROM generate%' AND state = 'active'"
        Deadline(30).wait_for(lambda: small_lab.psql(seen) == "1", "a backend that computes")
        (part,) = [part for part in small_lab.status() if part.name == "postgres"]
        assert part.pid is not None
        os.kill(part.pid, signal.SIGKILL)
        small_lab.start("postgres")
        assert small_lab.psql(seen) == "0"
    finally:
        busy.kill()
        busy.wait(10)


def test_up_twice_starts_nothing_twice(small_lab):
    before = {part.name: part.pid for part in small_lab.status()}
    said: list[str] = []
    small_lab.up(report=said.append)
    assert {part.name: part.pid for part in small_lab.status()} == before
    assert said == []
    small_lab.down()
    assert small_lab.down() == []


def test_what_a_crashed_starter_left_is_found_adopted_and_stopped_by_the_next_one(tmp_path):
    """The starter is killed with SIGKILL as soon as the broker's process exists, before `up` could finish."""
    folder = tmp_path / "lab"
    program = (
        "from pathlib import Path; from playhead.lab import Lab, LabOptions\n"
        f"Lab(Path({str(folder)!r})).up(LabOptions(workers=0, postgres=False))"
    )
    starter = subprocess.Popen([sys.executable, "-c", program])
    lab = Lab(folder)
    Deadline(60).wait_for(lambda: any(part.pid for part in lab.status()), "a broker process", every=0.02)
    starter.kill()
    starter.wait()

    [broker] = lab.status()
    assert broker.pid is not None
    said: list[str] = []
    lab.up(report=said.append)
    assert [(part.state, part.pid) for part in lab.status()] == [("up", broker.pid)]
    assert "starting broker-1" not in said
    assert lab.down() == ["broker-1"]
    assert processes_of(lab) == []


def test_a_paused_part_is_called_paused_and_resumes(small_lab):
    small_lab.pause("broker-1")
    Deadline(20).wait_for(lambda: states(small_lab)["broker-1"] == "paused", "the broker after SIGSTOP")
    small_lab.resume("broker-1")
    Deadline(20).wait_for(lambda: states(small_lab)["broker-1"] == "up", "the broker after SIGCONT")
    small_lab.down()


def test_a_part_that_dies_while_starting_is_reported_with_the_end_of_its_own_log(tmp_path):
    lab = Lab(tmp_path / "lab")
    broken = LabOptions(postgres=False, worker_overrides={"exactly.once.source.support": "perhaps"})
    with pytest.raises(PartFailed) as caught:
        lab.up(broken)
    assert caught.value.part == "worker-1"
    assert any("exactly.once.source.support" in line for line in caught.value.log_tail)
    assert lab.down() == ["broker-1"]


def test_a_broker_that_cannot_be_formatted_says_why(tmp_path):
    lab = Lab(tmp_path / "lab")
    with pytest.raises(PartFailed, match=r"broker-1 could not be formatted.*log\.retention\.check\.interval\.ms"):
        lab.up(LabOptions(workers=0, postgres=False, broker_overrides={"log.retention.check.interval.ms": "-5"}))
    assert lab.down() == []


def test_two_labs_do_not_touch_each_other(small_lab, make_lab):
    other = make_lab(LabOptions(workers=0, postgres=False))
    assert other.bootstrap_servers != small_lab.bootstrap_servers
    other.down()
    assert states(small_lab) == {"broker-1": "up", "postgres": "up"}
    small_lab.down()


@pytest.mark.parametrize("brokers", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_many_brokers_form_one_cluster_and_cannot_silently_become_fewer(make_lab, brokers):
    lab = make_lab(LabOptions(brokers=brokers, workers=0, postgres=False))
    cluster = describe_cluster(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}), Deadline(20))
    assert [broker.id for broker in cluster.brokers] == list(range(1, brokers + 1))
    described = lab.tool("org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", lab.bootstrap_servers)
    assert described.count("(id: ") == brokers
    with pytest.raises(Refused):
        lab.up(LabOptions(brokers=1, workers=0, postgres=False))
    lab.down()


def test_a_standalone_worker_keeps_its_offsets_in_a_file_that_connect_offsets_reads(make_lab, tmp_path, playhead):
    lab = make_lab(LabOptions(workers=0, standalone=True, postgres=False))
    with Admin(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}), Deadline(20)) as admin:
        create_topic(admin, "lines", 1, Deadline(20))
    lines = tmp_path / "lines.txt"
    lines.write_text("a\nb\n")
    worker, offsets = lab.folder / "standalone" / "worker.properties", lab.folder / "standalone" / "connect.offsets"
    with Rest([lab.standalone_url], Deadline(60)) as rest:
        rest.create_connector("files", {"connector.class": "FileStreamSource", "file": str(lines), "topic": "lines"})
        wanted = [OffsetEntry({"filename": str(lines)}, {"position": 4})]
        Deadline(30).wait_for(lambda: rest.get_offsets("files") == wanted, "the file being read")
    lab.stop("standalone")

    shown = playhead("--config", str(worker), program="connect-offsets").exits(0)
    assert json.loads(shown.out) == {"files": [{"partition": {"filename": str(lines)}, "offset": {"position": 4}}]}

    whole = offsets.read_bytes()
    offsets.write_bytes(whole[:-20])
    corrupt = playhead("--config", str(worker), program="connect-offsets").exits(1)
    assert f"corrupt at byte {len(whole) - 20}: the file ends too early" in corrupt.err
    assert corrupt.out == ""
    offsets.unlink()
    assert "does not exist" in playhead("--config", str(worker), program="connect-offsets").exits(0).err
    lab.down()


def test_the_s3_server_takes_an_object_and_gives_it_back(make_lab):
    from pyarrow import fs

    lab = make_lab(LabOptions(workers=0, extras=("s3",), postgres=False))
    assert states(lab) == {"broker-1": "up", "s3": "up"}
    env = lab.environment()
    store = fs.S3FileSystem(
        endpoint_override=env["AWS_ENDPOINT_URL"],
        access_key=env["AWS_ACCESS_KEY_ID"],
        secret_key=env["AWS_SECRET_ACCESS_KEY"],
        region=env["AWS_REGION"],
        allow_bucket_creation=True,
    )
    store.create_dir("bucket")
    with store.open_output_stream("bucket/object") as stream:
        stream.write(b"payload")
    with store.open_input_stream("bucket/object") as stream:
        assert stream.read() == b"payload"
    assert [path.name for path in (lab.folder / "s3" / "data").iterdir()] == ["bucket"]
    lab.down()
    assert processes_of(lab) == []


def test_the_commands_up_status_env_logs_down_work_from_a_shell(playhead, tmp_path):
    folder = str(tmp_path / "lab")
    home = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    playhead("lab", "status", "--dir", folder).exits(1)
    up = playhead("lab", "up", "--dir", folder, "--workers", "0", env=home).exits(0)
    assert "broker-1 answers at" in up.err
    assert playhead("lab", "status", "--dir", folder, "-o", "name").exits(0).out.split() == ["broker-1", "postgres"]

    variables = playhead("lab", "env", "--dir", folder).exits(0).out
    shown = subprocess.run(["sh", "-c", variables + "echo $PGDATABASE"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "lab"
    assert "Kafka Server started" in playhead("lab", "logs", "broker-1", "-n", "500", "--dir", folder).exits(0).out
    assert playhead("lab", "logs", "brokr-1", "--dir", folder).exits(1).err.count("broker-1") == 1

    # The context that `up` wrote is what every later command finds.
    assert "broker 1" in playhead("info", env=home, cwd=tmp_path).exits(0).out
    assert f"{folder}/ledger.db" in playhead("runs", "list", env=home, cwd=tmp_path).exits(0).err
    playhead("lab", "down", "--dir", folder).exits(0)
    assert processes_of(Lab(Path(folder))) == []
    playhead("lab", "status", "--dir", folder).exits(1)


def test_debezium_and_a_plugin_folder_of_the_user_are_on_the_worker(make_lab, tmp_path):
    import shutil
    import urllib.request

    from playhead.pipeline.jars import fetch_jars

    own = tmp_path / "own" / "mirror"
    own.mkdir(parents=True)
    [jar] = [path for path in fetch_jars("kafka") if path.name.startswith("connect-file-")]
    shutil.copy(jar, own)
    lab = make_lab(LabOptions(postgres=False, extras=("debezium",), plugin_path=(str(tmp_path / "own"),)))
    with urllib.request.urlopen(lab.connect_urls[0] + "/connector-plugins") as answer:
        plugins = [plugin["class"] for plugin in json.load(answer)]
    assert "io.debezium.connector.postgresql.PostgresConnector" in plugins
    assert f"Loading plugin from: {own}" in lab.log_of("worker-1").read_text()
    lab.down()


def test_a_folder_with_files_of_another_program_is_left_alone(tmp_path):
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "init.sql").write_text("create table precious ();")
    with pytest.raises(Refused, match="not the folder of a lab"):
        Lab(tmp_path).up(LabOptions(workers=0))
    assert (tmp_path / "postgres" / "init.sql").read_text() == "create table precious ();"


def test_an_initdb_that_was_cut_off_does_not_matter(tmp_path):
    lab = Lab(tmp_path / "lab")
    lab.up(LabOptions(workers=0))
    lab.down()
    (lab.folder / "postgres").rename(lab.folder / "postgres.new")  # as far as a killed initdb can get
    (lab.folder / "postgres.new" / "global" / "pg_control").unlink()
    lab.up()
    assert lab.psql("select 1") == "1"
    lab.down()


def test_one_folder_is_one_lab_however_it_is_spelled_and_whatever_its_name(tmp_path, playhead):
    """Blanks and other alphabets in the name; a link to it; a way around through the parent."""
    folder = tmp_path / "mein Labör 実験"
    lab = Lab(folder)
    lab.up(LabOptions(workers=0, postgres=False))
    link = tmp_path / "link"
    link.symlink_to(folder)
    for spelling in (link, folder / ".." / folder.name):
        assert states(Lab(spelling)) == {"broker-1": "up"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", folder.name]
    lab.down()
    lab.up()
    assert Lab(link).down() == ["broker-1"]


def test_what_runs_is_stopped_even_when_lab_json_is_lost_or_garbage(tmp_path, playhead):
    lab = Lab(tmp_path / "lab")
    lab.up(LabOptions(workers=0, postgres=False))
    (lab.folder / "lab.json").rename(tmp_path / "saved")
    assert states(lab) == {"broker-1": "adrift"}
    (lab.folder / "lab.json").write_text('{"options":{},"cluster_id":"x","ports":{}}')
    assert "lab down" in playhead("lab", "status", "--dir", str(lab.folder)).exits(2).err
    assert lab.down() == ["broker-1"]
    assert processes_of(lab) == []


def test_a_context_of_that_name_that_is_not_ours_is_not_overwritten(tmp_path, playhead):
    home = tmp_path / "config"
    (home / "playhead").mkdir(parents=True)
    own = '[contexts.lab]\nbootstrap-servers = "staging-lab:9092"\nconnect-password = "s3cret"\n'
    (home / "playhead" / "playhead.toml").write_text(own)
    env = {"XDG_CONFIG_HOME": str(home)}
    folder = str(tmp_path / "lab")
    ran = playhead("lab", "up", "--workers", "0", "--dir", folder, env=env, cwd=tmp_path).exits(0)
    assert "context 'playhead-lab' points to it" in ran.err
    assert own in (home / "playhead" / "playhead.toml").read_text()
    playhead("lab", "down", "--dir", folder).exits(0)


def test_an_empty_folder_name_does_not_mean_the_default_lab(playhead):
    assert "it is empty" in playhead("lab", "down", "--dir", "").exits(2).err


def test_a_proxy_of_the_environment_is_not_asked_for_a_worker_on_this_machine(lab, playhead):
    env = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}
    playhead("connectors", "list", "--connect", lab.connect_urls[0], env=env).exits(0)
