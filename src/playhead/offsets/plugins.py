"""The plugin path of a context: folders and wheels with connectors in Python, among folders of jars."""

from collections.abc import Mapping
from pathlib import Path

from playhead.config import Context
from playhead.offsets.workers import worker_of
from playhead.sdk.loading import add_roots, import_roots


def plugin_path(context: Context) -> list[Path]:
    """The folders and wheels that the context and the worker file name. Those of jars are among them, which is no fault."""
    worker: Mapping[str, str] = worker_of(context) or {}
    named = [*(context.get("plugin-path") or "").split(","), *worker.get("plugin.path", "").split(",")]
    return list(dict.fromkeys(Path(one.strip()).expanduser() for one in named if one.strip()))


def use_plugins(context: Context) -> list[Path]:
    """Makes the classes on the plugin path importable in this process, after everything that is installed."""
    roots = import_roots(plugin_path(context))
    add_roots(roots)
    return roots
