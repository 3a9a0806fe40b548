"""Where files go. A file is written apart and appears whole, under its name, or not at all.

Publishing a name again with the same bytes changes nothing, so whoever does it, and however often, does no harm.
"""

from typing import BinaryIO, Protocol


class Draft(Protocol):
    """A file that nobody sees yet. `name` is its path below the place, with / between folders."""

    @property
    def name(self) -> str: ...

    @property
    def file(self) -> BinaryIO: ...

    def discard(self) -> None:
        """Leaves nothing behind; may be called at any time, also after it was published."""


class Store(Protocol):
    """A place, opened in one task. Threads may publish at the same time."""

    def draft(self, name: str) -> Draft: ...

    def publish(self, draft: Draft) -> int:
        """Durable when this returns its size in bytes."""
        ...


class Place(Protocol):
    """Picklable."""

    def connect(self) -> Store: ...
