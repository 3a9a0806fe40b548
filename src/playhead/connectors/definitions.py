"""Which keys a worker knows for a config, and of which type: from its answer to a validation, else from its plugins' own lists.

A worker of Kafka 4 answers a validation with the keys of the connector and of the transforms, predicates, converters and client
overrides it names. An older one leaves some of them out; those are asked for, each plugin once.
"""

from collections.abc import Iterator, Mapping

from playhead.connect.answers import Validation
from playhead.connect.rest import Rest
from playhead.errors import NotFound, Rejected

Types = dict[str, str]
CONVERTERS = ("key.converter", "value.converter", "header.converter")
ENRICHED = ("transforms", "predicates")
# Beside the plugin's own keys.
ENRICHMENT = {"type": "CLASS", "plugin.version": "STRING", "predicate": "STRING", "negate": "BOOLEAN"}


def validated_types(validation: Validation) -> Types:
    """A client override that the worker does not know comes without a definition."""
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
    """The key lists of a worker's plugins, each asked for once. May be used by several threads: at worst one is asked twice."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._known: dict[str, Types] = {}

    def of(self, plugin: str) -> Types:
        """Empty for a plugin that the worker does not know, or whose keys it does not tell."""
        if plugin not in self._known:
            self._known[plugin] = self._asked(plugin)
        return self._known[plugin]

    def types_of(self, config: Mapping[str, str]) -> Types:
        """Of every key that the plugins of a config define, under its full name."""
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
        """What a validation answered, plus the keys of plugins of which it told none."""
        for prefix, plugin in nested_plugins(config):
            told = [key for key in types if key.startswith(prefix) and key.removeprefix(prefix) not in ENRICHMENT]
            used = [key for key in config if key.startswith(prefix) and key not in types]
            if used and not told:
                types = types | self.nested(prefix, plugin)
        return types

    def _asked(self, plugin: str) -> Types:
        try:
            return {key.name: key.type for key in self._rest.get_plugin_keys(plugin)}
        except (NotFound, Rejected):
            return {}


def plugin_is_there(rest: Rest, plugin: str) -> tuple[bool, list[str]]:
    """Whether the worker has this connector class, by its name or one of the short forms Connect takes; and what it has."""
    known = [found.class_ for found in rest.list_plugins()]
    short = [name.rpartition(".")[2].rpartition("$")[2] for name in known]
    forms = {*known, *short, *(name.removesuffix("Connector") for name in short)}
    return plugin in forms, known
