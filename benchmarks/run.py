"""Runs every benchmark, each against a named peer in the same run: `make bench`.

`python benchmarks/run.py [NAME ...] [--record]` prints the results; `--record` also adds them to RESULTS.md, with date,
machine and command.
"""

import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import audit_rows
import connectors_apply
import connectors_plan
import group_reset
import ingest_cpu
import latest_per_key
import ledger_commit
import python_source
import run_startup
import serve_pages
import sink_chain
import spark_deliver
import spark_ingest
import spark_replay
import spark_rows
import startup
import topic_copy

BENCHMARKS = {
    "startup": startup.measure,
    "run_startup": run_startup.measure,
    "latest_per_key": latest_per_key.measure,
    "group_reset": group_reset.measure,
    "connectors_plan": connectors_plan.measure,
    "connectors_apply": connectors_apply.measure,
    "ledger_commit": ledger_commit.measure,
    "serve_pages": serve_pages.measure,
    "ingest_cpu": ingest_cpu.measure,
    "spark_ingest": spark_ingest.measure,
    "python_source": python_source.measure,
    "spark_deliver": spark_deliver.measure,
    "sink_chain": sink_chain.measure,
    "spark_rows": spark_rows.measure,
    "spark_replay": spark_replay.measure,
    "topic_copy": topic_copy.measure,
    "audit_rows": audit_rows.measure,
}
RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> None:
    os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_STATE_HOME"] = (
        tempfile.mkdtemp()
    )  # ignores the contexts of the user
    words = sys.argv[1:]
    names = [word for word in words if not word.startswith("--")] or list(BENCHMARKS)
    lines: list[str] = []
    for name in names:
        print(f"== {name}", flush=True)
        for line in BENCHMARKS[name]():
            print(f"   {line}", flush=True)
            lines.append(f"- {name}: {line}")
    if "--record" in words:
        machine = (
            f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
        )
        head = f"\n## {datetime.now(UTC):%Y-%m-%d}, {machine}\n\n`python benchmarks/run.py {' '.join(names)}`\n\n"
        with RESULTS.open("a") as file:
            file.write(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
