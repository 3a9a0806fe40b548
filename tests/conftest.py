"""Shared real parts. A lab is started when the first test asks for it, and stopped whatever happens."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from emptied_lab import empty
from kafka_jvm import KAFKA_JVM
from playhead.connect.rest import Rest
from playhead.errors import NotFound
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic, get_topic
from playhead.lab import Lab, LabOptions
from playhead.model import Deadline
from quick_java import OPTIONS, quick_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
RERUN_LINES = pytest.StashKey[list[str]]()
FAILED = pytest.StashKey[bool]()
SHARED_LAB = pytest.StashKey[Lab]()
LONGEST = [
    "test_lab_life",
    "test_commands_on_the_lab",
    "test_topic_copy",
    "test_topic_shrink",
    "test_supervised_run",
    "test_serve",
    "test_sink_group",
    "test_spark_deliver_targets",
    "test_spark_deliver_kills",
    "test_doctor_topic",
    "test_spark_kills",
    "test_spark_run",
    "test_rest_workers",
    "test_spark_ingest",
    "test_spark_transforms",
]
RERUNS = int(os.environ.get("TEST_RERUNS", "1"))

# A shell lets its background jobs ignore Ctrl-C, and every process that they start inherits it. Tests interrupt commands.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("JAVA_TOOL_OPTIONS", OPTIONS)
os.environ["PLAYHEAD_CLASS_ARCHIVE"] = "off"  # JVMs of tests have archives of their own
if "PYTEST_XDIST_WORKER" not in os.environ and (home := quick_home()):
    os.environ["JAVA_HOME"] = str(home)

# `make test` gives the same answer to the same code; `make soak` looks for new examples, many of them.
settings.register_profile(
    "default", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that two processes end together. What failed on real parts is run once more, and listed in the
    summary; unit tests have no such excuse."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
    for item in items:
        if not item.path.is_relative_to(HERE / "unit") and not item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.flaky(reruns=RERUNS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A failure that did not come again is a failure: with its whole trace here, and as the last lines printed."""
    found = terminalreporter.stats.get("rerun", ())
    for report in found:
        terminalreporter.section(f"RERUN {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
    config.stash[RERUN_LINES] = [f"  {report.nodeid}: {_first_error(report.longreprtext)}" for report in found]


def _first_error(trace: str) -> str:
    errors = [line[1:].strip() for line in trace.splitlines() if line.startswith("E ")]
    return errors[0] if errors else trace.strip().splitlines()[-1]


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if RERUN_LINES in config.stash:
        lines = config.stash[RERUN_LINES]
        os.write(1, ("\n".join([f"tests run a second time: {len(lines)}", *lines]) + "\n").encode())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    outcome = yield
    if outcome.get_result().failed:
        item.stash[FAILED] = True


@pytest.fixture(autouse=True)
def whole_lab(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a failed test left broken in the shared lab is repaired before the next test, or its second try, meets it."""
    yield
    shared = request.config.stash.get(SHARED_LAB, None)
    if shared is not None and request.node.stash.get(FAILED, False):
        for part in shared.status():
            if part.state == "paused":
                shared.resume(part.name)
            elif part.state != "up":
                shared.start(part.name)


@pytest.fixture(scope="module", autouse=True)
def emptied_lab(pytestconfig: pytest.Config) -> Iterator[None]:
    """The next file of this process finds the shared lab as empty as the first."""
    yield
    shared = pytestconfig.stash.get(SHARED_LAB, None)
    if shared is not None:
        empty(shared)


@pytest.fixture(autouse=True)
def own_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test sees or changes the configuration of the user who runs it, or of another test."""
    home = tmp_path_factory.getbasetemp() / "home" / uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        kept = ("PLAYHEAD_CACHE", "PLAYHEAD_CLASS_ARCHIVE")
        for name in [name for name in os.environ if name.startswith("PLAYHEAD_") and name not in kept]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        patch.setenv("NO_COLOR", "1")
        yield


REAPER = """
import sys
from pathlib import Path
from playhead.lab import Lab
sys.stdin.read()
for found in Path(sys.argv[1]).rglob("lab.json"):
    Lab(found.parent).down()
"""


@pytest.fixture(scope="session", autouse=True)
def reaper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process that waits for this one to end, even by a crash, and then stops every lab it left running."""
    command = [sys.executable, "-c", REAPER, str(tmp_path_factory.getbasetemp())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    yield
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


@contextmanager
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[LabOptions], Lab]]:
    """Labs in folders of their own; every one of them is stopped at the end."""
    made: list[Lab] = []

    def make(options: LabOptions) -> Lab:
        lab = Lab(tmp_path_factory.mktemp("lab"), KAFKA_JVM.tool)
        made.append(lab)
        lab.up(options)
        return lab

    yield make
    for lab in made:
        for part in lab.status():
            if part.state != "down":
                lab.kill(part.name)  # a clean stop takes its time, and nothing of this lab is needed any more
        lab.down()
        assert [part.name for part in lab.status() if part.state != "down"] == []


@pytest.fixture(scope="module")
def make_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[LabOptions], Lab]]:
    """They end with the module: even an unused lab takes its share of the machine."""
    with labs(tmp_path_factory) as make:
        yield make


@pytest.fixture(scope="session")
def make_shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[LabOptions], Lab]]:
    with labs(tmp_path_factory) as make:
        yield make


@pytest.fixture(scope="session")
def lab(make_shared_lab: Callable[[LabOptions], Lab], pytestconfig: pytest.Config) -> Lab:
    """One broker, one exactly-once worker and PostgreSQL, shared by all tests of this process that leave them running. The broker
    notices soon that a member of a group died."""
    quick = {
        "group.min.session.timeout.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "300",
        "group.consumer.heartbeat.interval.ms": "300",
        "group.consumer.min.session.timeout.ms": "1500",
        "group.consumer.session.timeout.ms": "1500",
        "offsets.topic.num.partitions": "1",
    }
    pytestconfig.stash[SHARED_LAB] = made = make_shared_lab(LabOptions(broker_overrides=quick))
    return made


@pytest.fixture(scope="session")
def s3_lab(make_shared_lab: Callable[[LabOptions], Lab]) -> Lab:
    """An S3 server, for the few tests that need one."""
    return make_shared_lab(LabOptions(workers=0, postgres=False, extras=("s3",)))


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One session for all tests of this process."""
    from playhead.pipeline.spark import SparkOptions, spark_session

    with spark_session(SparkOptions("local[2]")) as session:
        session.sparkContext.setLogLevel("OFF")
        yield session


@pytest.fixture
def deadline() -> Deadline:
    return Deadline(120)


@pytest.fixture
def settings_of(lab: Lab) -> ClientSettings:
    return ClientSettings({"bootstrap.servers": lab.bootstrap_servers})


@pytest.fixture
def admin(settings_of: ClientSettings, deadline: Deadline) -> Iterator[Admin]:
    with Admin(settings_of, deadline) as client:
        yield client


@pytest.fixture
def rest(lab: Lab, deadline: Deadline) -> Iterator[Rest]:
    with Rest(lab.connect_urls, deadline) as client:
        yield client


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test uses, so that tests share a broker without conflicts."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def new_topic(admin: Admin, deadline: Deadline, unique: Callable[[str], str]) -> Callable[..., str]:
    def make(partitions: int = 1, **config: str) -> str:
        name = unique("topic")
        create_topic(admin, name, partitions, deadline, config={k.replace("_", "."): v for k, v in config.items()})

        def is_known() -> bool:
            """The broker that answers may learn of a new topic a moment after the controller made it."""
            try:
                return len(get_topic(admin, name, deadline).partitions) == partitions
            except NotFound:
                return False

        deadline.wait_for(is_known, f"making {name}")
        return name

    return make


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def exits(self, code: int) -> "Ran":
        assert self.code == code, f"exit {self.code}, not {code}\nstdout: {self.out}\nstderr: {self.err}"
        return self


@pytest.fixture
def playhead() -> Callable[..., Ran]:
    """Runs the command as a user does: a process of its own."""

    def run(
        *words: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        program: str = "playhead",
        seconds: float = 120,
    ) -> Ran:
        command = [str(Path(sys.executable).parent / program), *words]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
