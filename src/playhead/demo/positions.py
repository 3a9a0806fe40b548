"""The demo: a file source on the real Connect worker, its position seen, moved, proved with Kafka's own consumer, undone.

Every step is a command of Playhead, run as a user would. What is claimed is checked: the demo fails loudly when Kafka's console
consumer shows anything else.
"""

import os
import subprocess
import sys
from collections.abc import Callable

from playhead.connect.rest import Rest
from playhead.errors import NotFound, PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic, delete_topic, list_topics
from playhead.lab import Lab
from playhead.model import Deadline

CONNECTOR = "demo-file-source"
TOPIC = "demo-lines"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"

Say = Callable[[str], None]


class Demo:
    def __init__(self, lab: Lab, say: Say, seconds: float = 120) -> None:
        self.lab = lab
        self.say = say
        self.deadline = Deadline(seconds)
        self.file = lab.folder / "demo" / "lines.txt"
        self.rest = Rest(lab.connect_urls, self.deadline)

    def run(self) -> None:
        with self.rest:
            self.clear()
            self.start_source(["alpha", "bravo", "charlie"])
            self.show_position()
            self.expect(["alpha", "bravo", "charlie"])
            self.say("")
            self.move_back_one_line()
            self.expect(["alpha", "bravo", "charlie", "charlie"])
            self.say("   exactly that line came again.\n")
            self.regret_and_undo()
            self.append("delta")
            self.expect(["alpha", "bravo", "charlie", "charlie", "delta"])
            self.say("   only the new line came: the undo left nothing lost and nothing doubled.\n")

    def clear(self) -> None:
        """What an earlier demo left would make this one's lines impossible to count."""
        try:
            self.stop()
            self.rest.delete_offsets(CONNECTOR)
            self.rest.delete_connector(CONNECTOR)
        except NotFound:
            pass
        with Admin(ClientSettings({"bootstrap.servers": self.lab.bootstrap_servers}), self.deadline) as admin:
            if TOPIC in list_topics(admin, self.deadline):
                delete_topic(admin, TOPIC, self.deadline)
                self.deadline.wait_for(lambda: TOPIC not in list_topics(admin, self.deadline), f"deleting {TOPIC}")
            create_topic(admin, TOPIC, 1, self.deadline)

    def start_source(self, lines: list[str]) -> None:
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text("".join(f"{line}\n" for line in lines))
        self.say(f"1. A file source reads {self.file} into the topic {TOPIC} on the Connect worker.")
        config = {
            "connector.class": "FileStreamSource",
            "file": str(self.file),
            "topic": TOPIC,
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        }
        self.rest.create_connector(CONNECTOR, config)
        self.await_position(self.end)

    def show_position(self) -> None:
        self.say(f"   All {self.end} bytes are read:")
        self.playhead("offsets", "list", CONNECTOR)

    def move_back_one_line(self) -> None:
        lines = self.file.read_bytes().splitlines(keepends=True)
        target = self.end - len(lines[-1])
        self.say(f"2. Move it back one line, from {self.end} to {target}: stop, write, read back, resume.")
        self.playhead("offsets", "set", CONNECTOR, f"position={target}", "--stop", "--execute")
        self.await_position(self.end)

    def regret_and_undo(self) -> None:
        self.say("3. A move we regret, to the start of the file; then the undo, before anything runs.")
        self.stop()
        self.playhead("offsets", "delete", CONNECTOR, "--execute")
        self.playhead("offsets", "undo", "--execute")
        self.await_position(self.end)
        self.rest.resume(CONNECTOR)

    def append(self, line: str) -> None:
        self.say(f"   Append {line!r} to the file.")
        with self.file.open("a") as file:
            file.write(f"{line}\n")
        self.await_position(self.end)

    def expect(self, wanted: list[str]) -> None:
        """Kafka's own console consumer is the judge."""
        arguments = ["--bootstrap-server", self.lab.bootstrap_servers, "--topic", TOPIC, "--from-beginning"]
        arguments += ["--isolation-level", "read_committed", "--timeout-ms", "3000"]
        seen = self.lab.tool(CONSOLE_CONSUMER, *arguments).split()
        self.say(f"   kafka-console-consumer shows: {' '.join(seen)}")
        if seen != wanted:
            raise PlayheadError(f"the demo expected {' '.join(wanted)}")

    # Steps

    @property
    def end(self) -> int:
        return self.file.stat().st_size

    def stop(self) -> None:
        self.rest.stop(CONNECTOR)

        def is_stopped() -> bool:
            status = self.rest.find_status(CONNECTOR)
            return status is not None and status.connector.state == "STOPPED" and not status.tasks

        self.deadline.wait_for(is_stopped, f"stopping {CONNECTOR}")

    def playhead(self, *words: str) -> None:
        """The command in a process of its own, shown with what it prints. Its journal stays in the lab's folder."""
        self.say(f"   $ playhead {' '.join(words)}")
        flags = ["--connect", ",".join(self.lab.connect_urls), "--worker-config", str(self.lab.worker_config)]
        done = subprocess.run(
            [sys.executable, "-m", "playhead", *words, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=max(1.0, self.deadline.remaining()),
            env={**os.environ, "PLAYHEAD_JOURNAL": str(self.lab.folder / "journal")},
        )
        for line in done.stdout.splitlines():
            self.say(f"     {line}")
        if done.returncode:
            raise PlayheadError(f"playhead {words[0]} {words[1]} ended with exit code {done.returncode}")

    def await_position(self, position: int) -> None:
        def arrived() -> bool:
            return any(entry.offset == {"position": position} for entry in self.rest.get_offsets(CONNECTOR))

        self.deadline.wait_for(arrived, f"{CONNECTOR} reading to position {position}")


def run_demo(lab: Lab, say: Say) -> None:
    Demo(lab, say).run()
