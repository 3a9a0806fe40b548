"""The one Spark session of a run, and its slots.

Times are UTC in every JVM and in SQL: a database's time zone is an option of the connector (`db.timezone`), not of the machine.
Spark must not retry a task: the retry would write again what the first attempt may have committed. The run plans the step again
instead. Dynamic allocation is refused: executors that come and go would starve a barrier stage.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playhead.errors import Invalid, MissingExtra, PlayheadError, TimedOut
from playhead.model import Deadline
from playhead.pipeline.jars import check_java, fetch_jars

try:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
except ImportError:
    raise MissingExtra("spark", "pyspark") from None

from playhead.pipeline.spark_faults import SessionLost

JAR_SETS = ("spark-kafka", "jdbc")
EXECUTOR_SECONDS = 120.0
LOSS_SECONDS = 0.5
_UTC = "-Duser.timezone=UTC"
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

    @property
    def is_local(self) -> bool:
        """One machine: every task can use its files, for example an SQLite ledger."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")


@contextmanager
def spark_session(options: SparkOptions) -> Iterator[SparkSession]:
    """The JVM ends with the session, so the next session inherits nothing."""
    check_java()
    settings = _settings_of(options)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(options.master).appName("playhead")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_to_log(options.log) as log, _signals_kept():
        try:
            session = builder.getOrCreate()
        except (PySparkException, Py4JError) as error:
            raise PlayheadError(f"Spark did not start: {_last_line(log) or error}", f"its log: {log}") from None
    try:
        with _hushed_after_loss(session):
            yield session
        if options.log is None:
            log.unlink(missing_ok=True)
    except PlayheadError:
        raise
    except Exception as error:
        if (loss := find_loss(LOSS_SECONDS)) is not None:
            raise loss from error
        raise
    finally:
        if find_loss() is None:
            session.stop()
            _end_jvm()
        else:
            _forget_jvm()


def _settings_of(options: SparkOptions) -> dict[str, str]:
    """Ours and the user's, with the jars of both."""
    settings = {**_DEFAULTS, **options.settings}
    _refuse(settings)
    jars = [*(path for jar_set in JAR_SETS for path in fetch_jars(jar_set)), *options.jars]
    for jar in options.jars:
        if not jar.is_file():
            raise Invalid(f"there is no jar {jar}")
    named = ",".join(map(str, jars))
    settings["spark.jars"] = ",".join(part for part in (settings.get("spark.jars", ""), named) if part)
    # The driver queries databases through the class path of its own JVM; executors get the jars with their tasks.
    settings["spark.driver.extraClassPath"] = os.pathsep.join(
        part for part in (settings.get("spark.driver.extraClassPath", ""), *map(str, jars)) if part
    )
    for side in ("driver", "executor"):
        name = f"spark.{side}.extraJavaOptions"
        settings[name] = f"{settings.get(name, '')} {_UTC}".strip()
    settings |= _FIXED
    return settings


def new_log() -> Path:
    handle, name = tempfile.mkstemp(prefix="playhead-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


@contextmanager
def _stderr_to_log(wanted: Path | None) -> Iterator[Path]:
    """The output of the JVM and its workers goes to a file: a JVM keeps the stderr that it was started with."""
    path = wanted or new_log()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    sys.stderr.flush()
    ours = os.dup(2)
    os.dup2(handle, 2)
    os.close(handle)
    try:
        yield path
    finally:
        os.dup2(ours, 2)
        os.close(ours)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """PySpark would cancel every job at the first Ctrl-C. The run handles it instead."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").split("\n")
    errors = [line.strip() for line in lines if "Exception" in line or "Error" in line]
    return errors[-1][:300] if errors else ""


def count_slots(session: SparkSession) -> int:
    """Tasks that can run at the same time, now."""
    context = session.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    slots = int(context.maxNumConcurrentTasks(profile))
    if context.isLocal():
        return max(1, slots)
    patience = Deadline(EXECUTOR_SECONDS)
    while not patience.passed:  # executors of a cluster register one by one
        time.sleep(2)
        before, slots = slots, int(context.maxNumConcurrentTasks(profile))
        if slots and slots == before:
            return slots
    raise TimedOut(
        f"no executor registered within {EXECUTOR_SECONDS:g} s", "check that the cluster has free cores and memory"
    )


def cancel_jobs(session: SparkSession) -> None:
    try:
        session.sparkContext.cancelAllJobs()
    except (Py4JError, OSError):
        if find_loss(LOSS_SECONDS) is None:
            raise


def driver_host(session: SparkSession) -> str:
    """The address at which executors reach this process."""
    if session.sparkContext._jsc.sc().isLocal():
        return "127.0.0.1"
    return str(session.conf.get("spark.driver.host"))


def bind_address(session: SparkSession) -> str:
    """The address at which this process listens. With address translation, executors reach it at another one."""
    return str(session.conf.get("spark.driver.bindAddress", "") or "")


def find_loss(seconds: float = 0.0) -> SessionLost | None:
    """An error if the session's JVM has ended, or ends within `seconds`."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:  # this process did not start the JVM
        return None
    return SessionLost(process.returncode) if _has_ended(process, seconds) else None


@contextmanager
def _hushed_after_loss(session: SparkSession) -> Iterator[None]:
    """When the JVM dies, py4j logs traces and PySpark's server of accumulators prints one. `find_loss` reports it once."""
    process = getattr(SparkContext._gateway, "proc", None)
    server: Any = session.sparkContext._accumulatorServer
    if process is None or server is None:
        yield
        return
    print_error = server.handle_error

    def handle_error(request: object, address: object) -> None:
        if not _has_ended(process, LOSS_SECONDS):
            print_error(request, address)

    def is_logged(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname or not _has_ended(process, LOSS_SECONDS)

    server.handle_error = handle_error
    logging.getLogger().addFilter(is_logged)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(is_logged)


def _has_ended(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _refuse(settings: Mapping[str, str]) -> None:
    if settings.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise Invalid(
            "dynamic allocation removes executors that a step is waiting for",
            "set spark.dynamicAllocation.enabled=false and a fixed spark.executor.instances",
        )
    for name, value in _FIXED.items():
        if settings.get(name, value) != value:
            raise Invalid(f"{name} must be {value} here", "leave it out: the run itself retries a failed step")


def _end_jvm() -> None:
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is not None:
        process.stdin.close()
        process.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


def _forget_jvm() -> None:
    """A session whose JVM has ended cannot be stopped: each call would fail. The next session must not find it."""
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkContext._gateway = SparkContext._jvm = None
