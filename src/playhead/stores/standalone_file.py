"""The offset file of a standalone worker: `file:path`. Read without Java.

A file that is not there holds no offsets, as for the worker itself. One that is cut off or damaged is corrupt, never empty.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from playhead.connect.javafile import decode_file
from playhead.errors import Invalid
from playhead.stores import Snapshot
from playhead.stores.decoding import RawPair, decode_pairs


@dataclass(frozen=True, slots=True)
class StandaloneFile:
    path: Path

    @property
    def uri(self) -> str:
        return f"file:{self.path}"

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        return self._read(owners, removed=False)

    def history(self, owners: Collection[str] | None = None) -> Snapshot:
        """The file keeps no history but for the keys of positions that were removed."""
        return self._read(owners, removed=True)

    def _read(self, owners: Collection[str] | None, *, removed: bool) -> Snapshot:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Snapshot((), (f"{self.path} does not exist: this worker has stored no offset yet",))
        except OSError as error:
            raise Invalid(f"{self.path} cannot be read: {error.strerror}") from None
        pairs = (RawPair(entry.key, entry.value, {}) for entry in decode_file(data))
        decoded = decode_pairs(pairs, owners, removed=removed)
        return Snapshot(tuple(decoded.entries), tuple(decoded.notes))
