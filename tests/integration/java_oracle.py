"""A Java source file run as it is, with Kafka's own classes beside it."""

from kafka_jvm import KAFKA_JVM


def run_java(name: str, text: str, *arguments: str, given: bytes = b"") -> bytes:
    """`name` is that of the public class in `text`; `given` is what it reads, the outcome what it prints."""
    return KAFKA_JVM.run(name, text, arguments, given)
