"""Short ways to write connector files in tests."""

from dataclasses import replace
from pathlib import Path

import pytest

from playhead.connectors.files import read_specs
from playhead.errors import ConfigInvalid
from playhead.model import ConnectorSpec, Origin

CLASS = "x.Source"


def bare(specs: list[ConnectorSpec]) -> list[ConnectorSpec]:
    """Without where they came from, for comparing."""
    return [replace(spec, origin=Origin(""), origins={}) for spec in specs]


def yaml(text: str) -> list[ConnectorSpec]:
    return read_specs(["-"], stdin=text.encode())


def config_of(text: str) -> dict[str, str]:
    (spec,) = yaml(text)
    return dict(spec.config)


def faults(text: str | bytes) -> list[str]:
    with pytest.raises(ConfigInvalid) as raised:
        read_specs(["-"], stdin=text if isinstance(text, bytes) else text.encode())
    return [str(fault).removeprefix("stdin:").removeprefix(" ") for fault in raised.value.faults]


def file_faults(*paths: Path) -> list[str]:
    with pytest.raises(ConfigInvalid) as raised:
        read_specs(list(paths))
    return [str(fault).replace(f"{paths[0].parent}/", "") for fault in raised.value.faults]
