"""Configuration: contexts, Java property files, references to secrets, and where each value came from.

Read once by the command line, then passed down as a `Context`. Precedence: flag, environment, file, default.
"""

from playhead.config.contexts import Context, Setting, load_files, open_context
from playhead.config.edit import save_context, use_context
from playhead.config.java_properties import Property, parse_properties, read_properties
from playhead.config.references import resolve

__all__ = [
    "Context",
    "Property",
    "Setting",
    "load_files",
    "open_context",
    "parse_properties",
    "read_properties",
    "resolve",
    "save_context",
    "use_context",
]
