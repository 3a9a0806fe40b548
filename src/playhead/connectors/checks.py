"""What is wrong with connector specs, before anything is sent: the worker's own validation, unknown keys, masks, names.

Many are validated at once. A validation changes nothing on the worker and nothing in the client, which is why the threads may
share one. A worker that cannot be reached ends the whole; one connector that cannot be checked is a finding.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from playhead.connect.answers import Validation
from playhead.connect.rest import Rest
from playhead.connectors.definitions import PluginKeys, Types, plugin_is_there, undefined_keys, validated_types
from playhead.connectors.lint import Finding, Level, lint_keys
from playhead.connectors.secrets import Scrub, SecretKeys
from playhead.errors import NotFound, Rejected, TimedOut, WrongProtocol, near_names
from playhead.model.connector import ConnectorSpec, Engine

AT_ONCE = 8
# As `Rest.create_connector` refuses them.
_UNASKABLE = re.compile(r"[/\\%;{}]|^\.{1,2}$")


@dataclass(frozen=True, slots=True)
class Check:
    """`types`: every key the worker knows for this config."""

    findings: tuple[Finding, ...] = ()
    types: Types = field(default_factory=dict)

    @property
    def secrets(self) -> SecretKeys:
        return SecretKeys.of_types(self.types)


def check_specs(rest: Rest, specs: Sequence[ConnectorSpec], plugins: PluginKeys) -> dict[str, Check]:
    """Name -> what was found. A connector of another engine is not the worker's to judge: only its masks are looked for."""
    if not specs:
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(specs)), "validate") as pool:
        checks = list(pool.map(lambda spec: _check(rest, spec, plugins), specs))
    return {spec.name.strip(): check for spec, check in zip(specs, checks, strict=True)}


def _check(rest: Rest, spec: ConnectorSpec, plugins: PluginKeys) -> Check:
    if spec.engine is not Engine.CONNECT:
        return _finished(spec, Check())
    if not spec.connector_class.strip():
        fault = Finding(Level.ERROR, "connector.class", "is missing: it names the plugin that does the work")
        return _finished(spec, Check((fault,)))
    try:
        answer = rest.validate(spec.connector_class.strip(), {**spec.config, "name": spec.name.strip()})
    except (TimedOut, WrongProtocol) as error:
        fault = Finding(Level.WARNING, "", f"was not validated: {error.what}")
        return _finished(spec, Check((fault,), plugins.types_of(spec.config)))
    except (Rejected, NotFound) as error:
        said = error.message if isinstance(error, Rejected) and error.message else error.what
        return _finished(spec, Check((_not_validated(rest, spec, said),), plugins.types_of(spec.config)))
    return _finished(spec, _judged(spec, answer, plugins))


def _judged(spec: ConnectorSpec, answer: Validation, plugins: PluginKeys) -> Check:
    types = plugins.completed(validated_types(answer), spec.config)
    faults = [Finding(Level.ERROR, key, "; ".join(errors)) for key, errors in answer.errors().items()]
    named = {fault.key for fault in faults}
    lint = [f for f in lint_keys(spec.config, types, undefined_keys(answer)) if f.key not in named]
    return Check((*faults, *lint), types)


def _not_validated(rest: Rest, spec: ConnectorSpec, said: str) -> Finding:
    """A class that the worker does not have is the commonest reason, and its own answer is a page of all that it has."""
    plugin = spec.connector_class.strip()
    there, known = plugin_is_there(rest, plugin)
    if there:
        return Finding(Level.ERROR, "", f"the worker could not validate it: {said}")
    hint = near_names(plugin, known)
    return Finding(
        Level.ERROR, "connector.class", f"plugin missing on the worker: {plugin}" + (f"; {hint}" if hint else "")
    )


def _finished(spec: ConnectorSpec, check: Check) -> Check:
    """Our own guards first; then every finding with its place, and without the secrets of the config."""
    scrub = Scrub(check.secrets.literals(spec.config))
    found = [*_guards(spec, check.secrets), *check.findings]
    return Check(tuple(_placed(finding, spec, scrub) for finding in found), check.types)


def _guards(spec: ConnectorSpec, secrets: SecretKeys) -> Iterator[Finding]:
    if _UNASKABLE.search(spec.name.strip()) and spec.engine is Engine.CONNECT:
        what = "this name could be created, but not be asked for again: choose one without / \\ % ; { }"
        yield Finding(Level.ERROR, "", what, refuses=True)
    for key, value in spec.config.items():
        if secrets.is_masked(key, value):
            what = "holds a mask in place of a value; sent, it would overwrite the real one: write a reference like ${file:...}"
            yield Finding(Level.ERROR, key, what, refuses=True)


def _placed(finding: Finding, spec: ConnectorSpec, scrub: Scrub) -> Finding:
    origin = _origins(spec).get(finding.key, str(spec.origin))
    return Finding(finding.level, finding.key, scrub(finding.what), origin, finding.refuses)


def _origins(spec: ConnectorSpec) -> Mapping[str, str]:
    return {key: str(origin) for key, origin in spec.origins.items()}
