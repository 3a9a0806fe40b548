"""A connector file for the Spark engine: references are resolved, the class must be known, every option is honoured or refused.

All files are checked before anything starts, and all faults of a connector are reported together.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from playhead.config.references import PLAIN_PROVIDERS, resolve
from playhead.errors import ConfigInvalid, Fault, Invalid, near_names
from playhead.model import ConnectorSpec
from playhead.pipeline.classes import CLASSES, ConnectorKind, check_options, find_kind, get_kind

TASKS = "tasks.max"
MOST_TASKS = 2**31 - 1
_PROVIDER = re.compile(r"\$\{([^}:]+):[^}]*\}")


@dataclass(frozen=True, slots=True)
class Ready:
    """A connector that can run here. `config` has its secrets in clear text: pass it to clients, never print it."""

    spec: ConnectorSpec
    config: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def kind(self) -> ConnectorKind:
        return get_kind(self.spec.connector_class)


@dataclass(frozen=True, slots=True)
class Sorted:
    """What can run here, and by name why the others cannot."""

    ready: Sequence[Ready]
    refused: Mapping[str, ConfigInvalid]

    def check(self) -> None:
        """Raises one error with the faults of all that are refused."""
        if faults := [fault for error in self.refused.values() for fault in error.faults]:
            raise _refusal(faults)


def sort_specs(specs: Sequence[ConnectorSpec], worker: Mapping[str, str]) -> Sorted:
    faults = {spec.name: _faults_of(spec, worker) for spec in specs}
    ready = [Ready(spec, _resolved(spec)) for spec in specs if not faults[spec.name]]
    return Sorted(ready, {name: _refusal(found) for name, found in faults.items() if found})


def check_specs(specs: Sequence[ConnectorSpec], worker: Mapping[str, str]) -> Sequence[Ready]:
    """All of them, or an error with all faults of all connectors."""
    found = sort_specs(specs, worker)
    found.check()
    return found.ready


def _refusal(faults: Sequence[Fault]) -> ConfigInvalid:
    return ConfigInvalid(faults, "leave the option out, or run this connector on Connect")


def _faults_of(spec: ConnectorSpec, worker: Mapping[str, str]) -> list[Fault]:
    kind = find_kind(spec.connector_class)
    if kind is None:
        near = near_names(spec.connector_class, list(CLASSES))
        named = spec.connector_class or "(none)"
        what = f"Spark does not run the class {named}, and no class in Python of this name is installed or on plugin.path; {near}"
        return [_fault(spec, "connector.class", what)]
    try:
        config = _resolved(spec)
    except Invalid as error:
        return [_fault(spec, "", f"{error.what}; {error.hint}" if error.hint else error.what)]
    found = [*_task_faults(config), *check_options(kind, config, worker)]
    return [_fault(spec, fault.where, fault.what) for fault in found]


def _task_faults(config: Mapping[str, str]) -> list[Fault]:
    """Spark decides the number of tasks, but a file that Connect would refuse is refused here too."""
    given = config.get(TASKS, "1").strip()
    if re.fullmatch(r"\+?[0-9]{1,10}", given) and 1 <= int(given) <= MOST_TASKS:
        return []
    return [Fault(TASKS, None, f"must be a whole number from 1 on, not {given!r}")]


def _fault(spec: ConnectorSpec, key: str, what: str) -> Fault:
    """With the line that set the key, if known."""
    origin = spec.origins.get(key, spec.origin)
    place = origin.where or spec.name
    return Fault(place, origin.line, f"{spec.name}: {key + ': ' if key else ''}{what}")


def _resolved(spec: ConnectorSpec) -> dict[str, str]:
    """The config with its references resolved and its name, as in Connect."""
    config = {"name": spec.name}
    for key, value in spec.config.items():
        for provider in _PROVIDER.findall(value):
            if provider not in PLAIN_PROVIDERS:
                raise Invalid(f"{key}: only a Connect worker can resolve references to {provider!r}", "use ${env:NAME}")
        config[key] = resolve(value)
    return config
