"""Export of source offsets in the form KIP-199 proposed: connector name -> list of partition and offset.

Works with no worker up: the worker file says which topic of which cluster, or which file. Read committed only where the worker
itself does so, that is with exactly-once source support enabled.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from playhead.config import Context, Setting, read_properties
from playhead.connect.javafile import decode_file
from playhead.connect.keys import decode_key, decode_value
from playhead.errors import Invalid
from playhead.kafka.client import Admin
from playhead.kafka.log import Record, capture, read_latest, read_records
from playhead.kafka.properties import client_settings
from playhead.model import Deadline
from playhead.model.position import Scalar

Pair = dict[str, dict[str, Scalar] | None]


@dataclass(slots=True)
class Export:
    """`notes` are sentences about what is not in `connectors`: foreign keys, values that are no offsets, open ends."""

    connectors: dict[str, list[Pair]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def export_offsets(
    worker_config: Path,
    deadline: Deadline,
    *,
    only: Collection[str] | None = None,
    from_beginning: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Export:
    """The live pairs; with `from_beginning` every pair in log order, overwritten ones and removals (null) included."""
    worker = {entry.key: entry.value for entry in read_properties(worker_config)}
    if "offset.storage.topic" in worker:
        return _from_topic(worker_config, worker, deadline, _Wanted(only, from_beginning), progress)
    if "offset.storage.file.filename" in worker:
        return _from_file(Path(worker["offset.storage.file.filename"]), _Wanted(only, from_beginning))
    raise Invalid(
        f"{worker_config} names neither offset.storage.topic nor offset.storage.file.filename",
        "name the properties file of a distributed or a standalone worker",
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """`everything`: overwritten pairs and removals too."""

    connectors: Collection[str] | None
    everything: bool


def _from_topic(
    path: Path, worker: Mapping[str, str], deadline: Deadline, wanted: _Wanted, progress: Callable[[int, int], None]
) -> Export:
    # The worker file alone decides: a context would lead to another cluster.
    settings = client_settings(Context(None, {"worker-config": Setting(str(path), "--config")}))
    committed = worker.get("exactly.once.source.support", "disabled").strip().lower() == "enabled"
    with Admin(settings, deadline) as admin:
        captured = capture(admin, worker["offset.storage.topic"], deadline, committed=committed)
        records: Iterable[Record] = (
            read_records(admin, captured, deadline)
            if wanted.everything
            else read_latest(admin, captured, deadline, progress).records
        )
        result = _collected(((record.key, record.value) for record in records), wanted)
    if committed:
        result.notes += [
            f"{tp} has an open transaction: what comes after offset {captured.end_of(tp.partition)} is not decided yet"
            for tp in captured.open_transactions
        ]
    return result


def _from_file(path: Path, wanted: _Wanted) -> Export:
    """A file that is not there holds no offsets, as for the worker; one that cannot be understood is corrupt."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Export(notes=[f"{path} does not exist: this worker has stored no offset yet"])
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from None
    return _collected(((entry.key, entry.value) for entry in decode_file(data)), wanted)


def _collected(pairs: Iterable[tuple[bytes | None, bytes | None]], wanted: _Wanted) -> Export:
    result = Export()
    foreign = 0
    for raw_key, raw_value in pairs:
        key = decode_key(raw_key) if raw_key is not None else None
        if key is None:
            foreign += 1
            continue
        unwanted = wanted.connectors is not None and key.connector not in wanted.connectors
        if unwanted or (raw_value is None and not wanted.everything):
            continue
        try:
            offset = None if raw_value is None else dict(decode_value(raw_value))
        except Invalid as error:
            result.notes.append(f"{key.connector} {key.partition}: {error.what}; left out")
            continue
        pair: Pair = {"partition": dict(key.partition), "offset": offset}
        result.connectors.setdefault(key.connector, []).append(pair)
    if foreign:
        result.notes.append(f"{foreign} record(s) have a key that is not Connect's; left out")
    return result
