"""librdkafka's C interface: the library that confluent-kafka ships, for clients that make no call of Python per record.

Only functions and structures of `rdkafka.h` are used; librdkafka keeps them compatible from release to release. The client
library has loaded librdkafka already, so its own module resolves the names. `is_available` is False where it does not (a static
build that hides them): then confluent-kafka's producer and Spark's reader are used.
"""

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

from playhead.kafka.c_records import Message

_PRODUCER, _CONSUMER = 0, 1
_TEXT_BYTES = 512
_UNKNOWN = -2  # of conf_set: it has no setting of this name


class Partition(Structure):
    """`rd_kafka_topic_partition_t`."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


class Partitions(Structure):
    """`rd_kafka_topic_partition_list_t`."""

    _fields_ = (("count", c_int), ("size", c_int), ("entries", POINTER(Partition)))


class TopicMetadata(Structure):
    """`rd_kafka_metadata_topic_t`."""

    _fields_ = (("topic", c_char_p), ("partition_count", c_int), ("partitions", c_void_p), ("err", c_int))


class Metadata(Structure):
    """The beginning of `rd_kafka_metadata_t`."""

    _fields_ = (
        ("broker_count", c_int),
        ("brokers", c_void_p),
        ("topic_count", c_int),
        ("topics", POINTER(TopicMetadata)),
    )


_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "conf_new": (c_void_p, ()),
    "conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "conf_set_events": (None, (c_void_p, c_int)),
    "conf_destroy": (None, (c_void_p,)),
    "new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "destroy": (None, (c_void_p,)),
    "topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "topic_name": (c_char_p, (c_void_p,)),
    "topic_destroy": (None, (c_void_p,)),
    "metadata": (c_int, (c_void_p, c_int, c_void_p, POINTER(POINTER(Metadata)), c_int)),
    "metadata_destroy": (None, (c_void_p,)),
    "produce_batch": (c_int, (c_void_p, c_int32, c_int, c_void_p, c_int)),
    "produceva": (c_void_p, (c_void_p, c_void_p, c_size_t)),
    "outq_len": (c_int, (c_void_p,)),
    "flush": (c_int, (c_void_p, c_int)),
    "init_transactions": (c_void_p, (c_void_p, c_int)),
    "begin_transaction": (c_void_p, (c_void_p,)),
    "commit_transaction": (c_void_p, (c_void_p, c_int)),
    "abort_transaction": (c_void_p, (c_void_p, c_int)),
    "send_offsets_to_transaction": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int)),
    "consumer_group_metadata_new": (c_void_p, (c_char_p,)),
    "consumer_group_metadata_destroy": (None, (c_void_p,)),
    "topic_partition_list_new": (POINTER(Partitions), (c_int,)),
    "topic_partition_list_add": (c_void_p, (c_void_p, c_char_p, c_int32)),
    "topic_partition_list_destroy": (None, (c_void_p,)),
    "error_code": (c_int, (c_void_p,)),
    "error_string": (c_char_p, (c_void_p,)),
    "error_is_fatal": (c_int, (c_void_p,)),
    "error_is_retriable": (c_int, (c_void_p,)),
    "error_txn_requires_abort": (c_int, (c_void_p,)),
    "error_destroy": (None, (c_void_p,)),
    "err2str": (c_char_p, (c_int,)),
    "fatal_error": (c_int, (c_void_p, c_char_p, c_size_t)),
    "queue_new": (c_void_p, (c_void_p,)),
    "queue_get_main": (c_void_p, (c_void_p,)),
    "queue_destroy": (None, (c_void_p,)),
    "queue_poll": (c_void_p, (c_void_p, c_int)),
    "event_type": (c_int, (c_void_p,)),
    "event_error": (c_int, (c_void_p,)),
    "event_message_count": (c_size_t, (c_void_p,)),
    "event_message_array": (c_size_t, (c_void_p, POINTER(POINTER(Message)), c_size_t)),
    "event_error_string": (c_char_p, (c_void_p,)),
    "event_destroy": (None, (c_void_p,)),
    "consume_start_queue": (c_int, (c_void_p, c_int32, c_int64, c_void_p)),
    "consume_stop": (c_int, (c_void_p, c_int32)),
    "consume_batch_queue": (c_ssize_t, (c_void_p, c_int, c_void_p, c_size_t)),
}
# Called for every message, and back at once: these keep Python's lock.
_SHORT: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "message_timestamp": (c_int64, (c_void_p, c_void_p)),
    "message_headers": (c_int, (c_void_p, c_void_p)),
    "message_destroy": (None, (c_void_p,)),
    "header_get_all": (c_int, (c_void_p, c_size_t, c_void_p, c_void_p, c_void_p)),
}


@cache
def library() -> Any:
    """Its functions by their names without `rd_kafka_`. Raises AttributeError if one is hidden, OSError if none can be found."""
    functions = {}
    for found, kinds in ((ctypes.CDLL(cimpl.__file__), _FUNCTIONS), (ctypes.PyDLL(cimpl.__file__), _SHORT)):
        for name, (result, arguments) in kinds.items():
            function = getattr(found, f"rd_kafka_{name}")
            function.restype, function.argtypes = result, arguments
            functions[name] = function
    return type("Library", (), {name: staticmethod(one) for name, one in functions.items()})


def is_available() -> bool:
    try:
        library()
    except (AttributeError, OSError):
        return False
    return True


def opened_client(*, is_producer: bool, config: Mapping[str, Any], events: int) -> int:
    """A handle, to be destroyed. Raises KafkaException for a setting that librdkafka refuses. Settings that it does not know are
    refused for a producer. A consumer leaves them out: its settings are those of Java's consumers too."""
    lib, text = library(), ctypes.create_string_buffer(_TEXT_BYTES)
    conf = lib.conf_new()
    try:
        for name, value in {**config, "log_level": 0}.items():
            word = str(value).lower() if isinstance(value, bool) else str(value)
            code = lib.conf_set(conf, name.encode(), word.encode(), text, _TEXT_BYTES)
            if code and (is_producer or code != _UNKNOWN):
                raise _invalid(text)
        lib.conf_set_events(conf, events)
        client: int | None = lib.new(_PRODUCER if is_producer else _CONSUMER, conf, text, _TEXT_BYTES)
        if client is None:
            raise _invalid(text)
    except BaseException:
        lib.conf_destroy(conf)
        raise
    return client  # which owns conf now


def asked_for(client: int, topic: int | None, seconds: float) -> int:
    """Asks a broker for metadata. Returns the error of the answer, or of the topic in it. 0: none."""
    lib, answer = library(), POINTER(Metadata)()
    code: int = lib.metadata(client, 0, topic, byref(answer), in_ms(seconds))
    if code:
        return code
    try:
        found = answer.contents
        return found.topics[0].err if topic is not None and found.topic_count else 0
    finally:
        lib.metadata_destroy(answer)


def in_ms(seconds: float) -> int:
    return max(0, int(seconds * 1000))


def client_error(client: int, code: int) -> KafkaError:
    """`_FATAL` stands for the error that made the client unusable."""
    lib, text = library(), ctypes.create_string_buffer(_TEXT_BYTES)
    fatal = lib.fatal_error(client, text, _TEXT_BYTES)
    if fatal and code in (KafkaError._FATAL, KafkaError._PURGE_QUEUE, fatal):
        return KafkaError(fatal, text.value.decode(errors="replace"), True)
    return KafkaError(code, lib.err2str(code).decode(errors="replace"))


def _invalid(text: Any) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._INVALID_ARG, text.value.decode(errors="replace")))
