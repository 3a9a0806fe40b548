"""The settings of a source's producers, checked with its file: `producer.` of the worker file and `producer.override.` of the
connector.

They have the names of the Java client. What librdkafka has under another name is translated; what a run decides itself is
refused, or named as being without effect. The rest is tried on a producer that contacts no broker, so that a wrong value is
found before anything starts and not in a task.
"""

import re
from collections.abc import Mapping

from playhead.config import Setting
from playhead.config.references import has_reference
from playhead.errors import Fault, Invalid
from playhead.kafka.bulk import find_fault
from playhead.kafka.properties import DROPPED, is_client_property, translate
from playhead.pipeline.connect_home import PRODUCER, side_properties

OVERRIDE = f"{PRODUCER}override."
# Only these values are possible in a transaction.
_ONLY = {"acks": ("all", "-1"), "enable.idempotence": ("true",)}
_OF_THE_RUN = {
    "transactional.id": "is not honoured on Spark: a run uses the transactional ids of Connect's tasks",
    "interceptor.classes": "is not honoured on Spark: an interceptor may change records",
    "key.serializer": "is not honoured on Spark: converters make the bytes",
    "value.serializer": "is not honoured on Spark: converters make the bytes",
}
# librdkafka reads "8MB" as 8.
_NUMBERS = (
    "batch.size",
    "delivery.timeout.ms",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "retries",
)
_TIMEOUT = "transaction.timeout.ms"
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
NO_EFFECT = "the run's producers decide it"


def check_producer(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    faults = [
        Fault(OVERRIDE + name, None, what)
        for name, what in _OF_THE_RUN.items()
        if config.get(OVERRIDE + name, "").strip()
    ]
    faults += [
        Fault(OVERRIDE + name, None, f"must be {allowed[0]}: a run writes in transactions")
        for name, allowed in _ONLY.items()
        if config.get(OVERRIDE + name, allowed[0]).strip().lower() not in allowed
    ]
    return faults or _tried(config, worker)


def unused_overrides(config: Mapping[str, str]) -> list[str]:
    """Overrides that change nothing here: buffers, metrics and JVM settings of the Java client."""
    names = [name for name in config if name.startswith(OVERRIDE)]
    return [name for name in names if DROPPED.fullmatch(key := name.removeprefix(OVERRIDE)) or key == _TIMEOUT]


def _tried(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """Each setting alone, to name the wrong one; then all together. Addresses and credentials are not tried: they may be files
    and references, and are reported when the first client is created."""
    named = {
        name: value
        for settings, prefix in ((worker, PRODUCER), (config, OVERRIDE))
        for name, value in settings.items()
        if name.startswith(prefix) and not is_client_property(name.removeprefix(prefix))
    }
    providers = {name: value for name, value in worker.items() if name.startswith("config.providers")}
    faults = []
    for name, value in named.items():
        what = _number_fault(name, value) or _fault_of({name: value}, providers)
        if what is not None:
            faults.append(Fault(name if name.startswith(OVERRIDE) else f"{name} of the worker file", None, what))
    if not faults and (what := _fault_of(named, providers)) is not None:
        faults.append(Fault(OVERRIDE + "*", None, what))
    return faults


def _number_fault(name: str, value: str) -> str | None:
    is_number = name.removeprefix(OVERRIDE).removeprefix(PRODUCER) in _NUMBERS and not has_reference(value)
    return f"must be a whole number, not {value!r}" if is_number and not _WHOLE.fullmatch(value.strip()) else None


def _fault_of(named: Mapping[str, str], providers: Mapping[str, str]) -> str | None:
    own = {name: value for name, value in named.items() if name.startswith(OVERRIDE)}
    others = {name: value for name, value in named.items() if name not in own}
    try:
        properties = side_properties(PRODUCER, {**providers, **others}, own)
        return find_fault(translate({name: Setting(value, name) for name, value in properties.items()}))
    except Invalid as error:
        return error.what
