"""Reads a range of one topic partition as columns, over librdkafka's C interface.

No group: the caller says where to begin and to end. A batch of messages is an array of pointers; what all of them point to is
gathered by columns (`c_records.gathered`). Timestamps and headers are not in the public structure, so they are asked for each
message.
"""

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError

from playhead.errors import PlayheadError, TimedOut
from playhead.kafka.c_library import asked_for, client_error, library, opened_client
from playhead.kafka.c_records import Messages, RecordHeaders
from playhead.kafka.faults import fault_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

BATCH = 20_000
_WAIT_MS = 50
_ERRORS = 0x8
_QUIET_SECONDS = 5.0  # a broker that starts again is back by then
_PATIENCE_SECONDS = 120.0
# The user's own come after these. What is fetched beyond the end of a range is wasted.
_TUNED: Mapping[str, str | int] = {
    "fetch.wait.max.ms": 10,  # closing a client waits for its open fetch
    "fetch.message.max.bytes": 2_000_000,
    "queued.min.messages": 40_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 1,
}
_FIXED = {"enable.partition.eof": True, "auto.offset.reset": "error"}


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records in the order of their offsets. A timestamp of -1: the record has none. A record without headers has None."""

    offsets: "npt.NDArray[np.int64]"
    timestamps_ms: "npt.NDArray[np.int64]"
    keys: "pa.Array | None"
    values: "pa.Array"
    headers: list[RecordHeaders | None] | None

    def __len__(self) -> int:
        return len(self.offsets)


class NativeConsumer:
    """Use it in a `with` block. Reading raises PlayheadError, opening KafkaException."""

    def __init__(self, config: Mapping[str, Any], *, has_keys: bool = True, has_headers: bool = False) -> None:
        self._lib = library()
        self._has_keys, self._has_headers = has_keys, has_headers
        self._client = opened_client(is_producer=False, config={**_TUNED, **config, **_FIXED}, events=_ERRORS)
        self._queue = self._lib.queue_new(self._client)
        self._main = self._lib.queue_get_main(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lib.queue_destroy(self._queue)
        self._lib.queue_destroy(self._main)
        self._lib.destroy(self._client)

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Fetched]:
        """The records of these offsets; `end` is not one of them, and the log has reached it. Without records that a transaction
        aborted, as `isolation.level` says."""
        lib = self._lib
        handle = lib.topic_new(self._client, topic.encode(), None)
        try:
            doing = f"reading {topic}-{partition}"
            if lib.consume_start_queue(handle, partition, start, self._queue):
                raise self._fault(KafkaError._STATE, doing)
            try:
                yield from self._fetched(_Patience(doing, partial(self._find_fault, handle)), start, end)
            finally:
                lib.consume_stop(handle, partition)
        finally:
            lib.topic_destroy(handle)

    def _fetched(self, patience: "_Patience", start: int, end: int) -> Iterator[Fetched]:
        import numpy as np

        pointers, doing, at = np.empty(BATCH, np.int64), patience.doing, start
        while at < end:
            # It returns when it has as many messages, or when the time is over.
            count = self._lib.consume_batch_queue(
                self._queue, _WAIT_MS, pointers.ctypes.data, min(BATCH, max(end - at, 1))
            )
            if count < 0:
                raise self._fault(KafkaError._STATE, doing)
            if not count:
                patience.check()
                continue
            patience.renew()
            try:
                found, reached = self._taken(Messages(pointers[:count]), doing, end)
            finally:
                deque(map(self._lib.message_destroy, pointers[:count].tolist()), maxlen=0)
            if len(found):
                if found.offsets[0] < at or (np.diff(found.offsets) <= 0).any():
                    raise PlayheadError(f"{doing}: offsets go back at {at}")  # never seen; doubles would be worse
                at = int(found.offsets[-1]) + 1
                yield found
            at = max(at, reached)

    def _taken(self, messages: Messages, doing: str, end: int) -> tuple[Fetched, int]:
        """The records below `end`, and the offset below which there is nothing more to come."""
        import numpy as np

        errors, offsets = messages.errors, messages.offsets
        reached = -1
        for code in np.unique(errors[errors != 0]).tolist():
            if code != KafkaError._PARTITION_EOF:
                text = messages.text_of(int(np.argmax(errors == code)))
                raise fault_of(KafkaError(code, text), doing)
            reached = int(offsets[errors == code].max())
        is_record = errors == 0
        beyond = is_record & (offsets >= end)
        if beyond.any():
            reached = end
        kept = messages.only(is_record & ~beyond)
        return self._columns(kept), reached

    def _columns(self, messages: Messages) -> Fetched:
        import numpy as np

        pointers, kind = messages.pointers.tolist(), ctypes.c_int()
        stamps = map(self._lib.message_timestamp, pointers, repeat(ctypes.addressof(kind)))
        return Fetched(
            messages.offsets,
            np.fromiter(stamps, np.int64, len(pointers)),
            messages.keys() if self._has_keys else None,
            messages.values(),
            [self._headers_of(pointer) for pointer in pointers] if self._has_headers else None,
        )

    def _headers_of(self, message: int) -> RecordHeaders | None:
        headers = ctypes.c_void_p()
        if self._lib.message_headers(message, ctypes.byref(headers)):
            return None
        name, content, size = ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_size_t()
        found: list[tuple[str, bytes | None]] = []
        parts = (ctypes.byref(name), ctypes.byref(content), ctypes.byref(size))
        while not self._lib.header_get_all(headers, len(found), *parts):
            value = None if content.value is None else ctypes.string_at(content.value, size.value)
            found.append(((name.value or b"").decode(errors="replace"), value))
        return found or None

    def _find_fault(self, topic: int) -> KafkaError | None:
        """Why nothing comes: an error of the connections since the last call, or the answer to a question about the topic."""
        found = None
        while event := self._lib.queue_poll(self._main, 0):
            if code := self._lib.event_error(event):
                found = KafkaError(code, (self._lib.event_error_string(event) or b"").decode(errors="replace"))
            self._lib.event_destroy(event)
        code = asked_for(self._client, topic, _QUIET_SECONDS)
        return found or client_error(self._client, code) if code else None

    def _fault(self, code: int, doing: str) -> PlayheadError:
        return fault_of(client_error(self._client, code), doing)


class _Patience:
    """With a broker that sends nothing: it may be away, starting again, or far from the next record that counts."""

    def __init__(self, doing: str, find_fault: Callable[[], KafkaError | None]) -> None:
        self.doing = doing
        self._find_fault = find_fault
        self.renew()

    def renew(self) -> None:
        self._since = time.monotonic()
        self._next_question = self._since + _QUIET_SECONDS

    def check(self) -> None:
        now = time.monotonic()
        if now < self._next_question:
            return
        if fault := self._find_fault():
            raise fault_of(fault, self.doing)
        if now - self._since > _PATIENCE_SECONDS:
            raise TimedOut(f"{self.doing}: no record came for {_PATIENCE_SECONDS:g} s")
        self._next_question = time.monotonic() + _QUIET_SECONDS
