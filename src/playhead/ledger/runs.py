"""The ledger: the current run of a pipeline, and what its transactions moved. SQLite for one machine, PostgreSQL for many.

One writer per pipeline. A run begins with a claim, which increases the epoch. From then on every write of the previous run fails
and reports that another run took over. Every write checks the epoch under the lock of the run's row, in the same transaction.
Writes are idempotent, so a write whose outcome is unknown is retried. Times are from the database's clock (SQLite: this
machine's). Settings and details are stored unchanged: they must not contain secrets.
"""

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, and_, select, update

from playhead.config import Context
from playhead.config.ledger import ledger_url
from playhead.errors import AccessDenied, Invalid, NotFound, OutcomeUnknown, Refused, Unreachable
from playhead.ledger import tables
from playhead.ledger.chunks import add_chunk, load_chunks, load_last_chunk, load_topics
from playhead.ledger.model import (
    BEHIND,
    CONFIG,
    FORGOTTEN,
    HALF_GIVEN,
    OWNER,
    Behind,
    ChunkRow,
    Claim,
    HandedOver,
    Host,
    RecordedChunk,
    Run,
    RunState,
    RunTakenOver,
    StopRequest,
    TakenMeanwhile,
    config_setting,
)
from playhead.ledger.tables import RUNS, insert_into, map_of, storable, to_json
from playhead.model import Engine, Map
from playhead.sql.address import DEFAULT_TABLE, Address, parse_address
from playhead.sql.database import Database
from playhead.sql.faults import translated
from playhead.sql.times import moment, now

T = TypeVar("T")


_OF_STANDING = (FORGOTTEN, HALF_GIVEN)  # settings that a hand-over writes anew


def open_ledger(url: str, seconds: float) -> "Ledger":
    """Does not connect or create anything yet. `seconds`: for one read or write, including waiting for locks."""
    address = parse_address(url)
    if str(address.table) != DEFAULT_TABLE:
        raise Invalid("the table names of a ledger cannot be changed", "remove table= from its URL")
    return Ledger(address, seconds)


def open_context_ledger(context: Context, seconds: float) -> "Ledger":
    """The ledger named by flag, environment or context, else the file of the user."""
    return open_ledger(ledger_url(context), seconds)


class Ledger:
    """May be shared by threads; writes are serialized."""

    def __init__(self, address: Address, seconds: float) -> None:
        self.address = address
        self.seconds = seconds
        self.place = f"the ledger {address.shown.removeprefix('sql+')}"
        # An SQLite file is opened again each time: an open one would still accept rows after the file was deleted.
        self._database = Database(address, seconds, keep=not address.is_sqlite)
        self._turn = threading.Lock()

    @property
    def is_local(self) -> bool:
        """Only this machine can use it."""
        return self.address.is_sqlite

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What a run writes

    def claim(self, cluster: str, pipeline: str, who: Host, settings: Mapping[str, str]) -> Claim:
        """Takes over the pipeline with a new, higher epoch. Refused if a hand-over gave it to Connect."""

        def act(connection: Connection) -> Claim:
            found = self._find(connection, cluster, pipeline)
            if found is not None and found.owner is Engine.CONNECT:
                raise HandedOver(found)
            owned = {} if found is None or found.owner is None else {OWNER: found.owner.value}
            at = moment(connection)
            values = {
                "host": who.name,
                "pid": who.pid,
                "username": who.user,
                "started": at,
                "heartbeat": at,
                "state": RunState.RUNNING.value,
                "detail": "",
                "stop_requested_by": None,
                "stop_requested_at": None,
                "settings": to_json({**settings, **owned}),
                "records": 0,
            }
            first = {"cluster": cluster, "pipeline": pipeline, "epoch": 1, "transactional_ids": 0}
            wanted = insert_into(connection, RUNS).values(**first, **values)
            again = wanted.on_conflict_do_update(
                index_elements=[RUNS.c.cluster, RUNS.c.pipeline], set_={**values, "epoch": RUNS.c.epoch + 1}
            ).returning(RUNS.c.epoch)
            return Claim(cluster, pipeline, connection.execute(again).scalar_one())

        return self.write(act)

    def beat(self, claim: Claim, behind: Behind | None = None) -> bool:
        """Writes a heartbeat. True: an operator requested a stop."""

        def act(connection: Connection) -> bool:
            run = self.own(connection, claim)
            values: dict[str, Any] = {"heartbeat": moment(connection)}
            if behind is not None and behind != run.behind:
                kept = config_setting(run.config) if run.config else {}
                values["settings"] = to_json({**run.settings, **kept, BEHIND: msgspec.json.encode(behind).decode()})
            self.update_run(connection, claim, **values)
            return run.stop is not None

        return self.write(act)

    def finish(self, claim: Claim, state: RunState, detail: str = "", *, if_asked: bool = False) -> bool:
        """`if_asked`: only if a stop is requested. False: the request was withdrawn, and nothing is written."""

        def act(connection: Connection) -> bool:
            run = self.own(connection, claim)
            if if_asked and run.stop is None:
                return False
            text = storable(detail)
            self.update_run(connection, claim, heartbeat=moment(connection), state=state.value, detail=text)
            return True

        return self.write(act)

    def set_ids(self, claim: Claim, count: int) -> None:
        """Records how many transactional ids this run uses. Call it before the first is used: the next run fences that many."""

        def act(connection: Connection) -> None:
            self.own(connection, claim)
            self.update_run(connection, claim, transactional_ids=count)

        self.write(act)

    def record(self, claim: Claim, chunks: Sequence[ChunkRow]) -> None:
        """Records all chunks or none. A chunk that exists already, with the same positions and offsets, is not changed."""

        def act(connection: Connection) -> None:
            run = self.own(connection, claim)
            added, newest = 0, None
            for chunk in chunks:
                if add_chunk(connection, claim, chunk):
                    added, newest = added + chunk.count, chunk
            self.tally(connection, run, added, (newest.stream, newest.end_position) if newest else None)

        self.write(act)

    def set_progress(self, claim: Claim, records: int, stream: str, position: Map | None) -> None:
        """Of a run whose ranges are in another ledger: `records` is the sum so far: writing it twice changes nothing."""

        def act(connection: Connection) -> None:
            run = self.own(connection, claim)
            self.tally(connection, run, records - run.records, (stream, position))

        self.write(act)

    # What an operator writes

    def request_stop(self, cluster: str, pipeline: str, who: Host, handover: str = "") -> Run:
        """Requests a stop at the next step; the first requester is recorded. Returns the run: one that ended is not changed.

        `handover`: the record of the hand-over that requests it, and may withdraw it. Such a request is replaced by any other.
        """

        def act(connection: Connection) -> Run:
            run = self._get(connection, cluster, pipeline, lock=True)
            if not run.is_running or (run.stop is not None and not run.stop.handover):
                return run
            values = {"stop_requested_by": who.requester(handover), "stop_requested_at": moment(connection)}
            self.update_run(connection, run, **values)
            return self._get(connection, cluster, pipeline)

        return self.write(act)

    def withdraw_stop(self, run: Run, handover: str) -> Run:
        """Withdraws what this hand-over requested of this run, and nothing else. Returns the run: one that ended is not
        changed."""

        def act(connection: Connection) -> Run:
            found = self._get(connection, run.cluster, run.pipeline, lock=True)
            is_its = found.stop is not None and found.stop.handover == handover != ""
            if not is_its or not found.is_running or found.epoch != run.epoch:
                return found
            self.update_run(connection, found, stop_requested_by=None, stop_requested_at=None)
            return self._get(connection, run.cluster, run.pipeline)

        return self.write(act)

    def forget(self, run: Run, who: Host) -> Run:
        """Marks a run that is not alive, so that it is no longer listed, and returns it. The next claim removes the mark.

        The row stays. Its epoch and its transactional ids fence a process that only hangs, and its settings say where the ranges
        of a JDBC sink are.
        """

        def act(connection: Connection) -> Run:
            now_is = self._get(connection, run.cluster, run.pipeline, lock=True)
            if now_is.epoch != run.epoch or now_is.is_alive:
                raise Refused(
                    f"{run.pipeline} is {now_is.words}: run {now_is.epoch} by {now_is.host}",
                    f"playhead runs stop {run.pipeline} --execute",
                )
            settings = {**now_is.settings, FORGOTTEN: f"{who.user}@{who.name}"}
            if now_is.config:
                settings |= config_setting(now_is.config)
            self.update_run(connection, now_is, settings=to_json(settings))
            return self._get(connection, run.cluster, run.pipeline)

        return self.write(act)

    def hand_over(
        self, seen: Run | None, at: Claim, to: Engine, who: Host, settings: Mapping[str, str], detail: str
    ) -> Claim:
        """Records which engine the pipeline belongs to from now on, and fences its last run: the epoch grows.

        `seen`: that run, which must have ended or be dead; None if there was none. Refused if another run began since, or if the
        owner is another one. `at` names cluster and pipeline; its epoch is not used. `settings` replace those of the run.
        Connect is the owner before its position is in place: `complete` says that it is.
        """

        def act(connection: Connection) -> Claim:
            found = self._find(connection, at.cluster, at.pipeline)
            epoch = 0 if found is None else found.epoch
            if found is not None and found.owner is to and found.host == who and found.detail == detail:
                return Claim(at.cluster, at.pipeline, epoch)  # the answer to the first try was lost
            if _standing(found) != _standing(seen):
                raise TakenMeanwhile(at.pipeline, found)
            now_is = moment(connection)
            kept = {} if found is None or not found.config else config_setting(found.config)
            old = {} if found is None else {k: v for k, v in found.settings.items() if k not in _OF_STANDING}
            half = {HALF_GIVEN: who.requester()} if to is Engine.CONNECT else {}
            values = {
                "epoch": epoch + 1,
                "host": who.name,
                "pid": who.pid,
                "username": who.user,
                "heartbeat": now_is,
                "state": RunState.STOPPED.value,
                "detail": storable(detail),
                "stop_requested_by": None,
                "stop_requested_at": None,
                "settings": to_json({**old, **kept, **settings, **half, OWNER: to.value}),
            }
            if found is None:
                first = {"cluster": at.cluster, "pipeline": at.pipeline, "started": now_is, "records": 0}
                wanted = insert_into(connection, RUNS).values(**first, **values, transactional_ids=0)
                added = connection.execute(wanted.on_conflict_do_nothing().returning(RUNS.c.epoch)).first()
                if added is None:  # there was no row to lock
                    raise TakenMeanwhile(at.pipeline, self._find(connection, at.cluster, at.pipeline))
            else:
                self.update_run(connection, found, **values)
            return Claim(at.cluster, at.pipeline, epoch + 1)

        return self.write(act)

    def complete(self, claim: Claim) -> Claim:
        """The position is in place: from now on Connect may run it. Refused if something else changed the pipeline since. The
        epoch grows: what looked before must look again."""

        def act(connection: Connection) -> Claim:
            found = self._find(connection, claim.cluster, claim.pipeline)
            if found is None or found.owner is not Engine.CONNECT:
                raise TakenMeanwhile(claim.pipeline, found)
            done = Claim(claim.cluster, claim.pipeline, claim.epoch + 1)
            if found.epoch == done.epoch and not found.is_half_given:
                return done  # the answer to the first try was lost
            if found.epoch != claim.epoch:
                raise TakenMeanwhile(claim.pipeline, found)
            kept = config_setting(found.config) if found.config else {}
            settings = {key: value for key, value in found.settings.items() if key != HALF_GIVEN}
            self.update_run(connection, found, epoch=done.epoch, settings=to_json({**settings, **kept}))
            return done

        return self.write(act)

    def take_back(self, cluster: str, pipelines: Collection[str]) -> None:
        """Forgets that these belong to Connect: for `playhead run --force`."""

        def act(connection: Connection) -> None:
            for pipeline in pipelines:
                run = self._find(connection, cluster, pipeline)
                if run is not None and run.owner is Engine.CONNECT:
                    kept = config_setting(run.config) if run.config else {}
                    settings = {key: value for key, value in run.settings.items() if key not in (OWNER, HALF_GIVEN)}
                    self.update_run(connection, run, settings=to_json({**settings, **kept}))

        self.write(act)

    # Reading

    def list_runs(self) -> list[Run]:
        def act(connection: Connection) -> list[Run]:
            rows = connection.execute(select(RUNS).order_by(RUNS.c.pipeline, RUNS.c.cluster)).all()
            at = now(connection)
            return [run_of(row, at) for row in rows]

        return self.read(act, [])

    def get_run(self, cluster: str, pipeline: str) -> Run:
        found = self.read(lambda connection: self._get(connection, cluster, pipeline), None)
        if found is None:
            raise NotFound("run", pipeline, hint=f"{self.place} is empty: no run has used it yet")
        return found

    def ids_used(self, cluster: str, pipeline: str) -> int:
        """Of the last run; 0 if there was none."""
        wanted = select(RUNS.c.transactional_ids).where(run_at(cluster, pipeline))
        return self.read(lambda connection: connection.execute(wanted).scalar() or 0, 0)

    def last_chunk(self, cluster: str, pipeline: str, stream: str) -> RecordedChunk | None:
        nothing: RecordedChunk | None = None
        return self.read(lambda connection: load_last_chunk(connection, cluster, pipeline, stream), nothing)

    def list_chunks(
        self, cluster: str, pipeline: str, stream: str | None = None, limit: int | None = None
    ) -> list[RecordedChunk]:
        """Newest first."""
        return self.read(lambda connection: load_chunks(connection, cluster, pipeline, stream, limit), [])

    def list_topics(self, cluster: str, pipeline: str) -> list[str]:
        """The topics that a source has written to."""
        return self.read(lambda connection: load_topics(connection, cluster, pipeline), [])

    # For other tables in the same ledger

    def write(self, act: Callable[[Connection], T]) -> T:
        """One transaction. It is retried once when its outcome is unknown, so `act` must be idempotent."""
        with self._turn:
            self._create_file()
            try:
                return self._written(act)
            except OutcomeUnknown:
                return self._written(act)

    def read(self, act: Callable[[Connection], T], nothing: T) -> T:
        """`nothing`: the result before the first write."""
        if not self._exists():
            return nothing
        try:
            return self._seen(act, nothing)
        except Unreachable:
            if not self._was_cut_off():
                raise
            # A writer was killed while committing. SQLite rolls back when the file is opened for writing.
            doing = f"reading {self.place} after a writer was killed"
            with self._turn, self._database.transaction(doing) as connection, translated(doing):
                tables.tables_exist(connection, self.place)
            return self._seen(act, nothing)

    def own(self, connection: Connection, claim: Claim) -> Run:
        """The run's row, locked until the transaction ends. Raises `RunTakenOver` if another run has claimed the pipeline."""
        row = connection.execute(select(RUNS).where(run_at(claim.cluster, claim.pipeline)).with_for_update()).first()
        run = None if row is None else run_of(row, row.heartbeat)
        if run is None or run.epoch != claim.epoch:
            raise RunTakenOver(claim, run)
        return run

    def update_run(self, connection: Connection, of: Claim | Run, **values: Any) -> None:
        connection.execute(update(RUNS).where(run_at(of.cluster, of.pipeline)).values(**values))

    def tally(self, connection: Connection, run: Run, records: int, last: tuple[str, Map | None] | None) -> None:
        """Adds `records` to the run and sets the last stream and its position. `last` None: they are not changed."""
        values: dict[str, Any] = {"heartbeat": moment(connection), "records": run.records + records}
        if last is not None:
            stream, position = last
            values |= {"last_stream": stream, "last_position": to_json(position)}
        self.update_run(connection, run, **values)

    # Inside

    def _find(self, connection: Connection, cluster: str, pipeline: str) -> Run | None:
        """The row of the newest run, locked until the transaction ends."""
        row = connection.execute(select(RUNS).where(run_at(cluster, pipeline)).with_for_update()).first()
        return None if row is None else run_of(row, now(connection))

    def _get(self, connection: Connection, cluster: str, pipeline: str, *, lock: bool = False) -> Run:
        wanted = select(RUNS).where(run_at(cluster, pipeline))
        row = connection.execute(wanted.with_for_update() if lock else wanted).first()
        if row is None:
            known = connection.execute(select(RUNS.c.pipeline).where(RUNS.c.cluster == cluster)).scalars().all()
            raise NotFound("run", pipeline, known, None if known else f"there is no run for the cluster {cluster} yet")
        return run_of(row, now(connection))

    def _written(self, act: Callable[[Connection], T]) -> T:
        doing = f"writing {self.place}"
        with self._database.transaction(doing) as connection, translated(doing):
            tables.create_tables(connection, self.place)
            return act(connection)

    def _seen(self, act: Callable[[Connection], T], nothing: T) -> T:
        with self._database.reading(f"reading {self.place}") as connection:
            return act(connection) if tables.tables_exist(connection, self.place) else nothing

    def _was_cut_off(self) -> bool:
        return self.address.is_sqlite and self.address.path.with_name(self.address.path.name + "-journal").exists()

    def _exists(self) -> bool:
        """False for a file that does not exist. A file that may not be accessed is an error. A server is not queried."""
        try:
            return not self.address.is_sqlite or bool(self.address.path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self._denied("opened", error) from None

    def _create_file(self) -> None:
        """Readable by its owner only: positions can contain data of the source. SQLite itself would use the umask."""
        if self._exists():
            return
        path = self.address.path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise self._denied("created", error) from None

    def _denied(self, what: str, error: OSError) -> AccessDenied:
        hint = "use another one with --ledger, or set XDG_STATE_HOME"
        return AccessDenied(f"{self.place} cannot be {what}: {error.strerror}", hint)


def _standing(run: Run | None) -> tuple[int, Engine | None]:
    """What every claim, move and hand-over changes."""
    return (0, None) if run is None else (run.epoch, run.owner)


def run_at(cluster: str, pipeline: str) -> ColumnElement[bool]:
    return and_(RUNS.c.cluster == cluster, RUNS.c.pipeline == pipeline)


def run_of(row: Row[Any], at: datetime) -> Run:
    stop = None if row.stop_requested_at is None else StopRequest(row.stop_requested_by or "", row.stop_requested_at)
    settings = msgspec.json.decode(row.settings, type=dict[str, str])
    config, behind = settings.pop(CONFIG, None), settings.pop(BEHIND, None)
    return Run(
        cluster=row.cluster,
        pipeline=row.pipeline,
        epoch=row.epoch,
        host=Host(row.host, row.pid, row.username),
        started=row.started,
        heartbeat=row.heartbeat,
        silent_seconds=(at - row.heartbeat).total_seconds(),
        state=RunState(row.state),
        detail=row.detail,
        stop=stop,
        settings=settings,
        transactional_ids=row.transactional_ids,
        records=row.records,
        last_stream=row.last_stream,
        last_position=map_of(row.last_position),
        config={} if config is None else msgspec.json.decode(config, type=dict[str, str]),
        behind=None if behind is None else msgspec.json.decode(behind, type=Behind),
    )
