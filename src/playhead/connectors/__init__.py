"""Connectors: files, plans, state and deletion. Scripts, notebooks and the command line use the same functions:

    from playhead import connectors
    connectors.list("orders*")
    connectors.plan("connectors.yaml")
    connectors.restart("orders*", only_failed=True, execute=True)

They are loaded on first use, so that reading a file of connectors does not load an HTTP client.
"""

import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.connectors.api import Answer as Answer
    from playhead.connectors.api import Answers as Answers
    from playhead.connectors.api import AppliedPlan, apply, export, plan, status, watch
    from playhead.connectors.api import Exported as Exported
    from playhead.connectors.api import Finding as Finding
    from playhead.connectors.api import Findings as Findings
    from playhead.connectors.api import Watched as Watched
    from playhead.connectors.api import create as create
    from playhead.connectors.api import delete as delete
    from playhead.connectors.api import list_ as list  # noqa: A004
    from playhead.connectors.api import pause as pause
    from playhead.connectors.api import restart as restart
    from playhead.connectors.api import resume as resume
    from playhead.connectors.api import show as show
    from playhead.connectors.api import stop as stop
    from playhead.connectors.api import validate as validate
    from playhead.connectors.status import ConnectorHealth as ConnectorHealth
    from playhead.connectors.status import ConnectorList as ConnectorList
    from playhead.connectors.status import ConnectorRow as ConnectorRow
    from playhead.connectors.status import ShownConnector as ShownConnector
    from playhead.connectors.status import list_connectors as list_connectors
    from playhead.connectors.status import list_names as list_names
    from playhead.connectors.status import show_connector as show_connector
    from playhead.model import ConnectorSpec as ConnectorSpec

_API, _FILES, _STATUS = "playhead.connectors.api", "playhead.connectors.api", "playhead.connectors.status"
_HOME = {
    "list": _API,
    "show": _API,
    "pause": _API,
    "resume": _API,
    "stop": _API,
    "restart": _API,
    "delete": _API,
    "status": _API,
    "watch": _API,
    "plan": _FILES,
    "apply": _FILES,
    "create": _FILES,
    "validate": _FILES,
    "export": _FILES,
    "Exported": _FILES,
    "Finding": _FILES,
    "Findings": _FILES,
    "Watched": _API,
    "ConnectorHealth": _STATUS,
    "ConnectorSpec": "playhead.model",
    "Answer": _API,
    "Answers": _API,
    "AppliedPlan": _FILES,
    "ConnectorList": _STATUS,
    "ConnectorRow": _STATUS,
    "ShownConnector": _STATUS,
    "list_connectors": _STATUS,
    "list_names": _STATUS,
    "show_connector": _STATUS,
}
__all__ = [
    "Answer",
    "Answers",
    "AppliedPlan",
    "ConnectorHealth",
    "ConnectorList",
    "ConnectorRow",
    "ConnectorSpec",
    "Exported",
    "Finding",
    "Findings",
    "ShownConnector",
    "Watched",
    "apply",
    "create",
    "delete",
    "export",
    "list",
    "list_connectors",
    "list_names",
    "pause",
    "plan",
    "restart",
    "resume",
    "show",
    "show_connector",
    "status",
    "stop",
    "validate",
    "watch",
]
_OTHERWISE_NAMED = {"list": "list_"}  # a builtin where it is defined


class _Package(ModuleType):
    """Keeps `plan`, `apply`, `export` and so on as functions. Python would replace them by the modules of these names."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'playhead.connectors' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), _OTHERWISE_NAMED.get(name, name))


def __dir__() -> Iterable[str]:
    return sorted(__all__)
