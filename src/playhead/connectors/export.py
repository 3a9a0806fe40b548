"""Running connectors as specs, for a file that applies back with an empty plan.

Literal secrets never leave: each becomes a reference `${env:NAME_KEY}`, and a note says so. Until it is applied, a plan of the
file shows exactly these keys as changed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from playhead.config import Context
from playhead.connect.rest import open_rest
from playhead.connectors.definitions import PluginKeys
from playhead.connectors.names import choose_names
from playhead.connectors.plan import Running
from playhead.connectors.planning import observe
from playhead.connectors.secrets import SecretKeys
from playhead.model import Deadline
from playhead.model.connector import ConnectorSpec, Origin


@dataclass(frozen=True, slots=True)
class Replaced:
    """A secret that is a reference in the export. `masked`: the server did not even show it."""

    name: str
    key: str
    reference: str
    masked: bool


@dataclass(frozen=True, slots=True)
class Export:
    specs: tuple[ConnectorSpec, ...]
    replaced: tuple[Replaced, ...]


def export_connectors(context: Context, words: Sequence[str], deadline: Deadline) -> Export:
    """All of them, or those that names and patterns mean."""
    with open_rest(context, deadline) as rest:
        running = observe(rest)
        plugins = PluginKeys(rest)
        specs, replaced = [], []
        for name in choose_names(words, running):
            keys = SecretKeys.of_types(plugins.types_of(running[name].config))
            spec, found = exported(running[name], keys)
            specs.append(spec)
            replaced += found
    return Export(tuple(specs), tuple(replaced))


def exported(running: Running, keys: SecretKeys) -> tuple[ConnectorSpec, list[Replaced]]:
    names = _Names(running.name)
    config = {}
    replaced = []
    for key, value in running.config.items():
        masked = keys.is_masked(key, value)
        if masked and not keys.has_literal(key, value):
            config[key] = names.reference(key, value)
        else:
            config[key] = keys.replaced(key, value, partial(names.reference, key))
        if config[key] != value:
            replaced.append(Replaced(running.name, key, config[key], masked))
    return ConnectorSpec(running.name, config, state=running.state, origin=Origin("export")), replaced


class _Names:
    """A variable for every secret of a connector: by its key, with a number where one name would stand for two secrets."""

    def __init__(self, connector: str) -> None:
        self._connector = connector
        self._taken: dict[str, str] = {}

    def reference(self, key: str, secret: str) -> str:
        base = re.sub(r"[^A-Z0-9]+", "_", f"{self._connector}_{key}".upper()).strip("_")
        base = f"_{base}" if base[:1].isdigit() else base
        number = 1
        while self._taken.setdefault(_numbered(base, number), f"{key}={secret}") != f"{key}={secret}":
            number += 1
        return f"${{env:{_numbered(base, number)}}}"


def _numbered(base: str, number: int) -> str:
    return base if number == 1 else f"{base}_{number}"
