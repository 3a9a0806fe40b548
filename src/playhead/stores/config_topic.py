"""Connector configurations, read directly from the workers' config topic. Used if no worker answers.

Values of a configuration may be secrets in plain text. Use the result to look up single keys; never show it.
"""

from typing import TypeVar

import msgspec

from playhead.errors import NotFound
from playhead.kafka.client import Admin
from playhead.kafka.log import capture, read_latest
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline

_CONNECTOR, _FENCING = b"connector-", b"tasks-fencing-"
T = TypeVar("T")


class _Properties(msgspec.Struct):
    properties: dict[str, str | None]


class _Tasks(msgspec.Struct):
    tasks: int = msgspec.field(name="task-count")


def read_connector_configs(
    settings: ClientSettings, topic: str, deadline: Deadline
) -> dict[str, dict[str, str | None]]:
    """Connector name -> its configuration. Empty if the config topic does not exist."""
    found = _read(settings, topic, deadline, _CONNECTOR, _Properties)
    return {name: entry.properties for name, entry in found.items()}


def read_fencing_counts(settings: ClientSettings, topic: str, deadline: Deadline) -> dict[str, int]:
    """Connector name -> the tasks it had when the workers last fenced them, each with a transactional id of its own."""
    return {name: entry.tasks for name, entry in _read(settings, topic, deadline, _FENCING, _Tasks).items()}


def _read(settings: ClientSettings, topic: str, deadline: Deadline, prefix: bytes, kind: type[T]) -> dict[str, T]:
    with Admin(settings, deadline) as admin:
        try:
            captured = capture(admin, topic, deadline)
        except NotFound:
            return {}
        latest = read_latest(admin, captured, deadline)
    found = {}
    for record in latest.records:
        if record.key is not None and record.key.startswith(prefix) and record.value is not None:
            try:
                entry = msgspec.json.decode(record.value, type=kind)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # not a value for this key: the workers skip it too
            found[record.key.removeprefix(prefix).decode("utf-8", "replace")] = entry
    return found
