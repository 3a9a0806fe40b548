"""The clients that a connector's tasks would have: as the worker file says for all of them, then by the connector's overrides."""

from collections.abc import Mapping
from dataclasses import replace

from playhead.config import Setting
from playhead.config.references import declared_providers, resolve
from playhead.kafka.properties import ClientSettings, translate

PRODUCER, CONSUMER = "producer.", "consumer."


def side_properties(side: str, worker: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    """Of the side PRODUCER or CONSUMER, in Java's names. The config's references are resolved already, the worker's by the
    providers that its own file declares."""
    override, providers = f"{side}override.", declared_providers(worker)
    named = {key.removeprefix(side): resolve(value, providers) for key, value in worker.items() if key.startswith(side)}
    return named | {key.removeprefix(override): value for key, value in config.items() if key.startswith(override)}


def laid_over(settings: ClientSettings, side: str, properties: Mapping[str, str]) -> ClientSettings:
    """The settings with these properties in place of their own."""
    translated = translate({key: Setting(value, side + key) for key, value in properties.items()})
    return replace(
        settings,
        common={**settings.common, **translated.common},
        producer={**settings.producer, **translated.producer},
        consumer={**settings.consumer, **translated.consumer},
    )
