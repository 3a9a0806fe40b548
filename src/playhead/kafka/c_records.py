"""Arrow columns -> the arrays of C structures that librdkafka takes, made by columns as well.

`message_table` has a `rd_kafka_message_t` for each record: one call queues them all. That structure knows neither headers nor
timestamps. For records that have some, `argument_table` has the `rd_kafka_vu_t` of each: one call per record, with a pointer.
"""

import ctypes
from collections.abc import Sequence
from ctypes import Structure, c_int, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]

COPY, PARTITION = 0x2, 0x8
_TOPIC, _TO_PARTITION, _VALUE, _KEY, _FLAGS, _TIMESTAMP, _HEADER = 1, 3, 4, 5, 7, 8, 9
_FIXED = (_TOPIC, _TO_PARTITION, _VALUE, _KEY, _FLAGS, _TIMESTAMP)
_NOTHING = ctypes.create_string_buffer(8)  # a value of no bytes needs an address, or it would be a null

RecordHeaders = Sequence[tuple[str, bytes | None]]


class Message(Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("err", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("opaque", c_void_p),
    )


@dataclass(slots=True)
class MessageTable:
    """Records that are being queued. `messages` point into the buffers of `kept`. `topic`: its handle."""

    topic: int
    messages: "npt.NDArray[np.void]"
    is_one_partition: bool
    kept: object
    queued: int = 0


def message_table(topic: int, values: "pa.Array", keys: "pa.Array | None", partitions: "Numbers | int") -> MessageTable:
    import numpy as np

    messages = np.zeros(len(values), np.dtype(Message))
    messages["payload"], messages["len"] = _addresses(values)
    if keys is not None:
        messages["key"], messages["key_len"] = _addresses(keys)
    messages["partition"] = partitions
    return MessageTable(topic, messages, isinstance(partitions, int), (values, keys))


@dataclass(slots=True)
class ArgumentTable:
    """Records that are being queued. `counts`: of the arguments of each record. `stride`: bytes of a row."""

    address: int
    stride: int
    counts: list[int]
    kept: object
    queued: int = 0


def argument_table(
    topic: str,
    values: "pa.Array",
    keys: "pa.Array | None",
    partitions: "Numbers | int",
    headers: Sequence[RecordHeaders] | None,
    timestamps: "Numbers | int",
) -> ArgumentTable:
    """A timestamp of 0 stands for the moment."""
    import numpy as np

    # `rd_kafka_vu_t`: the kind, then a union of 64 bytes. Memory is address and size; a header name, address and size.
    kind = np.dtype(
        {
            "names": ["kind", "first", "second", "third"],
            "formats": ["<i4", "<i8", "<i8", "<i8"],
            "offsets": [0, 8, 16, 24],
            "itemsize": 72,
        }
    )
    count, name = len(values), ctypes.create_string_buffer(topic.encode())
    most = 0 if headers is None else max(map(len, headers), default=0)
    table = np.zeros((count, len(_FIXED) + most), kind)
    table["kind"][:, : len(_FIXED)] = _FIXED
    first, second = table["first"], table["second"]
    first[:, 0], first[:, 1] = ctypes.addressof(name), partitions
    first[:, 2], second[:, 2] = _addresses(values)
    if keys is not None:
        first[:, 3], second[:, 3] = _addresses(keys)
    first[:, 4], first[:, 5] = COPY, timestamps
    counts = [len(_FIXED)] * count
    kept: tuple[object, ...] = (table, name, values, keys)
    if headers is not None and most:
        counts = [len(_FIXED) + len(one) for one in headers]
        kept = (*kept, _add_headers(table, headers))
    return ArgumentTable(table.ctypes.data, table.strides[0], counts, kept)


def _add_headers(table: "npt.NDArray[np.void]", headers: Sequence[RecordHeaders]) -> object:
    """Returns what must live as long as the table."""
    import numpy as np
    import pyarrow as pa

    names: dict[str, ctypes.Array[ctypes.c_char]] = {}
    rows, places, of_name, contents = [], [], [], []
    for row, its in enumerate(headers):
        for place, (name, content) in enumerate(its, len(_FIXED)):
            if name not in names:
                names[name] = ctypes.create_string_buffer(name.encode())
            rows.append(row)
            places.append(place)
            of_name.append(ctypes.addressof(names[name]))
            contents.append(content)
    column = pa.array(contents, pa.binary())
    at = (np.array(rows), np.array(places))
    table["kind"][at], table["first"][at] = _HEADER, of_name
    table["second"][at], table["third"][at] = _addresses(column)
    return names, column


def _addresses(column: "pa.Array") -> "tuple[npt.NDArray[np.int64], Numbers]":
    """Where each value begins and how long it is. A null has the address 0."""
    import numpy as np
    import pyarrow as pa

    is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    kind = np.dtype(np.int64 if is_large else np.int32)
    if not len(column):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, kind)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    base = data.address if data is not None and data.address else ctypes.addressof(_NOTHING)
    addresses = offsets[:-1] + base
    lengths = np.diff(offsets)
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        addresses[nulls], lengths[nulls] = 0, 0
    return addresses, lengths


class Messages:
    """Messages that librdkafka has handed out, by the addresses of their `rd_kafka_message_t`. Whatever is returned is a copy."""

    def __init__(self, pointers: "Numbers") -> None:
        import numpy as np

        self.pointers = pointers
        first = int(pointers.min()) if len(pointers) else 0
        size = int(pointers.max()) + ctypes.sizeof(Message) - first if len(pointers) else 0
        self._words = np.asarray(_Memory(first, size // 8)) if size else np.empty(0, np.int64)
        self._rows = (pointers - first) // 8

    def only(self, rows: "npt.NDArray[np.bool_]") -> "Messages":
        return self if rows.all() else Messages(self.pointers[rows])

    @property
    def errors(self) -> "npt.NDArray[np.int32]":
        import numpy as np

        return self._field("err").astype(np.int32)  # the lower half of its word

    @property
    def offsets(self) -> "Numbers":
        return self._field("offset")

    def values(self) -> "pa.Array":
        return gathered(self._field("payload"), self._field("len"))

    def keys(self) -> "pa.Array":
        return gathered(self._field("key"), self._field("key_len"))

    def text_of(self, row: int) -> str:
        """The text of an error is its payload."""
        found = Message.from_address(int(self.pointers[row]))
        return ctypes.string_at(found.payload, found.len).decode(errors="replace") if found.payload else ""

    def _field(self, name: str) -> "Numbers":
        found: Numbers = self._words[self._rows + getattr(Message, name).offset // 8]
        return found


class _Memory:
    """Words at an address, for numpy. Only the addresses of messages are read; what lies between them may not be there."""

    def __init__(self, address: int, count: int) -> None:
        self.__array_interface__ = {"data": (address, True), "shape": (count,), "typestr": "<i8", "version": 3}


def gathered(addresses: "Numbers", lengths: "Numbers") -> "pa.Array":
    """Copies the bytes at these addresses into a binary column. The address 0 is a null."""
    import numpy as np
    import pyarrow as pa

    count, is_null = len(addresses), addresses == 0
    if is_null.all():
        return pa.nulls(count, pa.binary())
    first = int(addresses[~is_null].min())
    begins = np.where(is_null, 0, addresses - first)
    ends = begins + np.where(is_null, 0, lengths)
    # A column with every second value: the bytes from one value to the next. Arrow expects the mean length of all of them.
    bounds = np.empty(2 * count + 1, np.int64)
    bounds[:-1:2], bounds[1::2] = begins, ends
    bounds[-1] = bounds[0] + 2 * int((ends - begins).sum())
    memory = pa.foreign_buffer(first, int(max(ends.max(), bounds[-1])))
    spread = pa.Array.from_buffers(pa.large_binary(), 2 * count, [None, pa.py_buffer(bounds), memory])
    rows = pa.array(np.arange(0, 2 * count, 2), mask=is_null if is_null.any() else None)
    return spread.take(rows).cast(pa.binary())
