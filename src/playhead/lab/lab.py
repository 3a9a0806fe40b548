"""One lab in one folder: up, down, status, and for tests kill, pause, resume and Kafka's own tools."""

import fcntl
import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from playhead.errors import Invalid, NotFound, PartFailed, Refused
from playhead.lab import processes
from playhead.lab.java import LOG4J, TOOL_LOG4J, run_tool
from playhead.lab.options import LabFile, LabOptions
from playhead.lab.parts import Part, connect, kafka, postgres, s3
from playhead.model import Deadline
from playhead.pipeline.jars import Progress, check_java, fetch_jars

Report = Callable[[str], None]


class ToolRunner(Protocol):
    def __call__(self, main: str, arguments: Sequence[str], *, stdin: str = "", seconds: float = 60) -> str: ...


_SERIOUS = re.compile(r"\b(ERROR|FATAL)\b|^Exception in thread")


@dataclass(frozen=True, slots=True)
class PartStatus:
    """`state`: up, starting (runs but does not answer yet), paused, down, adrift (runs, but its lab.json is missing)."""

    name: str
    state: str
    pid: int | None
    address: str
    detail: str
    log: str


def default_folder() -> Path:
    """The user's state folder. For root /var/lib: parts that do not run as root could not enter root's home."""
    if os.geteuid() == 0:
        return Path("/var/lib/playhead/lab")
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "playhead" / "lab"
    except RuntimeError:
        raise Invalid(
            "there is no home folder for the lab", "choose a folder with --dir, or set XDG_STATE_HOME"
        ) from None


class Lab:
    def __init__(self, folder: Path | None = None, tools: ToolRunner | None = None) -> None:
        """`tools`: what runs Kafka's command-line classes; by default a JVM for each call."""
        # Resolved: a process is ours if this path is on its command line.
        self.folder = (folder or default_folder()).resolve()
        if "," in str(self.folder):
            raise Invalid(
                f"{self.folder} has a comma, which Kafka treats as a separator", "choose another folder with --dir"
            )
        self._log_starts: dict[str, int] = {}
        self._tools: ToolRunner = tools or partial(run_tool, self.folder)

    # Start and stop

    def up(
        self,
        options: LabOptions | None = None,
        *,
        report: Report = lambda message: None,
        fetched: Progress = lambda done, total: None,
        seconds: float = 120,
    ) -> list[PartStatus]:
        """Starts the parts that do not run and waits until every part answers. Without options: as last time."""
        check_java()
        with self._locked(report):
            lab = self._prepared(options)
            for jar_set in ("kafka", *lab.options.extras):
                fetch_jars(jar_set, fetched)
            parts = self._parts(lab)
            self._stop_leftovers(parts, report)
            deadline = Deadline(seconds)
            for wave in sorted({part.wave for part in parts}):
                members = [part for part in parts if part.wave == wave]
                started = [part for part in members if self._start(part, report)]
                for part in members:
                    self._await(part, deadline, report, announce=part in started)
                if wave == 0 and started:
                    kafka.await_whole_cluster(lab, deadline)
            return self.status()

    def down(self, report: Report = lambda message: None) -> list[str]:
        """Stops only the processes of this lab; the data stays. Returns the names of the stopped parts."""
        if not self.folder.is_dir():
            return []
        with self._locked(report):
            running = processes.find_processes(self.folder)  # works without a lab.json too
            for name in sorted(running, key=_stop_order):
                report(f"stopping {name}")
                processes.stop_process(running[name], _stop_signal(name), grace_seconds=20)
            return sorted(running, key=_stop_order)

    @property
    def exists(self) -> bool:
        return (self.folder / "lab.json").is_file()

    def status(self) -> list[PartStatus]:
        """The state of each part, from the process table and its answer."""
        running = processes.find_processes(self.folder)
        if not self.exists:
            lost = "lab.json is missing; `lab down` still stops it"
            return [PartStatus(name, "adrift", process.pid, "", lost, "") for name, process in running.items()]
        return [self._status_of(part, running.get(part.name)) for part in self._all_parts()]

    def part_names(self) -> list[str]:
        return [part.name for part in self._all_parts()] if self.exists else []

    def log_of(self, name: str) -> Path:
        return self._part(name).log

    # For tests

    def kill(self, name: str) -> None:
        """SIGKILL, as a crash would."""
        processes.kill_process(self._process(name))

    def stop(self, name: str) -> None:
        """A clean stop of one part."""
        processes.stop_process(self._process(name), _stop_signal(name), grace_seconds=20)

    def pause(self, name: str) -> None:
        """SIGSTOP: the part keeps its connections and answers no request."""
        self._process(name).suspend()

    def resume(self, name: str) -> None:
        self._process(name).resume()

    def start(self, name: str, seconds: float = 60) -> None:
        """Starts one part that was stopped or killed, and waits for it."""
        part = self._part(name)
        self._start(part, lambda message: None)
        self._await(part, Deadline(seconds), lambda message: None, announce=False)

    def tool(self, main: str, *arguments: str, stdin: str = "", seconds: float = 60) -> str:
        """Standard output of a command-line class of Kafka, for independent checks: `tool("kafka.tools...", ...)`."""
        return self._tools(main, arguments, stdin=stdin, seconds=seconds)

    def psql(self, sql: str, database: str = "") -> str:
        """The output of psql for one statement, unaligned and without headers."""
        url = f"{self.postgres_url.rpartition('/')[0]}/{database}" if database else self.postgres_url
        command = [str(postgres.postgres_programs() / "psql"), url, "-Atc", sql]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    def make_bucket(self, name: str) -> None:
        """Creates a bucket, which is a folder to the S3 server."""
        s3.make_bucket(self.folder, name)

    # Addresses

    @property
    def options(self) -> LabOptions:
        return self._file.options

    @property
    def bootstrap_servers(self) -> str:
        return kafka.bootstrap_servers(self._file)

    @property
    def connect_urls(self) -> list[str]:
        return [f"http://127.0.0.1:{self._file.ports[f'worker-{n}']}" for n in range(1, self.options.workers + 1)]

    @property
    def standalone_url(self) -> str:
        return f"http://127.0.0.1:{self._file.ports['standalone']}"

    @property
    def worker_config(self) -> Path:
        return connect.worker_config(self.folder)

    @property
    def postgres_url(self) -> str:
        return postgres.url(self._file)

    @property
    def jdbc_url(self) -> str:
        """The same database for the Java driver, which expects the user as a parameter."""
        user, _, place = self.postgres_url.removeprefix("postgresql://").partition("@")
        return f"jdbc:postgresql://{place}?user={user}"

    @property
    def s3_url(self) -> str:
        if "s3" not in self.options.extras:
            raise NotFound("part", "s3", self.part_names(), hint="start it with: playhead lab up --with s3")
        return s3.endpoint(self._file)

    @property
    def s3_identity(self) -> str:
        return s3.IDENTITY

    @property
    def s3_credential(self) -> str:
        return s3.CREDENTIAL

    @property
    def ledger_url(self) -> str:
        """A file in the lab's folder, which the first run on Spark creates: runs on the lab stay apart from all others."""
        return f"sqlite:///{quote(str(self.folder / 'ledger.db'))}"

    def environment(self) -> dict[str, str]:
        """Environment variables that point other programs to this lab, for `eval "$(playhead lab env)"`."""
        variables = {"PLAYHEAD_BOOTSTRAP_SERVERS": self.bootstrap_servers}
        if self.options.workers:
            variables["PLAYHEAD_CONNECT"] = ",".join(self.connect_urls)
            variables["PLAYHEAD_WORKER_CONFIG"] = str(self.worker_config)
        if self.options.postgres:
            variables |= {
                "PGHOST": "127.0.0.1",
                "PGPORT": str(self._file.ports["postgres"]),
                "PGUSER": postgres.USER,
                "PGDATABASE": postgres.DATABASE,
            }
        if "s3" in self.options.extras:
            variables |= {
                "AWS_ENDPOINT_URL": self.s3_url,
                "AWS_ACCESS_KEY_ID": self.s3_identity,
                "AWS_SECRET_ACCESS_KEY": self.s3_credential,
                "AWS_REGION": s3.REGION,
            }
        return variables

    def context(self) -> dict[str, str]:
        """The settings of a context for this lab."""
        settings = {"bootstrap-servers": self.bootstrap_servers, "ledger": self.ledger_url}
        if self.options.workers:
            settings |= {"connect": ",".join(self.connect_urls), "worker-config": str(self.worker_config)}
        return settings

    # Private

    @property
    def _file(self) -> LabFile:
        lab = LabFile.load(self.folder)
        if lab is None:
            raise NotFound("lab", str(self.folder), hint="start one with: playhead lab up")
        return lab

    def _all_parts(self) -> list[Part]:
        return self._parts(self._file)

    def _parts(self, lab: LabFile) -> list[Part]:
        parts = kafka.broker_parts(self.folder, lab)
        if lab.options.postgres:
            parts.append(postgres.postgres_part(self.folder, lab))
        if "s3" in lab.options.extras:
            parts.append(s3.s3_part(self.folder, lab))
        return parts + connect.worker_parts(self.folder, lab)

    def _part(self, name: str) -> Part:
        parts = {part.name: part for part in self._all_parts()}
        if name not in parts:
            raise NotFound("part", name, list(parts))
        return parts[name]

    def _process(self, name: str) -> processes.Process:
        running = processes.find_processes(self.folder)
        if name not in running:
            raise NotFound("running part", name, list(running))
        return running[name]

    def _prepared(self, options: LabOptions | None) -> LabFile:
        """The new `lab.json`. It is written before any part starts, so that `status` works after a crash."""
        lab = LabFile.load(self.folder)
        if lab is None:
            if unknown := [path.name for path in self.folder.iterdir() if path.name != ".lock"]:
                raise Refused(
                    f"{self.folder} is not empty and not the folder of a lab: it contains {unknown[0]}",
                    "choose an empty or a new folder with --dir",
                )
            lab = LabFile.new((options or LabOptions()).checked())
        if options is not None:
            if options.brokers < lab.options.brokers:
                raise Refused(
                    f"this lab has {lab.options.brokers} brokers; the data of the removed ones would be lost",
                    "create a smaller lab in another folder with --dir",
                )
            lab.options = options.checked()
        running = set(processes.find_processes(self.folder))
        if "broker-1" in running:
            running.add("controller")
        lab.choose_ports(running)
        (self.folder / "log4j2.xml").write_text(LOG4J)
        (self.folder / "tool-log4j2.xml").write_text(TOOL_LOG4J)
        lab.save(self.folder)
        return lab

    def _stop_leftovers(self, parts: Sequence[Part], report: Report) -> None:
        """Stops parts that the lab no longer has, e.g. workers of an earlier, larger lab."""
        wanted = {part.name for part in parts}
        for name, process in processes.find_processes(self.folder).items():
            if name not in wanted:
                report(f"stopping {name}, which this lab no longer has")
                processes.stop_process(process, _stop_signal(name), grace_seconds=20)

    def _start(self, part: Part, report: Report) -> bool:
        """Starts the part unless it runs with the current configuration. True if it was started now."""
        running = processes.find_processes(self.folder).get(part.name)
        changed = [
            path for path, text in part.files.items() if not path.is_file() or path.read_bytes() != text.encode("ascii")
        ]
        if running and not changed:
            if processes.is_paused(running):
                running.resume()
            return False
        if running:
            report(f"restarting {part.name}: its configuration changed")
            processes.stop_process(running, _stop_signal(part.name), grace_seconds=20)
        for path in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(part.files[path], "ascii")
        part.prepare()
        report(f"starting {part.name}")
        self._log_starts[part.name] = part.log.stat().st_size if part.log.exists() else 0
        processes.start_process(part.command(), part.log, self.folder)
        return True

    def _await(self, part: Part, deadline: Deadline, report: Report, *, announce: bool) -> None:
        missing: str | None = "it was not queried yet"

        def answered() -> bool:
            nonlocal missing
            missing = part.answers()
            if missing is None:
                return True
            if part.name not in processes.find_processes(self.folder):
                raise self._failure(part, "exited while starting")
            if deadline.passed:
                raise self._failure(part, f"does not answer after {deadline.words}: {missing}")
            return False

        deadline.wait_for(answered, f"starting {part.name}", every=0.2)
        if announce:
            report(f"{part.name} answers at {part.address}")

    def _failure(self, part: Part, what: str) -> PartFailed:
        since = self._log_starts.get(part.name, 0)
        return PartFailed(part.name, what, failure_in(part.log, since), str(part.log))

    def _status_of(self, part: Part, process: processes.Process | None) -> PartStatus:
        if process is None:
            return PartStatus(part.name, "down", None, part.address, "", str(part.log))
        if processes.is_paused(process):
            return PartStatus(part.name, "paused", process.pid, part.address, "", str(part.log))
        missing = part.answers()
        state = "up" if missing is None else "starting"
        return PartStatus(part.name, state, process.pid, part.address, missing or "", str(part.log))

    @contextmanager
    def _locked(self, report: Report) -> Iterator[None]:
        """One `up` or `down` at a time per folder; the lock ends with the process that holds it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("waiting for another command that holds the lock on this lab")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _stop_order(name: str) -> tuple[int, str]:
    """Clients before their brokers."""
    return (1 if name.startswith("broker") else 0, name)


def _stop_signal(name: str) -> signal.Signals:
    """To PostgreSQL SIGINT is a fast shutdown; on SIGTERM it waits for every client to disconnect."""
    return signal.SIGINT if name == "postgres" else signal.SIGTERM


def tail(path: Path, lines: int, since: int = 0) -> list[str]:
    """The last lines of a log, without its first `since` bytes."""
    try:
        with path.open("rb") as file:
            file.seek(since)
            last = deque(file, maxlen=lines)
    except OSError:
        return []
    return [line.decode("utf-8", "replace").rstrip("\n") for line in last]


def failure_in(log: Path, since: int, lines: int = 20) -> list[str]:
    """The lines from the first error of this run, without stack frames; else the end of the log."""
    recent = [line for line in tail(log, 400, since) if not line.startswith("\tat ")]
    errors = [i for i, line in enumerate(recent) if _SERIOUS.search(line)]
    return recent[errors[0] : errors[0] + lines] if errors else recent[-lines:]
