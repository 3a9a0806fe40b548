"""A stop that leaves a task behind, and the second stop that ends it.

Seen on Kafka 4.3.1: a connector is stopped while a change of its config is starting its task. The connector is STOPPED and
has no task configured, but the task's status stays RUNNING for good. A second request to stop ends it within a moment.
"""

import time
from dataclasses import dataclass
from typing import Protocol

from playhead.connect.answers import ConnectorStatus

PATIENCE_SECONDS = 3.0  # tasks of a healthy stop are gone long before


class Stops(Protocol):
    def stop(self, name: str) -> None: ...


@dataclass
class StuckStop:
    """Of one connector that is to be stopped: call `look` with each status that is seen while it is waited for."""

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
