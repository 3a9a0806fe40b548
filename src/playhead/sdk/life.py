"""The life of a connector, wherever it runs: its config read, its work cut into tasks, a task begun.

What the connector itself does wrong is `Rejected`, with a sentence that names the call. What it says is temporary is `Busy`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import Any

from playhead.errors import Busy, ConfigInvalid, Fault, PlayheadError, Rejected
from playhead.model.position import INT64_MAX, INT64_MIN, Map
from playhead.model.secret import Secret
from playhead.sdk.options import Config, read_config, unknown_names
from playhead.sdk.records import RecordColumns, SourceRecord, check_record, goes_back, is_plain, position_map
from playhead.sdk.source import Offsets, RetriableException, SourceConnector, SourceTask, Transaction

_LONGEST = 300  # characters of what an exception says
_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_TEMPORARY_STATUS = (408, 425, 429)  # of the answers of HTTP that blame the request


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Around a call of the connector's code: exceptions become one sentence. `what`: `poll`, `start`."""
    try:
        yield
    except PlayheadError:
        raise
    except Exception as error:
        if _is_temporary(error):
            raise Busy(f"{what} could not reach its source: {_said(error)}") from error
        raise Rejected(f"{what} raised {_said(error)}{_place(error)}") from error


def _is_temporary(error: Exception) -> bool:
    """Connection errors are. A missing file is an OSError, too, and so is an answer of HTTP: a wrong token stays wrong."""
    if isinstance(error, RetriableException):
        return True
    if not isinstance(error, OSError) or isinstance(error, _LASTING):
        return False
    status = getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return not isinstance(status, int) or not 400 <= status < 500 or status in _TEMPORARY_STATUS


@contextmanager
def stopping(stop: Callable[[], object], what: str = "stop") -> Iterator[None]:
    """Calls `stop` at the end. After a failure it is that failure which is reported: what `stop` then raises follows from it."""
    try:
        yield
    except BaseException:
        with suppress(PlayheadError), calling(what):
            stop()
        raise
    with calling(what):
        stop()


def check_config(connector: type[Any], config: Mapping[str, str], own: Sequence[str]) -> list[Fault]:
    """All faults of the config. `own`: the given names that the connector has to know, because nothing else reads them."""
    values, faults = read_config(connector.config, config)
    faults = [*unknown_names(connector.config, own), *faults]
    if not faults:
        with calling("validate"):
            faults += [Fault("", None, str(one)) for one in connector.validate(values)]
    return faults


def typed_config(connector: type[Any], config: Mapping[str, str]) -> Config:
    values, faults = read_config(connector.config, config)
    if faults:
        raise ConfigInvalid(faults)
    return values


def cut_tasks(connector: type[SourceConnector], config: Mapping[str, str], max_tasks: int) -> list[dict[str, Any]]:
    """The task configs of a connector that is started and stopped for it. They are plain: options of the connector that it copied
    into them are left out, because each task gets them anyway."""
    values = typed_config(connector, config)
    with calling("the connector"):
        one = connector()
    with stopping(one.stop, "stop of the connector"):
        with calling("start of the connector"):
            one.start(values)
        with calling("task_configs"):
            found = list(one.task_configs(max_tasks))
    if len(found) > max_tasks:
        raise Rejected(f"task_configs({max_tasks}) gives {len(found)} tasks")
    return [_plain(number, task, values) for number, task in enumerate(found)]


def _plain(number: int, task: object, values: Config) -> dict[str, Any]:
    if not isinstance(task, Mapping):
        raise Rejected(f"task_configs gives a {type(task).__name__} for task {number}: it must be a dict")
    own = {name: value for name, value in task.items() if name not in values or values[name] != value}
    if any(isinstance(value, Secret) for value in own.values()):
        raise Rejected(
            f"task_configs gives task {number} a secret of its own: each task gets the connector's options anyway"
        )
    try:
        plain: dict[str, Any] = json.loads(json.dumps(own))
    except (TypeError, ValueError) as error:
        raise Rejected(f"the config of task {number} is not JSON: {error}") from None
    return plain


def new_task(
    connector: type[SourceConnector],
    config: Mapping[str, str],
    task_config: Mapping[str, Any],
    stored: Mapping[Map, Any],
) -> SourceTask:
    """A task that is started. If `start` fails it is stopped again."""
    values = typed_config(connector, config).joined(task_config)
    with calling("the task"):
        task = connector.task()
    task.transaction = Transaction()
    try:
        with calling("start"):
            task.start(values, Offsets(stored))
    except PlayheadError:
        with suppress(PlayheadError), calling("stop"):
            task.stop()
        raise
    return task


class Seen:
    """A source partition of which records were seen. `start`: its offset before them. `number` counts partitions of a tracker."""

    __slots__ = ("last", "number", "partition", "start")

    def __init__(self, number: int, partition: Map, start: Mapping[str, Any] | None) -> None:
        self.number = number
        self.partition = partition
        self.start = start
        self.last: Mapping[str, Any] | None = start


Compare = Callable[[Mapping[str, Any], Mapping[str, Any]], int | None]


class Tracker:
    """Checks records in their order, and remembers the newest offset of each source partition. Records are counted from 1 in each
    poll. Offsets must not go back, as far as `compare` knows."""

    def __init__(self, stored: Mapping[Map, Mapping[str, Any]], compare: Compare) -> None:
        self._stored = stored
        default = getattr(SourceConnector.compare_offsets, "__func__", compare)
        self._is_default = getattr(compare, "__func__", None) is default
        self._compare = compare
        self._goes_back = _goes_back if self._is_default else self._compares_back
        self._known: dict[object, Seen] = {}
        self.seen: list[Seen] = []
        self._fields: object = None
        self._now: Seen | None = None
        self._topic: object = None

    def read(self, records: Sequence[Any], first: int = 1) -> tuple[RecordColumns, list[int]]:
        """The records as columns, and the number of the source partition of each. Raises Rejected with the number of the record
        that is wrong."""
        if set(map(type, records)) <= {SourceRecord}:
            columns = RecordColumns.of(records)
            owner = self._read_alike(columns)
            if owner is not None:
                return columns, [owner] * len(records)
        owners = self._read_each(records, first)
        return RecordColumns.of(records), owners

    def _read_alike(self, columns: RecordColumns) -> int | None:
        """Quick for records of one topic and one source partition, with one whole number as their offset. None: they are not
        like that, or one of them is wrong."""
        topics, partitions, offsets = columns.topics, columns.partitions, columns.offsets
        count = len(topics)
        if (
            not self._is_default
            or not count
            or topics.count(topics[0]) < count
            or columns.timestamps.count(None) < count
            or columns.kafka_partitions.count(None) < count
            or (len(set(map(id, partitions))) > 1 and partitions.count(partitions[0]) < count)
            or set(map(type, offsets)) != {dict}
            or set(map(len, offsets)) != {1}
        ):
            return None
        [name] = offsets[0]
        try:
            numbers = list(map(itemgetter(name), offsets))
        except KeyError:
            return None
        if set(map(type, numbers)) != {int} or numbers != sorted(numbers):
            return None
        if type(name) is not str or not INT64_MIN <= numbers[0] <= numbers[-1] <= INT64_MAX:
            return None
        try:
            self._turn_to(SourceRecord(topics[0], partition=partitions[0], offset=offsets[0]))
        except (Rejected, TypeError):
            return None
        now: Seen = self._now  # type: ignore[assignment]
        if now.last is not None and self._goes_back(now.last, offsets[0]):
            return None
        now.last = offsets[-1]
        return now.number

    def _read_each(self, records: Sequence[Any], first: int) -> list[int]:
        owners: list[int] = []
        number = first - 1
        try:
            for record in records:
                number += 1
                if (
                    type(record) is not SourceRecord
                    or record.timestamp is not None
                    or record.kafka_partition is not None
                ):
                    check_record(record)
                if self._now is None or record.partition != self._fields or record.topic != self._topic:
                    self._turn_to(record)
                now: Seen = self._now  # type: ignore[assignment]
                if record.offset != now.last:
                    self._advance(now, record)
                owners.append(now.number)
        except Rejected as error:
            raise type(error)(f"record {number} of the poll{self._place()} {error.what}") from None
        except (TypeError, ValueError) as error:  # values that cannot be compared, such as arrays
            raise Rejected(
                f"record {number} of the poll{self._place()} has an offset or a partition of"
                f" another type than text and numbers: {_said(error)}"
            ) from None
        return owners

    def _advance(self, now: Seen, record: SourceRecord) -> None:
        offset, last = record.offset, now.last
        if type(offset) is not dict or not offset:
            check_record(record)
        if not is_plain(offset):
            position_map(offset, "offset")
        if last is not None and self._goes_back(last, offset):
            raise Rejected(f"goes back from the offset {dict(last)} to {offset}")
        now.last = offset

    def _compares_back(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        with calling("compare_offsets"):
            return self._compare(before, after) == 1

    def _turn_to(self, record: SourceRecord) -> None:
        check_record(record)
        fields = record.partition
        items = (*fields.items(), *map(type, fields.values()))
        try:
            found = self._known.get(items)
        except TypeError:
            position_map(fields, "partition")
            raise
        if found is None:
            partition = position_map(fields, "partition")
            found = self._known.get(partition)
            if found is None:
                found = self._known[partition] = Seen(len(self.seen), partition, self._stored.get(partition))
                self.seen.append(found)
            self._known[items] = found
        self._now, self._fields, self._topic = found, fields, record.topic

    def _place(self) -> str:
        now = self._now
        return "" if now is None else f" (after {now.partition} at {dict(now.last) if now.last else 'its start'})"


def _goes_back(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """As `goes_back`, quick for one whole number."""
    if len(before) == 1 and len(after) == 1:
        for name, old in before.items():
            new = after.get(name)
            if type(new) is int and type(old) is int:
                return new < old
    return goes_back(before, after)


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


def _place(error: BaseException) -> str:
    """The last line of the connector's own code, which is what its author looks for."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename != __file__:
            place = f" ({code.co_filename.rpartition('/')[2]}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return place
