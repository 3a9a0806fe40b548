"""The offset file of a standalone worker: one Java-serialised `HashMap<byte[], byte[]>`, read and written without Java.

Only this structure is supported. A worker reads a truncated or empty file as "no offsets" and starts over without a warning.
Here such a file is corrupt, and the error names the byte. A class other than `java.util.HashMap` and `byte[]` is refused by name
and nothing is ever instantiated. Entries keep their order, and keys that are not Connect's are not changed.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from playhead.errors import PlayheadError

_MAGIC = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS_DESC, _OBJECT, _ARRAY, _BLOCK, _END = 0x70, 0x71, 0x72, 0x73, 0x75, 0x77, 0x78
_FIRST_HANDLE = 0x7E0000
_MAP_CLASS = (
    b"\x00\x11java.util.HashMap"
    + bytes.fromhex("0507dac1c31660d1")
    + b"\x03\x00\x02F\x00\nloadFactorI\x00\tthreshold\x78\x70"
)
_BYTES_CLASS = b"\x00\x02[B" + bytes.fromhex("acf317f8060854e0") + b"\x02\x00\x00\x78\x70"
_LOAD_FACTOR = struct.pack(">f", 0.75)


class CorruptFile(PlayheadError):
    """`at`: the byte where the file is invalid. `name`: of the file, where it is known."""

    def __init__(self, at: int, why: str, name: str = "") -> None:
        super().__init__(
            f"the offset file {name + ' ' if name else ''}is corrupt at byte {at}: {why}",
            "restore it from a backup; nothing was changed",
        )
        self.at = at
        self.why = why

    def of(self, name: str) -> "CorruptFile":
        return CorruptFile(self.at, self.why, name)


class FileEntry(NamedTuple):
    """`value` None is an offset that was reset: the worker keeps the key."""

    key: bytes
    value: bytes | None


def decode_file(data: bytes) -> list[FileEntry]:
    reader = _Reader(data)
    reader.expect(_MAGIC, "this is not a Java object stream")
    reader.tag(_OBJECT, "an object must begin here")
    reader.tag(_CLASS_DESC, "its class must be described here")
    reader.class_of(_MAP_CLASS)
    reader.take(4 + 4)  # load factor and threshold: Java ignores both when it reads
    reader.expect(bytes([_BLOCK, 8]), "the size of the map is expected here")
    _buckets, size = struct.unpack(">ii", reader.take(8))
    if size < 0:
        raise CorruptFile(reader.at - 4, f"a map of {size} entries")
    entries = []
    for _ in range(size):
        at = reader.at
        key = reader.bytes_or_null()
        if key is None:
            raise CorruptFile(at, "an entry without a key")
        entries.append(FileEntry(key, reader.bytes_or_null()))
    reader.tag(_END, "the map must end here")
    if reader.at != len(data):
        raise CorruptFile(reader.at, f"{len(data) - reader.at} bytes follow the end")
    return entries


def encode_file(entries: Sequence[FileEntry]) -> bytes:
    """The bytes that Java writes for such a map, except for the order of the entries."""
    buckets = 16
    while len(entries) > 0.75 * buckets:
        buckets *= 2
    threshold = int(buckets * 0.75) if entries else 0
    out = bytearray(_MAGIC)
    out += bytes([_OBJECT, _CLASS_DESC]) + _MAP_CLASS + _LOAD_FACTOR + struct.pack(">i", threshold)
    out += bytes([_BLOCK, 8]) + struct.pack(">ii", buckets, len(entries))
    described = False
    for part in (part for entry in entries for part in entry):
        if part is None:
            out.append(_NULL)
            continue
        out.append(_ARRAY)
        out += (
            bytes([_REFERENCE]) + struct.pack(">i", _FIRST_HANDLE + 2)
            if described
            else bytes([_CLASS_DESC]) + _BYTES_CLASS
        )
        described = True
        out += struct.pack(">i", len(part)) + part
    out.append(_END)
    return bytes(out)


class _Reader:
    """Reads the bytes. A failed step reports the position and what was expected."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.described = False
        self.handles: list[bytes | None] = [
            None,
            None,
        ]  # the HashMap class, the map; then the byte[] class and each array

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise CorruptFile(len(self.data), "the file ends too early" if self.data else "the file is empty")
        self.at += size
        return self.data[self.at - size : self.at]

    def expect(self, wanted: bytes, what: str) -> None:
        at = self.at
        if self.take(len(wanted)) != wanted:
            raise CorruptFile(at, what)

    def tag(self, wanted: int, what: str) -> None:
        self.expect(bytes([wanted]), what)

    def class_of(self, wanted: bytes) -> None:
        """Reads the description of the one allowed class. The error for another class names it."""
        at = self.at
        if self.data[at : at + len(wanted)] == wanted:
            self.at += len(wanted)
            return
        (length,) = struct.unpack(">H", self.take(2))
        name = self.take(length).decode("utf-8", "replace")
        if length + 2 <= len(wanted) and wanted[2 : 2 + length] == name.encode():
            self.take(max(0, len(wanted) - 2 - length))  # reports a file that ends here
            raise CorruptFile(at, f"the class {name} is not described as Java does")
        raise CorruptFile(at, f"the class {name!r} does not belong in an offset file")

    def bytes_or_null(self) -> bytes | None:
        at = self.at
        tag = self.take(1)[0]
        if tag == _NULL:
            return None
        if tag == _REFERENCE:
            return self.referred(at)
        if tag != _ARRAY:
            raise CorruptFile(at, "a byte array must begin here")
        self.array_class()
        (length,) = struct.unpack(">i", self.take(4))
        if length < 0:
            raise CorruptFile(self.at - 4, f"an array of {length} bytes")
        content = self.take(length)
        self.handles.append(content)
        return content

    def array_class(self) -> None:
        at = self.at
        tag = self.take(1)[0]
        if tag == _CLASS_DESC and not self.described:
            self.class_of(_BYTES_CLASS)
            self.described = True
            self.handles.append(None)
        elif tag == _REFERENCE and self.described:
            self.expect(struct.pack(">i", _FIRST_HANDLE + 2), "the class byte[] must be referred to here")
        else:
            raise CorruptFile(at, "the class of an array is expected here")

    def referred(self, at: int) -> bytes:
        index = int.from_bytes(self.take(4), "big") - _FIRST_HANDLE
        found = self.handles[index] if 0 <= index < len(self.handles) else None
        if found is None:
            raise CorruptFile(at, "a reference that points to no array")
        return found
