"""The same records give the same files, however they come; and they are the files that the connector's rules make."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.pipeline.deliver.files.options import FileSinkOptions
from unit.sink_files import (
    HOURLY,
    JSON,
    PARQUET,
    Json,
    Memory,
    Record,
    Written,
    batches,
    claim,
    options,
    write_to_memory,
)

HOUR_MS = 3_600_000
KEYS = ("a", "b")


@st.composite
def logs(draw):
    """Ascending offsets with holes, times that jump back and forth, two schemas, tombstones and poison."""
    records, offset = [], draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 40))):
        ms = 1_700_000_000_000 + draw(st.integers(0, 4)) * HOUR_MS // 2
        key = draw(st.sampled_from(KEYS))
        value = draw(st.sampled_from(["object"] * 8 + ["null", "poison"]))
        text = {"null": None, "poison": b"x"}.get(value, b'{"%s":"v%d"}' % (key.encode(), offset))
        records.append(Record(offset, ms, text, draw(st.integers(-(2**63), 2**63 - 1))))
        offset += draw(st.sampled_from([1, 1, 1, 2, 7]))
    return records, offset


CONFIGS = st.fixed_dictionaries(
    {
        "flush.size": st.sampled_from(["1", "2", "3", "7", "100"]),
        "behavior.on.null.values": st.sampled_from(["fail", "ignore"]),
    },
    optional={
        "rotate.interval.ms": st.sampled_from([str(HOUR_MS // 2), str(HOUR_MS), str(5 * HOUR_MS)]),
        "rotate.file.on.partition.change": st.sampled_from(["true", "false"]),
    },
).flatmap(lambda config: st.sampled_from([config, config | HOURLY]))
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def _run(given_options: FileSinkOptions, what, found, converting) -> Written:
    return write_to_memory(Memory(), given_options, what, found, converting)


def connector(records: list[Record], config: dict[str, str]) -> dict[str, list[int]]:
    """TopicPartitionWriter in small: one record after the other. Names of full files, and the offsets in them."""
    flush, interval = int(config["flush.size"]), int(config.get("rotate.interval.ms", "-1"))
    timed, on_change = "timezone" in config, config.get("rotate.file.on.partition.change", "true") == "true"
    files: dict[str, list[int]] = {}
    open_files: dict[str, list[int]] = {}
    schemas: dict[str, bytes] = {}
    count, base, current = 0, None, None

    def commit():
        nonlocal count, base, current
        for folder, offsets in open_files.items():
            files[f"topics/orders/{folder}/orders+2+{offsets[0]:010d}.json"] = offsets
        open_files.clear()
        schemas.clear()
        count, base, current = 0, None, None

    for record in [one for one in records if one.value and one.value != b"x"]:
        hours = (record.ms // HOUR_MS) - 1_700_000_000_000 // HOUR_MS + 22  # 14 November 2023, 22:13 UTC
        day, hour = 14 + hours // 24, hours % 24
        folder = f"year=2023/month=11/day={day}/hour={hour:02d}" if timed else "partition=2"
        base = record.ms if base is None else base
        schema = (record.value or b"")[:4]
        late = timed and interval > 0 and (record.ms - base >= interval or (on_change and folder != current))
        if count and (schemas.get(folder, schema) != schema or late):
            commit()
            base = record.ms
        current = folder
        schemas.setdefault(folder, schema)
        open_files.setdefault(folder, []).append(record.offset)
        count += 1
        if count >= flush:
            commit()
    commit()
    return files


@settings(max_examples=150, deadline=None)
@given(logs(), CONFIGS)
def test_files_have_the_names_and_records_that_the_connector_gives_them(log, config):
    records, end = log
    made = _run(options(config), claim(0, end + 1), batches(records), Json(columns=False))
    values = {record.offset: record.value for record in records}
    expected = {
        name: b"".join((values[offset] or b"") + b"\n" for offset in offsets)
        for name, offsets in connector(records, config).items()
    }
    assert made.data == expected


@settings(max_examples=100, deadline=None)
@given(logs(), CONFIGS, SIZES, SIZES, st.booleans(), st.sampled_from(["json", "gzip", "parquet"]))
def test_batches_of_any_size_give_the_same_bytes_ranges_and_rejects(log, config, sizes, others, closes, kind):
    records, end = log
    kinds = {"json": {}, "gzip": {"s3.compression.type": "gzip"}, "parquet": {"format.class": PARQUET}}
    opened = options({"format.class": JSON} | config | kinds[kind])
    runs = [
        _run(opened, claim(0, end + 1, closes=closes), batches(records, one), Json(columns=kind == "parquet"))
        for one in (list[int](), sizes, others)
    ]
    assert runs[0] == runs[1] == runs[2]


@settings(max_examples=100, deadline=None)
@given(logs(), CONFIGS, st.booleans())
def test_ranges_have_no_hole_and_show_what_was_delivered(log, config, closes):
    records, end = log
    made = _run(options(config), claim(0, end + 1, closes=closes), batches(records, [4]), Json(columns=False))
    at = 0
    for one in made.closed:
        inside = [record for record in records if record.offset in one.range]
        good = [record for record in inside if record.value and record.value != b"x"]
        assert one.range.start == at
        assert one.count == len(good) == sum(output.count for output in one.outputs)
        assert one.hash_sum % 2**64 == sum(record.hash for record in good) % 2**64
        assert (one.first_ms, one.last_ms) == (
            (min(record.ms for record in good), max(record.ms for record in good)) if good else (None, None)
        )
        offsets = [item.offset for item in made.rejected if item.offset in one.range]
        assert one.rejected == len(offsets) == len(set(offsets))
        at = one.range.end
    left = [record for record in records if record.offset >= at and record.value and record.value != b"x"]
    assert {item.offset for item in made.rejected} <= set(range(at))
    assert at == (left[0].offset if left else end + 1)
    assert not (closes and left)


@settings(max_examples=60, deadline=None)
@given(logs(), CONFIGS, st.lists(st.integers(1, 60), max_size=4))
def test_claims_that_leave_their_tail_give_in_the_end_the_files_of_one_claim(log, config, steps):
    records, end = log
    whole = _run(options(config), claim(0, end + 1), batches(records), Json(columns=False))
    place = Memory()
    at, reach, rejected = 0, 0, []
    for step in [*steps, end + 1]:
        reach = min(end + 1, max(at + 1, reach + step))
        what = replace(claim(at, reach), closes=reach == end + 1)
        inside = [record for record in records if at <= record.offset < reach]
        made = write_to_memory(place, options(config), what, batches(inside, [5]), Json(columns=False))
        rejected += made.rejected
        at = made.closed[-1].range.end if made.closed else at
        if at == end + 1:
            break
    assert made.data == whole.data
    assert rejected == whole.rejected
