"""Sources in Python for the tests of runs: pages of numbered records in a folder, and everything that can go wrong in a task."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from integration.ingesting import Ingest
from integration.on_spark import JSON, NEW_TOPICS
from playhead.config import Setting
from playhead.model import ConnectorSpec, Engine
from playhead.pipeline.run import SparkRun
from playhead.pipeline.spec import check_specs
from playhead.pipeline.supervisor import Progress

STRING = {"key.converter": "org.apache.kafka.connect.storage.StringConverter"}
MODULE = '''
import json, os, socket, time
from pathlib import Path
from playhead.sdk import Option, RetriableException, SourceConnector, SourceRecord, SourceTask, split

KEPT = []


class PagesTask(SourceTask):
    """Source partitions are files of a folder: a page is a line, a JSON list."""

    def start(self, config, offsets):
        self.config = config
        self.at = {name: offsets.get({"file": name}, {"page": 0})["page"] for name in config["files"]}
        self.polls = 0

    def lines(self, name):
        return (Path(self.config["folder"]) / name).read_text().splitlines()

    def poll(self):
        self.polls += 1
        self.trouble()
        for name, page in self.at.items():
            lines = self.lines(name)
            if page < len(lines):
                self.at[name] += 1
                return [self.record(name, page, one) for one in json.loads(lines[page])]
        return None

    def record(self, name, page, one):
        return SourceRecord(self.config["topic"], one, str(one.get("id")), {"file": name}, {"page": page + 1})

    def trouble(self):
        pass


class Pages(SourceConnector):
    version = "1"
    config = [Option("folder"), Option("topic"), Option("bad.file", str, "")]
    task = PagesTask
    defines_transactions = True

    def start(self, config):
        self.options = config

    def task_configs(self, max_tasks):
        names = sorted(one.name for one in Path(self.options["folder"]).iterdir())
        return [{"files": some} for some in split(names, max_tasks)]


def variant(name, **members):
    task = type(f"{name}Task", (PagesTask,), members)
    return type(name, (Pages,), {"task": task, "__module__": __name__})


def is_bad(task):
    return task.config["bad.file"] in task.at and task.polls == 2


def raises(task):
    if is_bad(task):
        raise ValueError("no such page")


def hangs(task):
    if is_bad(task):
        time.sleep(30)


def unavailable(task):
    marker = Path(task.config["folder"]).parent / "was-unavailable"
    if not marker.exists():
        marker.write_text("")
        raise RetriableException("503, come back later")


def leaks(task):
    KEPT.append(socket.socket())


def back(task, name, page, one):
    page = 0 if is_bad(task) else page + 1
    return SourceRecord(task.config["topic"], one, None, {"file": name}, {"page": page})


def strange(task, name, page, one):
    return one if is_bad(task) else PagesTask.record(task, name, page, one)


def unwritable(task, name, page, one):
    one = {**one, "x": object()} if is_bad(task) else one
    return SourceRecord(task.config["topic"], one, None, {"file": name}, {"page": page + 1})


def shared(task, name, page, one):
    return SourceRecord(task.config["topic"], one, None, {"file": "all"}, {"page": page + 1})


def full(task, name, page, one):
    return SourceRecord(task.config["topic"], one, str(one["id"]), {"file": name}, {"page": page + 1},
                        headers={"from": name}, timestamp=1_700_000_000_000 + one["id"], kafka_partition=one["id"] % 2)


def commits_in_two_polls(task):
    if task.polls in (2, 4):
        task.transaction.commit()


Raises = variant("Raises", trouble=raises)
Hangs = variant("Hangs", trouble=hangs)
Unavailable = variant("Unavailable", trouble=unavailable)
Leaks = variant("Leaks", trouble=leaks)
Back = variant("Back", record=back)
Strange = variant("Strange", record=strange)
Unwritable = variant("Unwritable", record=unwritable)
Shared = variant("Shared", record=shared)
Full = variant("Full", record=full)
Defines = variant("Defines", trouble=commits_in_two_polls)


class Spoken(Pages):
    """With a dialect of its own."""

    start_over = "All pages of the file are read again."

    @classmethod
    def check_offset(cls, partition, offset):
        if type(offset.get("page")) is not int or offset["page"] < 0:
            yield f"page must be the number of the next page, not {offset.get('page')!r}"

    @classmethod
    def show_offset(cls, partition, offset):
        return f"goes on with page {offset['page']}"

    @classmethod
    def compare_offsets(cls, before, after):
        return (before["page"] > after["page"]) - (before["page"] < after["page"])


class NeverStarts(Pages):
    def task_configs(self, max_tasks):
        time.sleep(30)
'''


@dataclass
class PolledSources(Ingest):
    folder: Path = Path()

    def __post_init__(self) -> None:
        self.plugins = self.folder / "plugins"
        self.plugins.mkdir(parents=True, exist_ok=True)
        (self.plugins / "polled_pages.py").write_text(MODULE)

    def pages(self, name: str, files: dict[str, list[list[dict[str, object]]]]) -> Path:
        """A folder with these files, each with its pages."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for file, pages in files.items():
            (folder / file).write_text("".join(json.dumps(page) + "\n" for page in pages))
        return folder

    def source(self, name: str, folder: Path, kind: str = "Pages", **config: str) -> ConnectorSpec:
        own = {"connector.class": f"polled_pages.{kind}", "folder": str(folder), "topic": name}
        return ConnectorSpec(name, {**JSON, **STRING, **NEW_TOPICS, **own, **config}, Engine.SPARK)

    def prepared(self, **options: int | float | None) -> SparkRun:
        run = super().prepared(**options)
        settings = {**run.context.settings, "plugin-path": Setting(str(self.plugins), "here")}
        return replace(run, context=replace(run.context, settings=settings))

    def polled(self, *specs: ConnectorSpec, **options: int | float | None) -> list[Progress]:
        from playhead.offsets.plugins import use_plugins

        run = self.prepared(**options)
        use_plugins(run.context)
        return list(run.run(check_specs(specs, run.home.worker)).connectors)
