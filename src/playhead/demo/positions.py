"""Part 1: a file source on the Connect worker. Its position is shown, moved, verified and undone."""

from playhead.connect.rest import Rest
from playhead.demo.stage import Stage
from playhead.errors import NotFound, PlayheadError

CONNECTOR = "demo-file-source"
TOPIC = "demo-lines"


class PositionsAct:
    def __init__(self, stage: Stage) -> None:
        self.lab = stage.lab
        self.say = stage.say
        self.playhead = stage.playhead
        self.stage = stage
        self.deadline = stage.deadline
        self.file = stage.folder / "lines.txt"
        self.rest = Rest(stage.lab.connect_urls, self.deadline)

    def run(self) -> None:
        with self.rest:
            self.clear()
            self.start_source(["alpha", "bravo", "charlie"])
            self.show_position()
            self.expect(["alpha", "bravo", "charlie"])
            self.say("")
            self.move_back_one_line()
            self.expect(["alpha", "bravo", "charlie", "charlie"])
            self.say("   Only that line was sent again.\n")
            self.delete_and_undo()
            self.append("delta")
            self.expect(["alpha", "bravo", "charlie", "charlie", "delta"])
            self.say("   Only the new line was sent: after the undo nothing is lost or duplicated.\n")

    def clear(self) -> None:
        """Removes what an earlier demo left, so that lines can be counted."""
        try:
            self.stop()
            self.rest.delete_offsets(CONNECTOR)
            self.rest.delete_connector(CONNECTOR)
        except NotFound:
            pass
        self.stage.empty_topics([TOPIC], 1)

    def start_source(self, lines: list[str]) -> None:
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

    def delete_and_undo(self) -> None:
        self.say("3. Delete the position by mistake, then undo it before the connector runs.")
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
        """Compares with Kafka's own console consumer."""
        seen = self.stage.consumed(TOPIC, len(wanted))
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

    def await_position(self, position: int) -> None:
        def arrived() -> bool:
            return any(entry.offset == {"position": position} for entry in self.rest.get_offsets(CONNECTOR))

        self.deadline.wait_for(arrived, f"{CONNECTOR} reading to position {position}")
