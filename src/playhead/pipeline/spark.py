"""The one Spark session of a run, and its slots. Its process is that of `jvm.py`."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa

from playhead.errors import MissingExtra, PlayheadError, Refused, TimedOut
from playhead.model import Deadline
from playhead.pipeline.jvm import LOSS_SECONDS, SparkJvm, SparkOptions, has_ended, new_log

try:
    from py4j.protocol import Py4JError
    from pyspark import RDD, SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession
except ImportError:
    raise MissingExtra("spark", "pyspark") from None

from playhead.pipeline.spark_faults import SessionLost

if TYPE_CHECKING:
    from playhead.ledger.runs import Ledger

__all__ = ["SparkOptions", "new_log"]  # callers of `spark_session` need no other module
EXECUTOR_SECONDS = 120.0
ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_GATEWAY_PORT, _GATEWAY_SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


@contextmanager
def spark_session(options: SparkOptions) -> Iterator[SparkSession]:
    """The JVM ends with the session, so the next session inherits nothing."""
    with SparkJvm(options) as jvm, SessionStart(jvm) as start, start.session() as session:
        yield session
    if options.log is None:
        jvm.log.unlink(missing_ok=True)


class SessionStart:
    """A session that is built in a thread of its own: in the meantime the run asks brokers and workers. PySpark would handle
    Ctrl-C in the main thread, and cancel every job. Leave the block, and nothing of it is left."""

    def __init__(self, jvm: SparkJvm) -> None:
        self.jvm = jvm
        self._built: Future[SparkSession] = Future()
        self._thread: threading.Thread | None = None

    def begin_early(self) -> None:
        """If the JVM could be started without waiting for anything. Otherwise `session` begins, and reports why not."""
        if SparkContext._gateway is not None:  # of another session in this process
            return
        self.jvm.start_early()
        if self.jvm.process is not None:
            self._begin()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._build, name="start of Spark", daemon=True)
            self._thread.start()

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Waits until it is built."""
        if self._thread is None and SparkContext._gateway is not None:
            raise Refused("this process has a Spark session already", "stop that one, or run this in another process")
        self.jvm.is_used = True
        self.jvm.start()
        self._begin()
        try:
            session = self._built.result()
        except (PySparkException, Py4JError) as error:
            log = self.jvm.log
            raise PlayheadError(f"Spark did not start: {_last_line(log) or error}", f"its log: {log}") from None
        write_archive = _archive_writer(session, self.jvm)
        try:
            with _hushed_after_loss(session):
                yield session
        except PlayheadError:
            raise
        except Exception as error:
            if (loss := find_loss(LOSS_SECONDS)) is not None:
                raise loss from error
            raise
        finally:
            if find_loss() is None:
                session.stop()
                _forget_jvm()
                self.jvm.end()
                write_archive()

    def _build(self) -> None:
        try:
            self._built.set_result(_built(self.jvm))
        except BaseException as error:  # noqa: BLE001  the end of a thread: `session` raises it
            self._built.set_exception(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.jvm.has_ended():
            self.jvm.abandon()
        if self._thread is not None:
            self._thread.join()
            _forget_jvm()


def _built(jvm: SparkJvm) -> SparkSession:
    try:
        return _connected(jvm)
    except (PySparkException, Py4JError):
        if jvm.is_abandoned or not jvm.has_ended(LOSS_SECONDS):
            raise
    _forget_jvm()
    jvm.start_plain()
    return _connected(jvm)


def _connected(jvm: SparkJvm) -> SparkSession:
    address = jvm.find_address()
    if address is None:
        raise Py4JError("Java ended before it could be reached")
    os.environ |= {_GATEWAY_PORT: str(address.port), _GATEWAY_SECRET: address.secret}
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ[_GATEWAY_PORT], os.environ[_GATEWAY_SECRET]
    gateway.proc = jvm.process
    SparkContext._ensure_initialized(gateway=gateway)
    settings = SparkConf().setMaster(jvm.options.master).setAppName("playhead").setAll(list(jvm.settings.items()))
    context = SparkContext.getOrCreate(settings)
    if jvm.options.is_local:
        _start_workers(context)
    return SparkSession.builder.getOrCreate()


def barrier_of(session: SparkSession, count: int, work: ArrowTask) -> "RDD[dict[str, Any]]":
    """Tasks that are given no rows and run side by side; to be collected as the rows that they yield. Not a DataFrame: in a new
    session the SQL engine takes two seconds of the JVM before its first task starts."""
    numbers = session.sparkContext.parallelize(range(count), count)
    return numbers.barrier().mapPartitions(partial(_rows_of, work))


def _rows_of(work: ArrowTask, _: Iterator[int]) -> Iterator[dict[str, Any]]:
    for batch in work(iter(())):
        yield from batch.to_pylist()


def _start_workers(context: SparkContext) -> None:
    """Has Spark start the process of its Python workers, which loads modules for a second, while the run plans its first step."""

    def work() -> None:
        try:
            context.parallelize(range(1), 1).mapPartitions(iter).count()
        except Exception:  # noqa: BLE001  PySpark fails in many ways while its session ends
            return  # a step meets the same fault, or the session has ended

    threading.Thread(target=work, name="start of workers", daemon=True).start()


def _archive_writer(session: SparkSession, jvm: SparkJvm) -> Callable[[], None]:
    """For the end of the session. The JVM is asked now: then it may have gone."""
    if jvm.archive is None or jvm.archive.classes is None:
        return lambda: None
    lang = cast(Any, session._jvm).java.lang
    home, class_path = (str(lang.System.getProperty(name)) for name in ("java.home", "java.class.path"))
    options = [str(option) for option in lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()]
    return partial(jvm.archive.write_later, home, class_path, options)


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


def check_ledger_reach(options: SparkOptions, ledger: "Ledger") -> None:
    if ledger.is_local and not options.is_local:
        raise Refused(
            f"an SQLite ledger works on one machine only, and {options.master} is not local",
            "give --ledger postgresql://USER@HOST/DB, which every host can reach",
        )


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
    return SessionLost(process.returncode) if has_ended(process, seconds) else None


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
        if not has_ended(process, LOSS_SECONDS):
            print_error(request, address)

    def is_logged(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname or not has_ended(process, LOSS_SECONDS)

    server.handle_error = handle_error
    logging.getLogger().addFilter(is_logged)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(is_logged)


def _forget_jvm() -> None:
    """The next session must not find it. A session whose JVM has ended cannot be stopped: each call would fail."""
    gateway = SparkContext._gateway
    if gateway is not None and find_loss() is None:
        gateway.shutdown()
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkContext._gateway = SparkContext._jvm = None
