"""The process of Spark's JVM, from its start to its end. Nothing here imports PySpark: Java starts while Python imports it.

Times are UTC in every JVM and in SQL: a database's time zone is an option of the connector (`db.timezone`), not of the machine.
Spark must not retry a task: the retry would write again what the first attempt may have committed. The run plans the step again
instead. Dynamic allocation is refused: executors that come and go would starve a barrier stage.
"""

import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from playhead.errors import Invalid, MissingExtra, PlayheadError
from playhead.pipeline.class_archive import ClassArchive, find_archive
from playhead.pipeline.jars import are_cached, check_java, fetch_jars, java

if TYPE_CHECKING:
    from playhead.config import Context

JAR_SETS = ("spark-kafka", "jdbc")
LOSS_SECONDS = 0.5
END_SECONDS = 10.0
_LOOK_SECONDS = 0.02
_CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)  # of the JVM itself
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_LAUNCHER_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # of the short-lived JVM that prints the command of the other
)
_UTC = "-Duser.timezone=UTC"
# The optimising compiler takes only methods that are called ten times as often as by default. Starting Spark and planning a step
# call many methods some thousand times; compiling those was a third of the work of a short run. Loops over rows get there soon.
_LATE_OPTIMISER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000"
    " -XX:Tier4BackEdgeThreshold=400000"
)
_FIXED = {
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "false",
    "spark.sql.session.timeZone": "UTC",
}
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.catalogImplementation": "in-memory",
    # As in jobs without SQL: workers with other settings would need a process of their own to be forked from.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647b",  # any other limit is checked after every single row
    # Every step has its own consumers. Cached for the next step, with the data they fetched, they would fill the heap.
    "spark.kafka.consumer.cache.capacity": "1",
    "spark.kafka.consumer.cache.timeout": "5s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "5s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "5s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "10",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
}


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """`settings`: Spark's own, as given by the user. `jars`: the user's, in addition to the pinned ones. `log`: the file for the
    output of the JVM and its workers; None: a file that is kept only if the block fails."""

    master: str = "local[*]"
    settings: Mapping[str, str] = field(default_factory=dict)
    jars: Sequence[Path] = ()
    log: Path | None = None

    @classmethod
    def of_context(cls, context: "Context", master: str | None = None) -> "SparkOptions":
        """Spark's settings of the context; `master` comes before its own."""
        table = context.table("spark")
        settings = {key if key.startswith("spark.") else f"spark.{key}": one.text for key, one in table.items()}
        of_context = settings.pop("spark.master", None)
        return cls(master or of_context or "local[*]", settings)

    @property
    def is_local(self) -> bool:
        """One machine: every task can use its files, for example an SQLite ledger."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")


def _settings_of(options: SparkOptions) -> dict[str, str]:
    """Ours and the user's, with the jars of both."""
    settings = {**_DEFAULTS, **options.settings}
    _refuse(settings)
    jars = [*(path for jar_set in JAR_SETS for path in fetch_jars(jar_set)), *options.jars]
    for jar in options.jars:
        if not jar.is_file():
            raise Invalid(f"there is no jar {jar}")
    if options.is_local:
        settings.setdefault("spark.python.daemon.module", "playhead.pipeline.worker_daemon")
    else:  # executors get the jars with their tasks; in local mode the driver is the executor
        named = ",".join(map(str, jars))
        settings["spark.jars"] = ",".join(part for part in (settings.get("spark.jars", ""), named) if part)
    # The driver queries databases through the class path of its own JVM.
    settings["spark.driver.extraClassPath"] = os.pathsep.join(
        part for part in (settings.get("spark.driver.extraClassPath", ""), *map(str, jars)) if part
    )
    for side in ("driver", "executor"):
        name = f"spark.{side}.extraJavaOptions"
        settings[name] = f"{settings.get(name, '')} {_UTC}".strip()
    settings |= _FIXED
    return settings


def _refuse(settings: Mapping[str, str]) -> None:
    if settings.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise Invalid(
            "dynamic allocation removes executors that a step is waiting for",
            "set spark.dynamicAllocation.enabled=false and a fixed spark.executor.instances",
        )
    for name, value in _FIXED.items():
        if settings.get(name, value) != value:
            raise Invalid(f"{name} must be {value} here", "leave it out: the run itself retries a failed step")


def new_log() -> Path:
    handle, name = tempfile.mkstemp(prefix="playhead-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


def has_ended(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


class GatewayAddress(NamedTuple):
    """Where the JVM listens for Python."""

    port: int
    secret: str


class SparkJvm:
    """The JVM of one session; use it in a `with` block, at whose end it is killed if it was not ended before. `is_used`: what
    fails from now on is Spark's fault, so its log is kept."""

    def __init__(self, options: SparkOptions) -> None:
        self.options = options
        self.log = options.log or new_log()
        self.archive: ClassArchive | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.is_abandoned = False
        self.is_used = False
        self._settings: dict[str, str] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="playhead-jvm-"))

    @property
    def settings(self) -> Mapping[str, str]:
        """Of the session, once the process was started."""
        return self._settings

    def start_early(self) -> None:
        """Before it is certain that a session is needed, and only if nothing has to be fetched. What prevents the start is
        reported by `start`, in its time."""
        with suppress(PlayheadError):
            if all(map(are_cached, JAR_SETS)):
                self.start()

    def start(self) -> None:
        """Our options for a quick start are first, so that options of the user win."""
        if self.process is not None:
            return
        check_java()
        settings = _settings_of(self.options)
        class_path = [Path(part) for part in settings["spark.driver.extraClassPath"].split(os.pathsep)]
        self.archive = find_archive(Path(java()), [*class_path, spark_home() / "jars"], settings)
        ours = f"{_LATE_OPTIMISER} {self.archive.java_options if self.archive else ''}".strip()
        self._launch({**settings, _DRIVER_OPTIONS: f"{ours} {settings[_DRIVER_OPTIONS]}"})

    def start_plain(self) -> None:
        """Again, without our options: it ended with them, by a damaged archive or an option that this Java refuses."""
        if self.archive is not None:
            self.archive.drop("a JVM ended while it started with it")
            self.archive = None
        self._launch(_settings_of(self.options))

    def _launch(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self._info.unlink(missing_ok=True)
        command = [str(spark_home() / "bin" / "spark-submit")]
        for name, value in {"spark.master": self.options.master, "spark.app.name": "playhead", **settings}.items():
            command += ["--conf", f"{name}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        environment = {"SPARK_LAUNCHER_OPTS": _LAUNCHER_OPTIONS, **os.environ}
        environment |= {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._info)}
        with self.log.open("ab") as log:  # stdout too: a JVM that crashes says so there
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                preexec_fn=_ignore_interrupts,  # noqa: PLW1509  as PySpark does; it takes no lock
            )

    @property
    def _info(self) -> Path:
        return self._folder / "gateway"

    def find_address(self) -> GatewayAddress | None:
        """Waits for it. None: the process has ended."""
        while not self._info.is_file():
            if self.has_ended(_LOOK_SECONDS):
                return None
        content = self._info.read_bytes()
        port, length = struct.unpack(">ii", content[:8])
        return GatewayAddress(port, content[8 : 8 + length].decode())

    def has_ended(self, seconds: float = 0.0) -> bool:
        return self.process is not None and has_ended(self.process, seconds)

    def abandon(self) -> None:
        """It is not needed any more: what waits for it fails."""
        self.is_abandoned = True
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def end(self) -> None:
        """It ends with its stdin. A thread of a library that hangs does not keep it alive."""
        process = self.process
        if process is not None:
            if process.stdin is not None:
                with suppress(OSError):  # it has gone
                    process.stdin.close()
            if not has_ended(process, END_SECONDS):
                process.kill()
                process.wait()
            if self.archive is not None and not self.is_abandoned and -(process.returncode or 0) in _CRASHES:
                self.archive.drop(f"a JVM that used it was ended by signal {-process.returncode}")
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.has_ended():
            self.abandon()
        self.end()
        if not self.is_used:
            self.log.unlink(missing_ok=True)


def spark_home() -> Path:
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = find_spec("pyspark")
    if spec is None or not spec.origin:
        raise MissingExtra("spark", "pyspark")
    return Path(spec.origin).parent


def _ignore_interrupts() -> None:
    """The run handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
