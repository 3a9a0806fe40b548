"""Playhead: see, move and prove the position of every pipeline around Kafka.

The public names below are loaded on first use (PEP 562), so that `import playhead` costs nothing.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from playhead.config import open_context as open_context
    from playhead.consumer import consume as consume
    from playhead.handover.api import hand_over as hand_over
    from playhead.stores.open import open_store

_HOME = {
    "consume": "playhead.consumer",
    "hand_over": "playhead.handover.api",
    "open_context": "playhead.config",
    "open_store": "playhead.stores.open",
}
_MODULES = ("broker", "connectors", "offsets")

__all__ = ["__version__", "broker", "connectors", "consume", "hand_over", "offsets", "open_context", "open_store"]


def __getattr__(name: str) -> Any:
    if name not in _HOME and name not in _MODULES:
        raise AttributeError(f"module 'playhead' has no attribute {name!r}")
    from importlib import import_module

    return import_module(f"playhead.{name}") if name in _MODULES else getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
