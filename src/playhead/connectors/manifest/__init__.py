"""Connector files: JSON, YAML, Java properties and Python in, one kind of value out; and back to YAML or JSON."""

from playhead.connectors.manifest.reading import read_specs
from playhead.connectors.manifest.writing import write_specs

__all__ = ["read_specs", "write_specs"]
