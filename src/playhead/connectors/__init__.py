"""Connectors: what runs, in which state. The same functions serve the command line and a Python prompt."""

from playhead.connectors.status import ConnectorRow, list_connectors, list_names, show_connector

__all__ = ["ConnectorRow", "list_connectors", "list_names", "show_connector"]
