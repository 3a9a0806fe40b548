"""The measured process of `ingest_cpu`: runs each kind of table in one Spark session and prints rates and CPU times as JSON.

It uses only what older code has, too: `ingest_cpu` starts it with the code that is compared.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from playhead.config import Context, Setting
from playhead.lab import Lab
from playhead.ledger.runs import Ledger, open_ledger
from playhead.model import ConnectorSpec, Deadline, Engine
from playhead.pipeline.connect_home import find_home
from playhead.pipeline.run import RunOptions, SparkRun
from playhead.pipeline.spark import SparkOptions, spark_session
from playhead.pipeline.spec import check_specs

STEPS = 5
STEP = "INSERT INTO small SELECT (SELECT coalesce(max(id), 0) FROM small) + i, 'x', 1, 'y' FROM generate_series(1, {rows}) i"
TICKS = os.sysconf("SC_CLK_TCK")


class Rounds:
    def __init__(self, run: SparkRun, lab: Lab, tag: str) -> None:
        self._run = run
        self._lab = lab
        self._tag = tag

    def kind(self, number: int, asked: dict[str, Any], rounds: int) -> dict[str, float]:
        """The best of the rounds after the first one."""
        found = [self._once(f"{self._tag}-{number}-{turn}", asked) for turn in range(rounds + 1)][1:]
        return max(found, key=lambda one: one["rate"])

    def _once(self, name: str, asked: dict[str, Any]) -> dict[str, float]:
        before, started = cpu_seconds(), time.perf_counter()
        rows = self._rows(name, asked["table"], asked["config"])
        seconds, after = time.perf_counter() - started, cpu_seconds()
        if rows != asked["rows"]:
            raise SystemExit(f"{name}: {rows} rows, not {asked['rows']}")
        each = {part: (after[part] - before[part]) / rows * 1e6 for part in after}
        return {"rate": rows / seconds, "cpu": sum(each.values()), **each}

    def step(self, rows: int) -> dict[str, float]:
        """New rows after a position: one step, from the start of the round to its end."""
        name, times = f"{self._tag}-step", []
        self._lab.psql("CREATE TABLE IF NOT EXISTS small (id bigint PRIMARY KEY, name text, qty int, note text)")
        for _ in range(STEPS + 1):
            self._lab.psql(STEP.format(rows=rows))
            started = time.perf_counter()
            self._rows(name, "small", {})
            times.append(time.perf_counter() - started)
        return {"seconds": min(times[1:])}

    def _rows(self, name: str, table: str, more: dict[str, str]) -> int:
        config = {
            "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
            "connection.url": self._lab.jdbc_url,
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.whitelist": table,
            "topic.prefix": f"{name}-",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            **more,
        }
        specs = check_specs([ConnectorSpec(name, config, Engine.SPARK)], self._run.home.worker)
        (done,) = self._run.run(specs).connectors
        if done.error:
            raise done.error
        return done.rows


def cpu_seconds() -> dict[str, float]:
    """Of this process, of Java's and of all other processes below this one, with those that they have waited for."""
    found = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
    parents: dict[int, int] = {}
    used: dict[int, tuple[str, float]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue  # it has ended
            name, _, rest = text.partition("(")[2].rpartition(")")
            words = rest.split()
            own, waited = int(words[11]) + int(words[12]), int(words[13]) + int(words[14])
            parents[int(folder.name)] = int(words[1])
            used[int(folder.name)] = (name, (own + (waited if "python" in name else 0)) / TICKS)
    for process, (name, seconds) in used.items():
        if process == os.getpid():
            found["driver"] += seconds
        elif _is_below(process, os.getpid(), parents):
            found["jvm" if name == "java" else "workers"] += seconds
    return found


def _is_below(process: int, above: int, parents: dict[int, int]) -> bool:
    while process > 1:
        process = parents.get(process, 0)
        if process == above:
            return True
    return False


def main() -> None:
    asked = json.loads(sys.argv[1])
    folder, lab = Path(asked["folder"]), Lab(Path(asked["folder"]) / "lab")
    context = Context(None, {"worker-config": Setting(str(folder / "worker.properties"), "here")})
    with open_ledger(f"sqlite:///{folder}/{asked['tag']}.db", 30) as ledger:
        print(json.dumps(_measured(asked, context, lab, ledger)))


def _measured(asked: dict[str, Any], context: Context, lab: Lab, ledger: Ledger) -> dict[str, dict[str, float]]:
    with spark_session(SparkOptions("local[2]")) as spark:
        run = SparkRun(context, find_home(context, Deadline(30)), ledger, spark, RunOptions())
        rounds = Rounds(run, lab, str(asked["tag"]))
        found = {kind["name"]: rounds.kind(number, kind, asked["rounds"]) for number, kind in enumerate(asked["kinds"])}
        return {**found, "step": rounds.step(asked["small"])}


if __name__ == "__main__":
    main()
