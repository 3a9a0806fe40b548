"""Connector files: JSON, YAML, Java properties and Python in, one kind of value out; and back to YAML or JSON."""

from playhead.connectors.files.read import read_specs
from playhead.connectors.files.write import write_specs

__all__ = ["read_specs", "write_specs"]
