"""Shared by all parts of the demo: runs commands in separate processes, shows their output, and reads topics back."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from playhead.errors import PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic, delete_topic, list_topics, topic_ends
from playhead.lab import Lab
from playhead.model import Deadline

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"

Say = Callable[[str], None]


class Stage:
    def __init__(self, lab: Lab, say: Say, seconds: float) -> None:
        self.lab = lab
        self.say = say
        self.deadline = Deadline(seconds)
        self.folder = lab.folder / "demo"
        self.folder.mkdir(exist_ok=True)
        self.settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})

    def playhead(self, *words: str, exits: int = 0) -> str:
        """Shows a command and what it prints. `exits`: the exit code that is expected."""
        self.say(f"   $ playhead {' '.join(words)}")
        output = self._ended(self.start(*words), words, exits)
        for line in output.splitlines():
            self.say(f"     {line}")
        return output

    def playhead_to(self, path: Path, *words: str, exits: int = 0) -> None:
        """Its data goes to a file."""
        self.say(f"   $ playhead {' '.join(words)} > {path}")
        path.write_text(self._ended(self.start(*words, stderr=subprocess.DEVNULL), words, exits))

    def _ended(self, process: "subprocess.Popen[str]", words: Sequence[str], exits: int) -> str:
        with process:
            output, _ = process.communicate(timeout=max(1.0, self.deadline.remaining()))
        if process.returncode != exits:
            raise PlayheadError(
                f"playhead {' '.join(words[:2])} ended with exit code {process.returncode}, not {exits}: {output[-500:]}"
            )
        return output

    def output_of(self, *words: str) -> list[str]:
        """The output of a command, without showing it."""
        with self.start(*words) as process:
            return process.communicate(timeout=60)[0].splitlines()

    def start(self, *words: str, stderr: int = subprocess.STDOUT) -> "subprocess.Popen[str]":
        """Starts a command in its own session, so that all its processes can be killed. Its journal is in the lab's folder."""
        flags = ["--connect", ",".join(self.lab.connect_urls), "--worker-config", str(self.lab.worker_config)]
        journal = str(self.lab.folder / "journal")
        return subprocess.Popen(
            [sys.executable, "-m", "playhead", *words, *flags],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "PLAYHEAD_JOURNAL": journal,
                "PLAYHEAD_LEDGER": self.lab.ledger_url,
                "DEMO_USER": self.user,
            },
        )

    def kill_in_the_middle(self, words: Sequence[str], has_begun: Callable[[], bool]) -> None:
        """Kills driver, JVM and tasks at once, after the first step and long before the last."""
        self.say(f"   $ playhead {' '.join(words)}")
        process = self.start(*words)
        try:
            self.deadline.wait_for(lambda: has_begun() or process.poll() is not None, "the beginning of the run")
            os.killpg(process.pid, signal.SIGKILL)
        finally:
            output, _ = process.communicate()
        if process.returncode != -signal.SIGKILL:
            raise PlayheadError(f"the run ended before it could be killed: {output[-500:]}")
        self.say("     ... kill -9")

    def empty_topics(self, names: Collection[str], partitions: int) -> None:
        """Recreates topics, so that records of an earlier demo are not counted."""
        deadline = self.deadline
        with Admin(self.settings, deadline) as admin:
            for name in set(names) & set(list_topics(admin, deadline)):
                delete_topic(admin, name, deadline)
            deadline.wait_for(
                lambda: not set(names) & set(list_topics(admin, deadline)), "deleting the topics of an earlier demo"
            )
            for name in names:
                create_topic(admin, name, partitions, deadline)

    def count_committed(self, topic: str, partitions: Collection[int] = (0,)) -> int:
        """The offsets up to the last committed record; markers of transactions count as well."""
        with Admin(self.settings, self.deadline) as admin:
            return sum(ends.stable for ends in topic_ends(admin, topic, partitions, self.deadline).values())

    def consumed(self, topic: str, expected: int) -> list[str]:
        """Every committed value of a topic, by Kafka's own console consumer. It ends when nothing came for a while; on a busy
        machine that may be before the first record, so fewer than expected are read once more, with more patience."""
        arguments = ["--bootstrap-server", self.lab.bootstrap_servers, "--topic", topic, "--from-beginning"]
        arguments += ["--isolation-level", "read_committed", "--timeout-ms"]
        seen = self.lab.tool(CONSOLE_CONSUMER, *arguments, "3000").splitlines()
        return seen if len(seen) >= expected else self.lab.tool(CONSOLE_CONSUMER, *arguments, "20000").splitlines()

    @property
    def user(self) -> str:
        """The user of the lab's database."""
        return self.lab.postgres_url.removeprefix("postgresql://").partition("@")[0]
