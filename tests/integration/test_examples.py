"""The example files on the real worker: planned, and where the lab has the connector, run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from playhead.connect.answers import OffsetEntry

EXAMPLES = Path(__file__).parents[2] / "examples"
SAME = sorted(EXAMPLES.glob("same_connector.*"))


@pytest.fixture
def plan(playhead, lab):
    def run(*files: Path):
        words = [word for file in files for word in ("-f", str(file))]
        return json.loads(
            playhead("connectors", "plan", *words, "--connect", lab.connect_urls[0], "-o", "json").exits(1).out
        )

    return run


def test_one_connector_in_four_forms_is_one_plan(plan):
    assert [file.suffix for file in SAME] == [".json", ".properties", ".py", ".yaml"]
    plans = [json.dumps(plan(file), sort_keys=True) for file in SAME]
    assert "same_src" in plans[0]
    forms = {text.replace(file.name, "FILE") for text, file in zip(plans, SAME, strict=True)}
    assert len({_without_origins(json.loads(text)) for text in forms}) == 1


def _without_origins(found: object) -> str:
    if isinstance(found, dict):
        kept = {
            k: _without_origins(v) for k, v in found.items() if k not in ("origin", "origins", "id", "created", "line")
        }
        return json.dumps(kept, sort_keys=True)
    return json.dumps([_without_origins(v) for v in found] if isinstance(found, list) else found)


@pytest.mark.parametrize(("name", "connectors"), [("jdbc_tables.yaml", 4), ("jdbc_tables.py", 4), ("s3_sinks.yaml", 2)])
def test_where_the_plugin_is_missing_the_plan_says_so(playhead, lab, name, connectors):
    ran = playhead("connectors", "plan", "-f", str(EXAMPLES / name), "--connect", lab.connect_urls[0]).exits(2)
    assert ran.out.count("create") >= connectors
    assert "not on" in ran.out or "not installed" in ran.out or "no such plugin" in ran.out or "missing" in ran.out


def test_the_scripts_plan_apply_and_delete(lab, rest, tmp_path, deadline):
    lines, name = tmp_path / "lines.txt", "file_source"
    lines.write_text("a\nb\n")
    text = (EXAMPLES / "file_source.yaml").read_text()
    [old] = [line.split("file:", 1)[1].strip() for line in text.splitlines() if line.strip().startswith("file:")]
    file = tmp_path / "file_source.yaml"
    file.write_text(text.replace(old, str(lines)))
    name = next(line.strip().rstrip(":") for line in text.split("connectors:", 1)[1].splitlines() if line.strip())

    def script(which: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(EXAMPLES / which), *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PLAYHEAD_CONNECT": lab.connect_urls[0]},
        )

    planned = script("apply_connectors.py", str(file))
    assert planned.returncode == 0, planned.stderr
    assert name in planned.stdout
    assert name not in rest.list_connectors()
    applied = script("apply_connectors.py", str(file), "--execute")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    end = [OffsetEntry({"filename": str(lines)}, {"position": 4})]
    deadline.wait_for(lambda: rest.get_offsets(name) == end, "the file being read")
    assert script("delete_connectors.py", name).returncode == 0
    assert name in rest.list_connectors()
    deleted = script("delete_connectors.py", name, "--offsets", "--execute")
    assert deleted.returncode == 0, deleted.stdout + deleted.stderr
    assert name not in rest.list_connectors()
