"""Runs Java for the lab: class path, logging, the mark on the command line, and Kafka's own tools for checks."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from playhead.errors import PlayheadError, TimedOut
from playhead.lab.processes import mark_of
from playhead.pipeline.jars import fetch_jars, java

# Level per logger, one line each; Connect changes them at run time through /admin/loggers.
LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="out" target="SYSTEM_OUT"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers>
    <Logger name="org.reflections" level="ERROR"/>
    <Root level="INFO"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""
TOOL_LOG4J = LOG4J.replace('level="INFO"', 'level="ERROR"').replace("SYSTEM_OUT", "SYSTEM_ERR")


def java_command(jars: Sequence[Path], main: str, arguments: Sequence[str], *, logging: Path, heap: str) -> list[str]:
    class_path = os.pathsep.join(str(jar) for jar in jars)
    log4j = f"-Dlog4j2.configurationFile={logging.as_uri()}"
    return [java(), f"-Xmx{heap}", log4j, "-Djava.awt.headless=true", "-cp", class_path, main, *arguments]


def server_command(
    folder: Path, part: str, jar_set: str, main: str, arguments: Sequence[str], heap: str = "1g"
) -> list[str]:
    """A part that runs on Java, marked as this lab's."""
    command = java_command(fetch_jars(jar_set), main, arguments, logging=folder / "log4j2.xml", heap=heap)
    return [command[0], f"-D{mark_of(folder, part)}", *command[1:]]


def run_tool(folder: Path, main: str, arguments: Sequence[str], *, stdin: str = "", seconds: float = 60) -> str:
    """Standard output of one of Kafka's own command-line classes. A failure includes the tool's output."""
    command = java_command(fetch_jars("kafka"), main, arguments, logging=folder / "tool-log4j2.xml", heap="256m")
    # Short-lived: the quick compiler and the simple collector start fastest.
    command[1:1] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise TimedOut(f"{main} did not finish within {seconds:g} s") from None
    if done.returncode:
        output = _without_notes(done.stderr) or done.stdout.strip()
        raise PlayheadError(f"{main} failed with {done.returncode}: {output[-2000:]}")
    return done.stdout


def _without_notes(stderr: str) -> str:
    """Java first prints the options it found in the environment."""
    return "\n".join(line for line in stderr.splitlines() if not line.startswith("Picked up ")).strip()
