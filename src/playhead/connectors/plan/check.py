"""Checks connector specs before anything is sent: the worker's own validation, unknown keys, masks, names.

Several specs are validated in parallel. A validation changes nothing on the worker and nothing in the client, so threads may
share one client. An unreachable worker ends the whole check. A connector that cannot be checked is a finding.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum

from playhead.config.scrub import Scrub
from playhead.config.secrets import SecretKeys
from playhead.connect.answers import Validation
from playhead.connect.rest import Rest
from playhead.connectors.python_classes import check_file, names_python, types_of
from playhead.errors import Fault, NotFound, PlayheadError, Rejected, TimedOut, WrongProtocol, near_names
from playhead.kafka.properties import CONSUMER, PRODUCER, RENAMED, SAME, SPECIAL
from playhead.model.connector import ConnectorSpec, Engine

Types = dict[str, str]
CONVERTERS = ("key.converter", "value.converter", "header.converter")
ENRICHED = ("transforms", "predicates")
# In addition to the plugin's own keys.
ENRICHMENT = {"type": "CLASS", "plugin.version": "STRING", "predicate": "STRING", "negate": "BOOLEAN"}


def validated_types(validation: Validation) -> Types:
    """A client override that the worker does not know has no definition."""
    return {key.definition.name: key.definition.type for key in validation.configs if key.definition}


def undefined_keys(validation: Validation) -> set[str]:
    return {key.value.name for key in validation.configs if not key.definition}


def aliases(config: Mapping[str, str], kind: str) -> list[str]:
    """The names in `transforms` or `predicates`."""
    return [name.strip() for name in config.get(kind, "").split(",") if name.strip()]


def nested_plugins(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Prefix and class of every transform, predicate and converter that a config names."""
    for kind in ENRICHED:
        for alias in aliases(config, kind):
            if plugin := config.get(f"{kind}.{alias}.type"):
                yield f"{kind}.{alias}.", plugin
    for converter in CONVERTERS:
        if plugin := config.get(converter):
            yield f"{converter}.", plugin


class PluginKeys:
    """The key lists of a worker's plugins, cached. Several threads may use it: at worst a list is requested twice."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._known: dict[str, Types] = {}

    def of(self, plugin: str) -> Types:
        """Empty for a plugin that the worker does not know, or whose keys it does not return."""
        if plugin not in self._known:
            self._known[plugin] = self._requested(plugin)
        return self._known[plugin]

    def types_of(self, config: Mapping[str, str]) -> Types:
        """The type of every key that the plugins of a config define, by its full name."""
        own = config.get("connector.class", "").strip()
        types = dict(self.of(own)) if own else {}
        for prefix, plugin in nested_plugins(config):
            types |= self.nested(prefix, plugin)
        return types

    def nested(self, prefix: str, plugin: str) -> Types:
        found = self.of(plugin)
        if found and prefix.partition(".")[0] in ENRICHED:
            found = found | ENRICHMENT
        return {prefix + name: kind for name, kind in found.items()}

    def completed(self, types: Types, config: Mapping[str, str]) -> Types:
        """The types of a validation, plus the keys of plugins for which it returned none."""
        for prefix, plugin in nested_plugins(config):
            defined = [key for key in types if key.startswith(prefix) and key.removeprefix(prefix) not in ENRICHMENT]
            used = [key for key in config if key.startswith(prefix) and key not in types]
            if used and not defined:
                types = types | self.nested(prefix, plugin)
        return types

    def _requested(self, plugin: str) -> Types:
        try:
            return {key.name: key.type for key in self._rest.get_plugin_keys(plugin)}
        except (NotFound, Rejected):
            return {}


def plugin_is_there(rest: Rest, plugin: str) -> tuple[bool, list[str]]:
    """Whether the worker has this connector class, by its name or a short form that Connect accepts; and the classes it has."""
    known = [found.class_ for found in rest.list_plugins()]
    short = [name.rpartition(".")[2].rpartition("$")[2] for name in known]
    forms = {*known, *short, *(name.removesuffix("Connector") for name in short)}
    return plugin in forms, known


# Lint: keys that nothing reads. A worker accepts them: a typo passes its validation and has no effect. A key
# is known when the worker defines it for the connector or for a transform, predicate or converter that the config names, or
# when it belongs to a family with open names: client overrides, topic creation groups. Connectors may pass keys on to a
# driver, so an unknown key is never an error: a warning if it looks like a known one, else a note.

NEAR = 0.82
OVERRIDES = ("producer.override.", "consumer.override.", "admin.override.")
_CREATION = "topic.creation."
_CREATION_KEYS = ("replication.factor", "partitions", "include", "exclude")
_CLIENT_NAMES = sorted(
    SAME | RENAMED.keys() | PRODUCER | CONSUMER | SPECIAL | {"max.poll.records", "auto.offset.reset", "group.id"}
)
_OF_WORKER = re.compile(r"config\.providers(\.|$)")


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class KeyFinding:
    """A fault, or a possible one. `refuses`: a guard of Playhead found it. `key` empty: it is about the whole connector.

    `is_unasked`: nothing is known to be wrong, but the worker could not be asked.
    """

    level: Severity
    key: str
    what: str
    origin: str = ""
    refuses: bool = False
    is_unasked: bool = False

    def __str__(self) -> str:
        return f"{self.level}: {self.key}: {self.what}" if self.key else f"{self.level}: {self.what}"


def lint_keys(config: Mapping[str, str], types: Mapping[str, str], undefined: Collection[str] = ()) -> list[KeyFinding]:
    """`undefined`: keys without a definition in the worker's answer. Without any definition nothing is reported."""
    if not types:
        return []
    overrides = [_override(key) for key in config if key in undefined and key.startswith(OVERRIDES)]
    unread = [key for key in config if key not in types and not key.startswith(OVERRIDES)]
    return overrides + [finding for key in unread for finding in _lint_key(key, config, types)]


def _lint_key(key: str, config: Mapping[str, str], types: Mapping[str, str]) -> Iterator[KeyFinding]:
    kind, _, rest = key.partition(".")
    converter = next((name for name in CONVERTERS if key.startswith(f"{name}.")), None)
    if kind in ENRICHED and rest:
        yield from _enriched(key, kind, config, types)
    elif converter:
        yield from _of_converter(key, converter, config, types)
    elif key.startswith(_CREATION) and "topic.creation.groups" in types:
        yield from _creation(key, config)
    elif _OF_WORKER.match(key):
        yield KeyFinding(Severity.WARNING, key, "has no effect: providers are declared in the worker's own file")
    elif key not in ("name", "connector.class"):
        yield _unknown(key, types)


def _enriched(key: str, kind: str, config: Mapping[str, str], types: Mapping[str, str]) -> Iterator[KeyFinding]:
    """`transforms.ALIAS.KEY`. An alias may hold dots itself."""
    declared = aliases(config, kind)
    alias = next((name for name in declared if key.startswith(f"{kind}.{name}.")), None)
    if alias is None:
        near = get_close_matches(key.split(".")[1], declared, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it names: {', '.join(declared)}" if declared else "it is empty"
        yield KeyFinding(Severity.WARNING, key, f"has no effect: {kind!r} does not name it; {hint}")
        return
    prefix = f"{kind}.{alias}."
    if any(name.startswith(prefix) and name.removeprefix(prefix) not in ENRICHMENT for name in types):
        yield _unknown(key, [name for name in types if name.startswith(prefix)])


def _of_converter(
    key: str, converter: str, config: Mapping[str, str], types: Mapping[str, str]
) -> Iterator[KeyFinding]:
    """Without a converter here, the worker's converter and its settings are used."""
    if not config.get(converter):
        what = f"has no effect: {converter} is not set here, so the worker's converter and its own settings are used"
        yield KeyFinding(Severity.WARNING, key, what)
    elif known := [n for n in types if n.startswith(f"{converter}.") and n != f"{converter}.plugin.version"]:
        yield _unknown(key, known)


def _override(key: str) -> KeyFinding:
    """The worker reports only that its clients lack a setting, not which settings they have."""
    prefix = next(start for start in OVERRIDES if key.startswith(start))
    near = get_close_matches(key.removeprefix(prefix), _CLIENT_NAMES, n=1, cutoff=0.7)
    if not near:  # an interceptor or a login module may read it
        return KeyFinding(Severity.NOTE, key, "no Kafka client knows this setting")
    return KeyFinding(Severity.WARNING, key, f"no Kafka client knows this setting; did you mean {prefix}{near[0]}?")


def _creation(key: str, config: Mapping[str, str]) -> Iterator[KeyFinding]:
    """After the group comes one of four keys or any topic setting."""
    groups = ["default", *aliases(config, "topic.creation.groups")]
    group = next((name for name in groups if key.startswith(f"{_CREATION}{name}.")), None)
    if group is None:
        yield KeyFinding(Severity.WARNING, key, f"has no effect: topic.creation.groups names only {', '.join(groups)}")
        return
    setting = key.removeprefix(f"{_CREATION}{group}.")
    near = get_close_matches(setting, _CREATION_KEYS, n=1, cutoff=NEAR)
    if near and setting not in _CREATION_KEYS:
        yield KeyFinding(Severity.WARNING, key, f"unknown key; did you mean {_CREATION}{group}.{near[0]}?")


def _unknown(key: str, known: Mapping[str, str] | list[str]) -> KeyFinding:
    near = get_close_matches(key, list(known), n=1, cutoff=NEAR)
    if near:
        return KeyFinding(Severity.WARNING, key, f"unknown key; did you mean {near[0]}?")
    return KeyFinding(Severity.NOTE, key, "the worker does not know this key; the connector gets it as it is")


AT_ONCE = 8
VALIDATION_SHARE = 0.7  # of the time: the rest is for what else the plan asks
UNVALIDATED = "--allow-unvalidated"
# The names that `Rest.create_connector` refuses.
_NOT_ADDRESSABLE = re.compile(r"[/\\%;{}]|^\.{1,2}$")


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the user accepts. `missing_topics`: topics that nobody creates. `unvalidated`: configs the worker did not check."""

    missing_topics: bool = False
    unvalidated: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """`types`: every key the worker knows for this config."""

    findings: tuple[KeyFinding, ...] = ()
    types: Types = field(default_factory=dict)

    @property
    def secrets(self) -> SecretKeys:
        return SecretKeys.of_types(self.types)


def check_specs(
    rest: Rest, specs: Sequence[ConnectorSpec], plugins: PluginKeys, *, allow_unvalidated: bool = False
) -> dict[str, Check]:
    """Name -> findings. The worker cannot validate a connector of another engine: only masks are checked.

    A validation may wait for a system that does not answer, so it has a part of the time only. A connector that was not
    validated is an error, unless `allow_unvalidated`.
    """
    if not specs:
        return {}
    level = Severity.WARNING if allow_unvalidated else Severity.ERROR
    with (
        rest.within(rest.deadline.within(rest.deadline.remaining() * VALIDATION_SHARE)),
        ThreadPoolExecutor(min(AT_ONCE, len(specs)), "validate") as pool,
    ):
        answers = list(pool.map(lambda spec: _asked(rest, spec), specs))
    checks = [_check(rest, spec, answer, plugins, level) for spec, answer in zip(specs, answers, strict=True)]
    return {spec.name.strip(): check for spec, check in zip(specs, checks, strict=True)}


def check_python(specs: Sequence[ConnectorSpec]) -> dict[str, Check]:
    """Of connectors in Python, of which no worker knows anything."""
    return {spec.name.strip(): _python_check(spec, check_file(spec) or []) for spec in specs}


def _python_check(spec: ConnectorSpec, faults: Sequence[Fault]) -> Check:
    found = tuple(KeyFinding(Severity.ERROR, one.where, one.what) for one in faults)
    return _finished(spec, Check(found, types_of(spec.connector_class)))


def _asked(rest: Rest, spec: ConnectorSpec) -> Validation | PlayheadError | None:
    """The worker's answer, or why there is none. None: it is not asked."""
    if spec.engine is not Engine.CONNECT or not spec.connector_class.strip() or names_python(spec.connector_class):
        return None
    try:
        return rest.validate(spec.connector_class.strip(), {**spec.config, "name": spec.name.strip()})
    except (TimedOut, WrongProtocol, Rejected, NotFound) as error:
        return error


def _check(
    rest: Rest,
    spec: ConnectorSpec,
    answer: Validation | PlayheadError | None,
    plugins: PluginKeys,
    unvalidated: Severity,
) -> Check:
    if (faults := check_file(spec)) is not None:
        return _python_check(spec, faults)
    if spec.engine is not Engine.CONNECT:
        return _finished(spec, Check())
    if not spec.connector_class.strip():
        fault = KeyFinding(Severity.ERROR, "connector.class", "is missing: it names the plugin to run")
        return _finished(spec, Check((fault,)))
    match answer:
        case Validation():
            return _finished(spec, _judged(spec, answer, plugins))
        case TimedOut() | WrongProtocol():
            hint = (
                "" if unvalidated is Severity.WARNING else f"; give it more time with --timeout, or add {UNVALIDATED}"
            )
            what = f"could not be validated: {answer.what}{hint}"
            fault = KeyFinding(unvalidated, "", what, is_unasked=True)
        case PlayheadError():
            reason = answer.message if isinstance(answer, Rejected) and answer.message else answer.what
            fault = _not_validated(rest, spec, reason)
        case None:
            return _finished(spec, Check())
    return _finished(spec, Check((fault,), plugins.types_of(spec.config)))


def _judged(spec: ConnectorSpec, answer: Validation, plugins: PluginKeys) -> Check:
    types = plugins.completed(validated_types(answer), spec.config)
    faults = [KeyFinding(Severity.ERROR, key, "; ".join(errors)) for key, errors in answer.errors().items()]
    named = {fault.key for fault in faults}
    lint = [f for f in lint_keys(spec.config, types, undefined_keys(answer)) if f.key not in named]
    return Check((*faults, *lint), types)


def _not_validated(rest: Rest, spec: ConnectorSpec, reason: str) -> KeyFinding:
    """The most common reason is a missing class. The worker's own answer then lists every class it has."""
    plugin = spec.connector_class.strip()
    there, known = plugin_is_there(rest, plugin)
    if there:
        return KeyFinding(Severity.ERROR, "", f"the worker could not validate it: {reason}")
    hint = near_names(plugin, known)
    return KeyFinding(
        Severity.ERROR, "connector.class", f"plugin missing on the worker: {plugin}" + (f"; {hint}" if hint else "")
    )


def _finished(spec: ConnectorSpec, check: Check) -> Check:
    """Adds our own guards first. Adds the origin to every finding and masks the secrets of the config."""
    scrub = Scrub(check.secrets.literals(spec.config))
    found = [*_guards(spec, check.secrets), *check.findings]
    return Check(tuple(_placed(finding, spec, scrub) for finding in found), check.types)


def _guards(spec: ConnectorSpec, secrets: SecretKeys) -> Iterator[KeyFinding]:
    if _NOT_ADDRESSABLE.search(spec.name.strip()) and spec.engine is Engine.CONNECT:
        what = "this name could be created, but not requested by REST afterwards: choose one without / \\ % ; { }"
        yield KeyFinding(Severity.ERROR, "", what, refuses=True)
    for key, value in spec.config.items():
        if secrets.is_masked(key, value):
            what = "holds a mask in place of a value, which would overwrite the real one: write a reference like ${file:...}"
            yield KeyFinding(Severity.ERROR, key, what, refuses=True)


def _placed(finding: KeyFinding, spec: ConnectorSpec, scrub: Scrub) -> KeyFinding:
    origin = _origins(spec).get(finding.key, str(spec.origin))
    return replace(finding, what=scrub(finding.what), origin=origin)


def _origins(spec: ConnectorSpec) -> Mapping[str, str]:
    return {key: str(origin) for key, origin in spec.origins.items()}
