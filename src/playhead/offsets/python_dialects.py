"""The dialect of a source in Python: what its own class says about its offsets.

No worker has such a connector. The ledger of the context has its class: that of its last run on Spark. The class is loaded from
what is installed and from the plugin path. If that is not possible here, its positions are edited without a dialect.
"""

from dataclasses import dataclass
from functools import cached_property

from playhead.connect.dialects import Dialect, Problem
from playhead.errors import Invalid, PlayheadError
from playhead.model import Map
from playhead.offsets.spark_sinks import Sinks
from playhead.sdk import SourceConnector
from playhead.sdk.life import calling
from playhead.stores import Access


@dataclass(frozen=True)
class PythonDialect(Dialect):
    connector: type[SourceConnector] = SourceConnector

    def check(self, partition: Map, offset: Map | None) -> list[Problem]:
        if offset is None:
            return []
        try:
            with calling("check_offset"):
                found = list(self.connector.check_offset(partition.to_dict(), offset.to_dict()))
        except PlayheadError as error:  # a fault of the connector, not of the offset
            return [Problem("$.offset", f"is not checked: {error.what}", False)]
        return [Problem("$.offset", str(sentence), True) for sentence in found]

    def readable(self, partition: Map, offset: Map | None) -> str:
        plain = super().readable(partition, offset)
        if offset is None:
            return plain
        try:
            with calling("show_offset"):
                shown = self.connector.show_offset(partition.to_dict(), offset.to_dict())
        except PlayheadError as error:  # the position is shown all the same
            return f"{plain} ({error.what})"
        return plain if shown is None else f"{self.title(partition)}: {shown}"

    def compare(self, a: Map, b: Map) -> int | None:
        with calling("compare_offsets"):
            return self.connector.compare_offsets(a.to_dict(), b.to_dict())

    def direction(self, before: Map, after: Map) -> str:
        try:
            found = self.compare(before, after)
        except PlayheadError as error:
            return error.what
        if found is None or found == 0:
            return ""
        return "back: what lies between is read again" if found > 0 else "forward: what lies between is not read"


class PythonDialects:
    """By the name of a connector. Answers are cached."""

    def __init__(self, access: Access, sinks: Sinks | None = None) -> None:
        self._context = access.context
        self._on_spark = sinks or Sinks(access)
        self._found: dict[str, PythonDialect | None] = {}

    @cached_property
    def _classes(self) -> dict[str, str]:
        return dict(self._on_spark.classes)

    def find(self, owner: str) -> PythonDialect | None:
        if owner not in self._found:
            name = self._classes.get(owner)
            self._found[owner] = None if name is None else self._loaded(name)
        return self._found[owner]

    def _loaded(self, name: str) -> PythonDialect | None:
        from playhead.offsets.plugins import use_plugins
        from playhead.sdk.loading import class_name, find_class

        use_plugins(self._context)
        try:
            found = find_class(name)
        except Invalid:  # it cannot be loaded here: the plan then says that no dialect knows the connector
            return None
        if found is None or not issubclass(found, SourceConnector):
            return None
        shown = class_name(found)
        skip = "Set the offset that the connector would have stored after it."
        return PythonDialect(shown, (shown,), (), (), found.start_over, skip, connector=found)
