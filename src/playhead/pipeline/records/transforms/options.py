"""`transforms` and `predicates` of a connector -> a chain of transforms; all faults are reported at once.

Names and defaults of the options are those of Kafka 4.3. Every option is honoured or refused by its name: an option that Kafka's
transform does not know would be silently ignored by a worker, so it is refused too.
"""

from collections.abc import Mapping
from dataclasses import replace

from playhead.errors import ConfigInvalid, Fault, near_names
from playhead.pipeline.records.javanumbers import BLANKS
from playhead.pipeline.records.transforms import (
    HasHeader,
    IsTombstone,
    Predicate,
    Stage,
    Stages,
    TopicMatches,
)
from playhead.pipeline.records.transforms.classes import CLASSES, PACKAGE, Given, split_list

OF_TRANSFORMS = ("transforms", "predicates")  # with all that is below them
_PREDICATES = f"{PACKAGE}predicates."
_OF_ALL = ("type", "predicate", "negate")
_PARTITIONER = ("partitioner.class", "partitioner.ignore.keys")
_OF_PREDICATES = {"TopicNameMatches": ("pattern",), "HasHeaderKey": ("name",), "RecordIsTombstone": ()}


def parse_stages(config: Mapping[str, str]) -> Stages:
    return _Reading(config).read()


def refused_partitioners(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """For records with keys: the partition is chosen as Kafka's own producer does it, and in no other way."""
    given = {f"producer.override.{name}": config for name in _PARTITIONER}
    given |= {f"producer.{name}": worker for name in _PARTITIONER}
    return [
        Fault(name, None, "is not honoured for records with keys: the partition is chosen by the key, as Kafka does it")
        for name, settings in given.items()
        if settings.get(name, "").strip() not in ("", "null", "false")
    ]


class _Reading:
    """One pass over a config that keeps going after a fault."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._faults: list[Fault] = []

    def read(self) -> Stages:
        predicates = {alias: self._predicate(alias) for alias in self._aliases("predicates")}
        chain: list[Stage] = []
        for alias in self._aliases("transforms"):
            stage = self._stage(alias, predicates)
            if stage is not None:
                chain.append(stage)
        if self._faults:
            raise ConfigInvalid(self._faults)
        return tuple(chain)

    def _fault(self, where: str, what: str) -> None:
        self._faults.append(Fault(where, None, what))

    def _aliases(self, option: str) -> list[str]:
        """In their order; faults for options that belong to none of them, and for an alias without a type."""
        aliases = split_list(self._config.get(option, ""))
        if len(set(aliases)) < len(aliases):
            self._fault(option, "names one of them twice")
        for name in self._config:
            if name.startswith(f"{option}.") and not any(name.startswith(f"{option}.{alias}.") for alias in aliases):
                self._fault(name, f"belongs to nothing that {option!r} names")
        typed = [alias for alias in dict.fromkeys(aliases) if self._config.get(f"{option}.{alias}.type", "").strip()]
        for alias in aliases:
            if alias not in typed:
                self._fault(option, f"names {alias!r}, which has no {option}.{alias}.type")
        return typed

    def _stage(self, alias: str, predicates: Mapping[str, Predicate | None]) -> Stage | None:
        prefix = f"transforms.{alias}."
        name, on_key = _split_class(self._config[f"{prefix}type"].strip().removeprefix(PACKAGE))
        known = CLASSES.get(name)
        if known is None or known.is_sided != (on_key is not None):
            self._fault(f"{prefix}type", self._unknown_class(self._config[f"{prefix}type"].strip(), name))
            return None
        given = self._given(prefix)
        for option in given.options:
            if option not in (*known.options, *_OF_ALL):
                what = known.gone.get(option) or f"is not an option of {name}; {near_names(option, known.options)}"
                self._fault(prefix + option, what)
        before = len(self._faults)
        change, only_if = known.parse(given), self._only_if(given, predicates)
        return None if change is None or len(self._faults) > before else Stage(alias, change, bool(on_key), only_if)

    def _only_if(self, given: Given, predicates: Mapping[str, Predicate | None]) -> Predicate | None:
        alias = given.options.get("predicate", "").strip()
        negate = given.flag("negate", default=False)
        if not alias:
            if "negate" in given.options:
                self._fault(f"{given.prefix}negate", "has no meaning without a predicate")
            return None
        if alias not in predicates:
            self._fault(f"{given.prefix}predicate", f"names {alias!r}, which 'predicates' does not")
            return None
        predicate = predicates[alias]
        return None if predicate is None else replace(predicate, negate=negate)

    def _predicate(self, alias: str) -> Predicate | None:
        prefix = f"predicates.{alias}."
        given = self._given(prefix)
        class_name = given.options["type"].strip()
        name = class_name.removeprefix(_PREDICATES)
        if name not in _OF_PREDICATES:
            what = f"the Spark engine has no predicate {class_name}; it knows {', '.join(_OF_PREDICATES)}"
            self._fault(f"{prefix}type", what)
            return None
        for option in given.options:
            if option not in ("type", *_OF_PREDICATES[name]):
                self._fault(prefix + option, f"is not an option of {name}")
        if name == "TopicNameMatches":
            return TopicMatches(given.pattern("pattern"))
        return HasHeader(given.text("name")) if name == "HasHeaderKey" else IsTombstone()

    def _given(self, prefix: str) -> Given:
        options = {name: text.strip(BLANKS) for name, text in self._below(prefix).items()}
        return Given(prefix, options, self._faults)

    def _unknown_class(self, class_name: str, name: str) -> str:
        if name in CLASSES:
            sides = f"{name}$Key or {name}$Value" if CLASSES[name].is_sided else name
            return f"{class_name} is no transform; it is {sides}"
        return f"the Spark engine has no transform {class_name}; it knows {', '.join(sorted(CLASSES))}"

    def _below(self, prefix: str) -> dict[str, str]:
        return {name[len(prefix) :]: value for name, value in self._config.items() if name.startswith(prefix)}


def _split_class(name: str) -> tuple[str, bool | None]:
    """`Cast$Key` -> Cast, on the key. Without a `$`: None."""
    bare, dollar, side = name.partition("$")
    return (bare, side == "Key") if dollar and side in ("Key", "Value") else (name, None)
