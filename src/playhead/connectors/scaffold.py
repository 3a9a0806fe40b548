"""A new connector in Python: a small package that works as it is written, and is changed from there.

A source counts numbers, a sink appends records to a file. Both have a test, a connector file and a pyproject.toml with an entry
point, so that the folder can be used as it is (`plugin.path`), installed, or built into a wheel.
"""

import keyword
import re
from pathlib import Path

from playhead.errors import AlreadyExists, Invalid
from playhead.files import replace_file

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")


def write_connector(name: str, parent: Path, *, is_sink: bool = False) -> list[Path]:
    """The files that were written, below `parent`/`name`, which must not exist."""
    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or keyword.iskeyword(package):
        raise Invalid(
            f"{name!r} cannot be the name of a package", "use small letters, digits and dashes, like my-orders"
        )
    folder = parent / name
    if folder.exists():
        raise AlreadyExists(f"{folder} exists already", hint="choose another name, or remove it")
    title = "".join(part.capitalize() for part in package.split("_"))
    texts = _SINK if is_sink else _SOURCE
    written = []
    for path, text in {**_BOTH, **texts}.items():
        file = folder / path.format(package=package, name=name)
        file.parent.mkdir(parents=True, exist_ok=True)
        made = text.replace("{package}", package).replace("{name}", name).replace("{Title}", title)
        replace_file(file, made.lstrip("\n").encode(), new_mode=0o644)
        written.append(file)
    return written


_BOTH = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
dependencies = ["playhead"]

[project.entry-points."playhead.connectors"]
{name} = "{package}:{Title}"

[tool.hatch.build.targets.wheel]
packages = ["src/{package}"]

[tool.pytest.ini_options]
pythonpath = ["src"]
""",
}

_SOURCE = {
    "src/{package}/__init__.py": '''
"""A source that counts. Replace what `poll` gives by what your source has."""

from playhead.sdk import Option, SourceConnector, SourceRecord, SourceTask, between


class {Title}Task(SourceTask):
    def start(self, config, offsets):
        self.config = config
        self.partition = {"counter": "main"}
        self.number = offsets.get(self.partition, {"number": 0})["number"]

    def poll(self):
        last = min(self.number + self.config["page.size"], self.config["count"])
        for number in range(self.number + 1, last + 1):
            self.number = number
            yield SourceRecord(
                topic=self.config["topic"],
                key=str(number),
                value={"number": number, "square": number * number},
                partition=self.partition,
                offset={"number": number},
            )


class {Title}(SourceConnector):
    version = "0.1.0"
    config = [
        Option("topic", doc="The topic to write to"),
        Option("count", int, 1000, doc="The last number", check=between(0, 10**9)),
        Option("page.size", int, 100, doc="Records of one poll", check=between(1, 10_000)),
    ]
    task = {Title}Task
''',
    "tests/test_{package}.py": """
from {package} import {Title}

from playhead.sdk.testing import check_restarts, run_source

CONFIG = {"topic": "numbers", "count": "10", "page.size": "3"}


def test_it_counts():
    run = run_source({Title}, CONFIG)
    assert run.values("numbers")[-1] == {"number": 10, "square": 100}
    assert run.offset({"counter": "main"}) == {"number": 10}


def test_any_restart_repeats_nothing_and_loses_nothing():
    check_restarts({Title}, CONFIG)
""",
    "{name}.properties": """
name={name}
connector.class={package}.{Title}
tasks.max=1
topic={name}
count=1000
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
topic.creation.default.partitions=-1
topic.creation.default.replication.factor=-1
""",
}

_SINK = {
    "src/{package}/__init__.py": '''
"""A sink that appends records to a file for each claim. Replace what `put` does by what your target needs."""

import json
from pathlib import Path

from playhead.sdk import Option, SinkConnector, SinkTask


class {Title}Task(SinkTask):
    def start(self, config):
        self.folder = Path(config["folder"])
        self.lines = []

    def open(self, claims):
        """A claim that is given again writes the same file again: exactly once."""
        self.claims = claims

    def put(self, records):
        self.lines += [json.dumps(record.value) for record in records]

    def flush(self, offsets):
        self.folder.mkdir(parents=True, exist_ok=True)
        name = "_".join(claim.id for claim in self.claims)
        (self.folder / f"{name}.jsonl").write_text("".join(line + "\\n" for line in self.lines))


class {Title}(SinkConnector):
    version = "0.1.0"
    config = [Option("folder", doc="Where the files are written")]
    task = {Title}Task
''',
    "tests/test_{package}.py": """
import json

from {package} import {Title}

from playhead.sdk import SinkRecord
from playhead.sdk.testing import check_claims


def test_a_claim_that_is_given_again_writes_nothing_twice(tmp_path):
    records = [SinkRecord("orders", 0, offset, {"id": offset}) for offset in range(5)]

    def written():
        return [json.loads(line)["id"] for file in tmp_path.iterdir() for line in file.read_text().splitlines()]

    check_claims({Title}, {"folder": str(tmp_path)}, records, written)
    assert written() == [0, 1, 2, 3, 4]
""",
    "{name}.properties": """
name={name}
connector.class={package}.{Title}
topics=orders
folder=/tmp/{name}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
""",
}
