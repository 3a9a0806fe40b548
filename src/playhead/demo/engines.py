"""Part 4: a source changes from Spark to the Connect worker and back, while its file is written to: every line is sent once."""

import subprocess
import threading
from pathlib import Path

from playhead.connect.rest import Rest
from playhead.demo.stage import Stage
from playhead.errors import PlayheadError

NAME, TOPIC = "demo_events", "demo-events"
LINES_PER_WRITE, PAUSE_SECONDS = 20, 0.1
FILE = """\
connectors:
  demo_events:
    engine: spark      # the hand-over edits this line
    config:
      connector.class: FileStreamSource
      file: {events}
      topic: demo-events
      value.converter: org.apache.kafka.connect.storage.StringConverter
"""


class EnginesAct:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.say = stage.say
        self.file = stage.folder / "events.yaml"
        self.events = stage.folder / "events.log"

    def run(self) -> None:
        self.clear()
        self.say("6. A source on Spark is given to the Connect worker and back, while lines are added to its file:")
        for line in self.file.read_text().splitlines():
            self.say(f"     {line}")
        with Writer(self.events) as writer:
            self.run_for_a_while()
            self.hand_over("connect")
            self.hand_over("spark")
        self.say("   No more lines are added. Run it on Spark until it has caught up:")
        self.stage.playhead("run", str(self.file))
        self.expect(writer.written)
        self.say("   Nothing lost, nothing duplicated.\n")

    def clear(self) -> None:
        """Removes what an earlier demo left, wherever its connector was running."""
        with Rest(self.stage.lab.connect_urls, self.stage.deadline) as rest:
            if NAME in rest.list_connectors():
                self.stage.output_of("handover", NAME, "--to", "spark", "--execute")
        self.stage.output_of("offsets", "delete", NAME, "--execute")
        self.stage.empty_topics([TOPIC], 1)
        self.file.write_text(FILE.format(events=self.events))
        self.events.write_text("")

    def run_for_a_while(self) -> None:
        words = ("run", str(self.file), "--continuous", "--interval", "1s")
        self.say(f"   $ playhead {' '.join(words)} &")
        self.process = self.stage.start(*words)
        self.await_more()

    def hand_over(self, engine: str) -> None:
        self.stage.playhead("handover", NAME, "--to", engine, "-f", str(self.file), "--execute")
        if engine == "connect":
            self.await_end_of_run()
            self.await_more()

    def await_end_of_run(self) -> None:
        """The hand-over asked it to stop."""
        try:
            output, _ = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if self.process.returncode:
            raise PlayheadError(f"the run ended with exit code {self.process.returncode}: {output[-500:]}")

    def await_more(self) -> None:
        before = self.stage.count_committed(TOPIC)
        self.stage.deadline.wait_for(
            lambda: self.stage.count_committed(TOPIC) > before + LINES_PER_WRITE, "new lines in the topic"
        )

    def expect(self, written: int) -> None:
        seen = self.stage.consumed(TOPIC, written)
        self.say(
            f"   {written} lines were written; kafka-console-consumer shows {len(set(seen))} of them, {len(seen)} records"
        )
        if seen != [f"event {number}" for number in range(written)]:
            raise PlayheadError(f"the demo expected each of {written} lines once, in their order")


class Writer:
    """Adds lines to a file until the block ends. `written`: how many."""

    def __init__(self, path: Path) -> None:
        self.written = 0
        self._path = path
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer of the demo")

    def _write(self) -> None:
        with self._path.open("a") as file:
            while not self._end.wait(PAUSE_SECONDS):
                lines = range(self.written, self.written + LINES_PER_WRITE)
                file.write("".join(f"event {number}\n" for number in lines))
                file.flush()
                self.written = lines.stop

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
