"""Kafka's own classes as oracles, in one JVM per test process: the command-line tools, without a start each time."""

import atexit
import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from playhead.errors import PlayheadError, TimedOut
from playhead.pipeline.jars import fetch_jars

SOURCE = Path(__file__).with_name("KafkaJvm.java")


@dataclass(frozen=True)
class Consumed:
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class KafkaJvm:
    """Started with the first request. A request that takes too long ends the JVM; the next one starts another."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        atexit.register(self.close)

    def tool(self, main: str, arguments: Sequence[str], *, stdin: str = "", seconds: float = 60) -> str:
        """Standard output of a command-line class of Kafka; a failure carries what the tool printed."""
        code, out, err = self._ask(["tool", main], arguments, stdin.encode(), seconds)
        if code:
            raise PlayheadError(f"{main} failed with {code}: {(out + err).decode().strip()[-2000:]}")
        return out.decode()

    def run(self, name: str, source: str, arguments: Sequence[str], stdin: bytes = b"") -> bytes:
        """What a Java program prints: `name` is that of its public class. It is compiled once."""
        code, out, err = self._ask(["java", name, source], arguments, stdin, 180)
        assert code == 0, err.decode()
        return out

    def read(self, servers: str, topic: str, isolation: str = "read_committed") -> list[Consumed]:
        """Every record up to the end that is seen now, by Kafka's own consumer: there is nothing to wait for."""
        code, out, err = self._ask(["read", servers, topic, isolation], None, None, 120)
        if code:
            raise PlayheadError(f"reading {topic} failed: {err.decode()}")
        return list(_records(out))

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(30)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def _ask(
        self, words: Sequence[str], arguments: Sequence[str] | None, stdin: bytes | None, seconds: float
    ) -> tuple[int, bytes, bytes]:
        with self._lock:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            parts = [_framed(word.encode()) for word in words]
            if arguments is not None:
                parts += [struct.pack(">i", len(arguments)), *(_framed(one.encode()) for one in arguments)]
            if stdin is not None:
                parts.append(_framed(stdin))
            late = threading.Timer(seconds, process.kill)
            late.start()
            try:
                process.stdin.write(b"".join(parts))
                process.stdin.flush()
                code = _number(process.stdout)
                return code, _bytes(process.stdout), _bytes(process.stdout)
            except (EOFError, BrokenPipeError):
                self.close()
                raise TimedOut(f"{' '.join(words[:2])} did not finish within {seconds:g} s") from None
            finally:
                late.cancel()

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            if not shutil.which("javac"):
                pytest.skip("Kafka's own classes are asked through a Java source file, which needs a JDK")
            classes = os.pathsep.join(map(str, fetch_jars("kafka")))
            quiet = ["-Dlog4j2.level=OFF", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
            self._process = subprocess.Popen(
                ["java", *quiet, "-cp", classes, str(SOURCE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C of a test is not for it
            )
        return self._process


def _framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError
    return data


def _number(stream: IO[bytes]) -> int:
    return int(struct.unpack(">i", _exactly(stream, 4))[0])


def _bytes(stream: IO[bytes]) -> bytes:
    return _exactly(stream, _number(stream))


def _records(data: bytes) -> Iterator[Consumed]:
    at = 0
    while at < len(data):
        partition, offset, timestamp_ms = struct.unpack_from(">iqq", data, at)
        at += 20
        parts: list[bytes | None] = []
        for _ in range(2):
            (length,) = struct.unpack_from(">i", data, at)
            at += 4
            parts.append(None if length < 0 else data[at : at + length])
            at += max(0, length)
        yield Consumed(partition, offset, timestamp_ms, *parts)


KAFKA_JVM = KafkaJvm()
