"""Rows of the CSV files of a folder, which grow and are rotated. A file is known by its inode and its first row.

PLAYHEAD_PLUGIN_PATH=examples/connectors playhead run examples/connectors/csv_folder.properties
"""

import csv
import hashlib
import os
from pathlib import Path

from playhead.sdk import Option, SourceConnector, SourceRecord, SourceTask


class CsvTask(SourceTask):
    def start(self, config, offsets):
        self.config, self.offsets, self.at = config, offsets, {}

    def poll(self):
        for path in sorted(Path(self.config["folder"]).glob(self.config["files"])):
            try:
                with path.open("rb") as file:
                    records = list(self.rows(file))
            except FileNotFoundError:
                continue  # rotated at this moment: it has another name now
            if records:
                return records
        return []

    def rows(self, file):
        head, first = file.readline(), file.readline()
        if not first.endswith(b"\n"):
            return
        name = f"{os.fstat(file.fileno()).st_ino}-{hashlib.sha256(first).hexdigest()[:16]}"
        byte = self.at.get(name) or self.offsets.get({"file": name}, {"byte": len(head)})["byte"]
        names = next(csv.reader([head.decode()]))
        file.seek(byte)
        for _ in range(self.config["batch.size"]):
            line = file.readline()
            if not line.endswith(b"\n"):
                break  # its end is not written yet
            byte += len(line)
            value = dict(zip(names, next(csv.reader([line.decode()])), strict=True))
            yield SourceRecord(self.config["topic"], value, partition={"file": name}, offset={"byte": byte})
        self.at[name] = byte


class CsvFolder(SourceConnector):
    version = "1.0"
    config = [
        Option("folder", doc="Where the files are"),
        Option("files", str, "*.csv*", doc="Which of them, rotated ones too"),
        Option("topic"),
        Option("batch.size", int, 1000),
    ]
    task = CsvTask
