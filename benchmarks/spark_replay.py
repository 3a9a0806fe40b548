"""`playhead replay` of ranges inside a delivered topic: only their files are touched, and the time follows the size of the range.

One topic of 4 partitions is delivered as JSON lines in files of 10,000 records. Then ranges of one partition are replayed, each
longer than the one before, in the session that is open already; the best of several rounds. Files that are replaced are
counted by their inodes. The last line replays a range of the same size in a topic of a tenth of the records: what lies
around a range must not matter. `ROWS=1000000` in the environment sets another size.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from spark_runs import PARTITIONS, Runner, bench_lab, fill, make_topic

from playhead.config import Context, Setting
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Engine, Result
from playhead.pipeline.replay.asked import Asked, parse_range
from playhead.pipeline.replay.run import ReplayOptions, planned_replay, replay_on
from playhead.pipeline.spark import SparkOptions, spark_session

ROWS = int(os.environ.get("ROWS", "20000000"))
ROUNDS, FILE = 3, 10_000
LARGE, TENTH = "bench-replay", "bench-replay-tenth"


def measure() -> Iterator[str]:
    with bench_lab() as (lab, folder, of_lab):
        ledger_url = f"sqlite:///{folder}/ledger.db"
        context = replace(of_lab, settings={**of_lab.settings, **_settings(ledger_url, folder)})
        with open_ledger(ledger_url, 30) as ledger, spark_session(SparkOptions("local[2]")) as spark:
            runner = Runner(lab, context, spark, ledger)
            for topic, rows in ((LARGE, ROWS), (TENTH, ROWS // 10)):
                make_topic(lab, topic, PARTITIONS)
                fill(lab, topic, range(rows), _value)
                delivered = runner.rows(topic, _config(topic, folder))
                if delivered != rows:
                    raise SystemExit(f"{topic}: {delivered} records, not {rows}")
            yield f"{ROWS:,} records delivered in {len(_inodes(folder / LARGE)):,} files of up to {FILE:,} records"
            bench = _Bench(runner, folder)
            longest = ROWS // PARTITIONS // 2
            lengths = [length for length in (FILE, 2 * FILE, 4 * FILE, 8 * FILE, 16 * FILE) if length <= longest]
            for length in lengths:
                yield bench.line(LARGE, length)
            yield bench.line(TENTH, min(2 * FILE, ROWS // 10 // PARTITIONS // 2 // FILE * FILE or FILE))


def _settings(ledger_url: str, folder: Path) -> dict[str, Setting]:
    return {"ledger": Setting(ledger_url, "here"), "journal": Setting(f"{folder}/journal", "here")}


def _value(number: int) -> bytes:
    return b'{"id":%d,"name":"customer %d","amount":%d,"note":"a text of some length, as in real life"}' % (
        number,
        number % 1000,
        number % 77,
    )


def _config(topic: str, folder: Path) -> dict[str, str]:
    return {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": topic,
        "store.url": (folder / topic).as_uri(),
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "flush.size": str(FILE),
    }


def _inodes(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_ino for path in folder.rglob("*.json") if "+" in path.name}


class _Bench:
    def __init__(self, runner: Runner, folder: Path) -> None:
        self._runner = runner
        self._folder = folder

    def line(self, topic: str, length: int) -> str:
        """A range in the middle of partition 1."""
        start = _middle(self._folder / topic)
        before = _inodes(self._folder / topic)
        plans, times = zip(*(self._replayed(topic, start, length) for _ in range(ROUNDS)), strict=True)
        after = _inodes(self._folder / topic)
        changed = sum(before[name] != inode for name, inode in after.items())
        if set(before) != set(after) or changed != length // FILE:
            raise SystemExit(f"{topic}: {changed} of {len(after)} files were replaced, not {length // FILE}")
        rate = length / min(times)
        return (
            f"{length:,} records in the middle of {topic}: planned in {min(plans):.2f} s, delivered in {min(times):.2f} s"
            f" ({rate / 1e3:.0f} k records/s), {changed} of {len(after):,} files replaced"
        )

    def _replayed(self, topic: str, start: int, length: int) -> tuple[float, float]:
        spec = ConnectorSpec(topic, _config(topic, self._folder), Engine.SPARK)
        file = self._folder / f"{topic}.file.json"
        file.write_text(json.dumps({"name": topic, "config": dict(spec.config)}))
        asked = Asked((parse_range(f"{topic}:1:{start}-{start + length}"),))
        began = time.perf_counter()
        context: Context = self._runner.context
        with planned_replay(context, topic, asked, ReplayOptions(str(file))) as planned:
            at = time.perf_counter()
            done = list(replay_on(context, planned, self._runner.spark))
            if {one.result for one in done} != {Result.CHANGED} or sum(one.count for one in done) != length:
                raise SystemExit(f"{topic}: {done}")
            return at - began, time.perf_counter() - at


def _middle(folder: Path) -> int:
    """The first offset of a file in the middle of partition 1: the marker of a transaction may shift the cuts."""
    starts = sorted(int(Path(name).name.split("+")[2].partition(".")[0]) for name in _inodes(folder) if "+1+" in name)
    return starts[len(starts) // 3]
