"""Positions: where each owner is, and moves that are planned, compared, journalled and undone. At a Python prompt:

    from playhead import offsets
    offsets.list("orders_src")
    offsets.set("orders_src", {"incrementing": 369034})                           the plan; nothing is changed
    offsets.set("orders_src", {"incrementing": 369034}, stop=True, execute=True)
    offsets.undo(execute=True)

The names are loaded on first use, so that a command that reads no position loads none of this.
"""

import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.offsets.api import Edit as Edit
    from playhead.offsets.api import OffsetList as OffsetList
    from playhead.offsets.api import OffsetRow as OffsetRow
    from playhead.offsets.api import OwnerOffsets as OwnerOffsets
    from playhead.offsets.api import OwnerPosition as OwnerPosition
    from playhead.offsets.api import copy as copy
    from playhead.offsets.api import delete as delete
    from playhead.offsets.api import list_ as list  # noqa: A004
    from playhead.offsets.api import reset, show, undo
    from playhead.offsets.api import set_ as set  # noqa: A004

__all__ = [
    "Edit",
    "OffsetList",
    "OffsetRow",
    "OwnerOffsets",
    "OwnerPosition",
    "copy",
    "delete",
    "list",
    "reset",
    "set",
    "show",
    "undo",
]
_OTHERWISE_NAMED = {"list": "list_", "set": "set_"}  # builtins where they are defined


class _Package(ModuleType):
    """Keeps `show`, `reset` and `undo` as functions. Python would replace them by the modules of these names once loaded."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'playhead.offsets' has no attribute {name!r}")
    return getattr(import_module("playhead.offsets.api"), _OTHERWISE_NAMED.get(name, name))


def __dir__() -> Iterable[str]:
    return sorted(__all__)
