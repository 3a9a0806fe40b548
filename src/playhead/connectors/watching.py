"""The watch on a real cluster. Every look and every restart has a client and a deadline of its own: an outage ends with it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from playhead.config import Context
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.definitions import PluginKeys
from playhead.connectors.status import find_all, keys_for_traces
from playhead.connectors.watch import Part, Seen
from playhead.model import ConnectorSpec, Deadline


@dataclass(frozen=True, slots=True)
class RestCluster:
    """The connectors of a context that one of the words means; all of them without words."""

    context: Context
    words: tuple[str, ...] = ()

    def look(self) -> Mapping[str, Seen]:
        with self._rest() as rest:
            found = [(info, status) for info, status in find_all(rest) if self.watches(info.name)]
            plugins = PluginKeys(rest)
            keys = {info.name: keys_for_traces(plugins, info, status) for info, status in found}
        return {info.name: Seen(status, info.config, keys[info.name]) for info, status in found}

    def watches(self, name: str) -> bool:
        return not self.words or any(name == word or fnmatchcase(name, word) for word in self.words)

    def restart(self, name: str, parts: Sequence[Part] | None) -> None:
        with self._rest() as rest:
            if parts is None:
                rest.restart(name, tasks=True, only_failed=True)
                return
            for part in parts:
                if part is None:
                    rest.restart(name, tasks=False, only_failed=True)
                else:
                    rest.restart_task(name, part)

    def _rest(self) -> Rest:
        return open_rest(self.context, Deadline(self.context.timeout_seconds))


def wishes_of(
    paths: Sequence[Path | str], stdin: bytes | None, watches: Callable[[str], bool], *, shared_topics: bool = False
) -> Callable[[], Iterable[ConnectorSpec]]:
    """Reads the files each time it is called."""
    from playhead.connectors.manifest.reading import read_specs

    return lambda: [spec for spec in read_specs(paths, stdin=stdin, shared_topics=shared_topics) if watches(spec.name)]
