"""Replays in tests: as the command does them, in the session of the tests."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from playhead.config import Context, Setting
from playhead.model import ConnectorSpec


class Replay:
    """Replays of one connector in the session of the tests, with the ledger of `deliver`."""

    def __init__(self, deliver: Any, spec: ConnectorSpec, folder: Path) -> None:
        self.deliver, self.spec = deliver, spec
        self.file = folder / f"{spec.name}.json"
        self.write(spec)
        settings = {
            "worker-config": str(deliver.lab.worker_config),
            "ledger": f"sqlite:///{deliver.ledger.address.path}",
            "journal": str(folder / "journal"),
        }
        self.context = Context(None, {key: Setting(value, "here") for key, value in settings.items()})

    def write(self, spec: ConnectorSpec) -> None:
        self.file.write_text(json.dumps({"name": spec.name, "config": dict(spec.config)}))

    def planned(self, *ranges: str, **options: Any) -> Any:
        from playhead.pipeline.replay.asked import Asked, parse_range
        from playhead.pipeline.replay.run import ReplayOptions, planned_replay

        asked = {name: options.pop(name) for name in ("since", "until", "last", "object") if name in options}
        part = Asked(tuple(map(parse_range, ranges)), **asked)
        return planned_replay(self.context, self.spec.name, part, ReplayOptions(str(self.file), **options))

    def execute(self, *ranges: str, **options: Any) -> Any:
        from playhead.pipeline.replay.run import replay_on

        with self.planned(*ranges, **options) as planned:
            return list(replay_on(self.context, planned, self.deliver.spark)), planned.impossible

    def rows(self) -> list[Any]:
        """Start, generation and state of every range, by SQLite itself."""
        asked = (
            "select partition, start_offset, generation, state from playhead_ranges where pipeline = ? order by 1, 2, 3"
        )
        with closing(sqlite3.connect(self.deliver.ledger.address.path)) as database:
            return database.execute(asked, [self.spec.name]).fetchall()

    def position(self) -> list[Any]:
        columns = "partition, next_offset, published_offset, generation"
        asked = f"select {columns} from playhead_positions where pipeline = ? order by 1"
        with closing(sqlite3.connect(self.deliver.ledger.address.path)) as database:
            return database.execute(asked, [self.spec.name]).fetchall()
