"""Running connectors as specs, for a file that applies back with an empty plan.

Literal secrets never leave: each becomes a reference `${env:NAME_KEY}`, and a note says so. Until it is applied, a plan of the
file shows exactly these keys as changed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

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
            spec, found = _exported(running[name], keys)
            specs.append(spec)
            replaced += found
    return Export(tuple(specs), tuple(replaced))


def _exported(running: Running, keys: SecretKeys) -> tuple[ConnectorSpec, list[Replaced]]:
    config = {}
    replaced = []
    for key, value in running.config.items():
        reference = f"${{env:{_variable(running.name, key)}}}"
        masked = keys.is_masked(key, value)
        whole = masked and not keys.has_literal(key, value)
        config[key] = reference if whole else keys.replaced(key, value, lambda _, to=reference: to)  # type: ignore[misc]
        if config[key] != value:
            replaced.append(Replaced(running.name, key, reference, masked))
    return ConnectorSpec(running.name, config, state=running.state, origin=Origin("export")), replaced


def _variable(name: str, key: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", f"{name}_{key}".upper()).strip("_")
