"""Connector files: reads JSON, YAML, Java properties, Python and the forms of other tools; writes YAML and JSON."""

from playhead.connectors.files.read import read_files, read_specs
from playhead.connectors.files.write import write_specs

__all__ = ["read_files", "read_specs", "write_specs"]
