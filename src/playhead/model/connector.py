"""The specification of a connector: config, engine, wanted state, and the origin of each key.

All values are text, as Connect stores them. References like `${file:...}` stay references.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from playhead.model.position import Positions


class Engine(StrEnum):
    CONNECT = "connect"
    SPARK = "spark"


class WantedState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a key was set: the file (or `stdin`, a Python module), its line, and the part: a connector, a template, `common`."""

    where: str
    line: int | None = None
    part: str = ""

    def __str__(self) -> str:
        place = f"{self.where}:{self.line}" if self.line else self.where
        return f"{place} ({self.part})" if self.part else place


@dataclass(frozen=True, slots=True)
class ConnectorSpec:
    """`config` has no `name` in it. `state` None: unchanged. `offsets`: where a new connector starts; None: its default.
    `is_engine_given`: False if `engine` is only the default."""

    name: str
    config: Mapping[str, str]
    engine: Engine = Engine.CONNECT
    state: WantedState | None = None
    offsets: Positions | None = None
    origin: Origin = field(default=Origin(""), compare=False)
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False)
    is_engine_given: bool = field(default=False, compare=False)

    @property
    def connector_class(self) -> str:
        return self.config.get("connector.class", "")

    @property
    def is_sink(self) -> bool:
        return bool(self.config.get("topics") or self.config.get("topics.regex"))
