"""Connectors of a contract test, deleted when it ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.workers import Connectors
from playhead.connect.rest import Rest
from playhead.lab import Lab
from playhead.model import Deadline


@pytest.fixture
def connectors(lab: Lab, rest: Rest, tmp_path: Path, deadline: Deadline) -> Iterator[Connectors]:
    made = Connectors(lab, rest, tmp_path, deadline)
    yield made
    made.clear()
