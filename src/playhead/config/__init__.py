"""Configuration: contexts, Java property files, references to secrets, and where each value came from.

Read once by the command line, then passed down as a `Context`. Precedence: flag, environment, file, default.
"""

from playhead.config.contexts import Context, Setting, context_for_code, load_files, open_context, search_files
from playhead.config.edit import save_context, use_context
from playhead.config.java_properties import Property, parse_properties, read_properties
from playhead.config.references import resolve

__all__ = [
    "Context",
    "Property",
    "Setting",
    "context_for_code",
    "load_files",
    "open_context",
    "parse_properties",
    "read_properties",
    "resolve",
    "save_context",
    "search_files",
    "use_context",
]
