"""Connector files: reads JSON, YAML, Java properties and Python; writes YAML and JSON."""

from playhead.connectors.files.read import read_specs
from playhead.connectors.files.write import write_specs

__all__ = ["read_specs", "write_specs"]
