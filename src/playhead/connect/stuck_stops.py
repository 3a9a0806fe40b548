"""Repeats a stop that leaves a task running.

Seen on Kafka 4.3.1: a connector is stopped while a change of its config is starting its task. The connector is STOPPED and
has no task configured, but the task's status stays RUNNING permanently. A second stop request ends it at once.
"""

import time
from dataclasses import dataclass
from typing import Protocol

from playhead.connect.answers import ConnectorStatus

PATIENCE_SECONDS = 3.0  # a normal stop ends its tasks long before


class Stops(Protocol):
    def stop(self, name: str) -> None: ...


@dataclass
class StuckStop:
    """For one connector that is being stopped: call `look` with each polled status."""

    name: str
    _since: float | None = None

    def look(self, rest: Stops, status: ConnectorStatus | None) -> None:
        now = time.monotonic()
        if status is None or status.connector.state != "STOPPED" or not status.tasks:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= PATIENCE_SECONDS:
            self._since = now
            rest.stop(self.name)
