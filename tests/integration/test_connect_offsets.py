"""KIP-199's tool: what it exports it imports, numbers stay numbers, a running connector is refused."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from playhead.connect.answers import OffsetEntry
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.transactions import TransactionalProducer

PROGRAM = str(Path(sys.executable).parent / "connect-offsets")


@pytest.fixture
def tool(lab):
    """The command with its stdin: text, or nothing at all."""

    def run(*words: str, stdin: str | None = None, config=lab.worker_config):
        done = subprocess.run(
            [PROGRAM, "--config", str(config), *words],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def orphan(settings_of, unique, deadline):
    """Offsets of a connector that does not exist, in bytes as Connect writes them."""
    name = unique("orphan")
    values = {"orders": b'{"timestamp_nanos":789000,"incrementing":5,"timestamp":1704164648000}', "codes": None}
    with TransactionalProducer(settings_of, unique("tx"), deadline) as producer, producer.transaction():
        for table, value in values.items():
            producer.produce(
                "connect-offsets", f'["{name}",{{"protocol":"1","table":"public.{table}"}}]'.encode(), value
            )
    return name


def pairs(tool, name):
    code, out, err = tool("--connectors", name, "--export")
    assert code == 0, err
    return json.loads(out).get(name)


def test_what_is_exported_is_imported_without_a_change(tool, orphan, tmp_path):
    file = tmp_path / "offsets.json"
    assert tool("--connectors", orphan, "--export", str(file))[:2] == (0, "")
    code, out, err = tool("--import", str(file))
    assert (code, out) == (0, "")
    assert "already as requested" in err


def test_an_import_changes_what_it_names_and_leaves_the_rest(tool, orphan, unique):
    fresh = {"partition": {"protocol": "1", "table": "public.new"}, "offset": {"incrementing": 1}}
    [old] = pairs(tool, orphan)
    code, out, _ = tool(stdin=json.dumps({orphan: [fresh]}))
    assert (code, out) == (0, f'changed {orphan} {{"protocol":"1","table":"public.new"}}\n')
    assert sorted(pairs(tool, orphan), key=str) == sorted([old, fresh], key=str)
    code, out, _ = tool("--import", stdin=json.dumps({orphan: [fresh | {"offset": None}]}))
    assert code == 0
    assert pairs(tool, orphan) == [old]
    assert type(old["offset"]["incrementing"]) is int


def test_a_new_key_is_written_as_connect_would_and_where_java_puts_it(tool, orphan, playhead, lab):
    pair = {"partition": {"table": "é.😀", "protocol": "1"}, "offset": {"incrementing": 1}}
    assert tool(stdin=json.dumps({orphan: [pair]}))[0] == 0
    raw = f'["{orphan}",{{"protocol":"1","table":"é.\\uD83D\\uDE00"}}]'.encode()
    rows = json.loads(
        playhead("offsets", "list", orphan, "--worker-config", str(lab.worker_config), "-o", "json").exits(0).out
    )
    [row] = [row for row in rows if row["partition"]["table"] == "é.😀"]
    assert row["kafka_partition"] == partition_of(raw, 5)
    assert row["notes"] == []


@pytest.mark.parametrize("flag", ["--dry-run", "--dry-run=true"])
def test_a_dry_run_prints_the_actions_and_changes_nothing(tool, orphan, flag):
    [old] = pairs(tool, orphan)
    wanted = [old | {"offset": {"incrementing": 9}}]
    code, out, err = tool(flag, stdin=json.dumps({orphan: wanted}))
    assert code == 0
    assert out.startswith(f'set {orphan} {{"protocol":"1","table":"public.orders"}} from ')
    assert out.rstrip().endswith('to {"incrementing":9}')
    assert "nothing was changed" in err
    assert pairs(tool, orphan) == [old]


def test_the_whole_history_is_imported_as_its_last_state(tool, orphan, tmp_path):
    [old] = pairs(tool, orphan)
    for n in (7, 8):
        assert tool(stdin=json.dumps({orphan: [old | {"offset": {"incrementing": n}}]}))[0] == 0
    history = tmp_path / "history.json"
    tool("--connectors", orphan, "--from-beginning", "--export", str(history))
    offsets = [
        pair["offset"] for pair in json.loads(history.read_text())[orphan] if "orders" in pair["partition"]["table"]
    ]
    assert offsets == [old["offset"], {"incrementing": 7}, {"incrementing": 8}]
    code, _, err = tool("--import", str(history))
    assert (code, "already as requested" in err) == (0, True)


def test_a_running_connector_is_refused_unless_forced(tool, lab, rest, new_topic, unique, tmp_path, deadline):
    name, file = unique("files"), tmp_path / "lines.txt"
    file.write_text("a\nb\n")
    rest.create_connector(name, {"connector.class": "FileStreamSource", "file": str(file), "topic": new_topic()})
    at_end = [OffsetEntry({"filename": str(file)}, {"position": 4})]
    deadline.wait_for(lambda: rest.get_offsets(name) == at_end, "the file being read")
    wanted = json.dumps({name: [{"partition": {"filename": str(file)}, "offset": {"position": 2}}]})
    code, out, _ = tool(stdin=wanted)
    assert code == 4
    assert f"{name} is RUNNING with 1 task(s)" in out
    assert rest.get_offsets(name) == at_end
    assert tool("--force", stdin=wanted)[0] == 0
    assert rest.get_offsets(name) == [OffsetEntry({"filename": str(file)}, {"position": 2})]
    rest.delete_connector(name)


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        ("[]", "$"),
        ('{"c": {}}', "$.c"),
        ('{"c": [{"partition": {}}]}', "$.c[0]"),
        ('{"c": [{"partition": {"a": 1}, "offset": {"n": [1]}}]}', "$.c[0].offset.n"),
        ('{"c": [{"partition": {"a": 1}, "offset": {"n": 9223372036854775808}}]}', "$.c[0].offset.n"),
        ('{"c": [{"partition": {"a": 1}, "offset": {"n": 1}, "more": 1}]}', "more"),
        ('{"c": [', "stdin"),
        ("no json", "stdin"),
    ],
)
def test_bad_input_is_named_by_its_path_and_nothing_is_written(tool, stdin, said):
    code, out, err = tool(stdin=stdin)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    "words",
    [
        ["--export", "--import"],
        ["--bad"],
        ["--dry-run"],
        ["--force"],
        ["--import", "-", "--from-beginning"],
    ],
)
def test_wrong_usage_is_answered_with_the_usage(tool, words):
    code, _, err = tool(*words)
    assert code == 2
    assert err.startswith("Usage: connect-offsets")


def test_without_a_config_there_is_usage(lab):
    done = subprocess.run([PROGRAM], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--config" in done.stderr


def test_an_empty_stdin_means_export_and_a_slow_pipe_is_waited_for(tool, lab, orphan):
    code, out, _ = tool("--connectors", orphan, stdin="")
    assert (code, list(json.loads(out))) == (0, [orphan])
    read, write = os.pipe()
    slow = subprocess.Popen(
        [PROGRAM, "--config", str(lab.worker_config)], stdin=read, stdout=subprocess.PIPE, text=True
    )
    os.close(read)
    time.sleep(1.5)  # the pipe fills after the tool has begun to look at it
    os.write(write, json.dumps({orphan: [{"partition": {"q": 1}, "offset": {"n": 1}}]}).encode())
    os.close(write)
    out, _ = slow.communicate(timeout=60)
    assert (slow.returncode, out) == (0, f'changed {orphan} {{"q":1}}\n')
