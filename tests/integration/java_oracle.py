"""A Java source file run as it is, with Kafka's own classes beside it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from playhead.pipeline.jars import fetch_jars


def run_java(folder: Path, name: str, text: str, *arguments: str, given: bytes = b"") -> bytes:
    """`name` is that of the public class in `text`; `given` is what it reads, the outcome what it prints."""
    if not shutil.which("javac"):
        pytest.skip("the oracle is a Java source file: it needs a JDK")
    source = folder / f"{name}.java"
    source.write_text(text)
    command = ["java", "-cp", os.pathsep.join(map(str, fetch_jars("kafka"))), str(source), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
