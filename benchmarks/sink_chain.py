"""Topic -> JSON lines: what a chain costs the Python worker of a sink, in CPU per record, without Spark and without a broker.

The records of a claim are written to files by the writer that a task has. Each kind is written ROUNDS times in turn with the
others, and the best is shown. RUN is the CPU of a whole run without a chain per record, Spark included: see `spark_deliver`.
"""

import json
import random
import tempfile
import time
from collections.abc import Iterator

import pyarrow as pa

from playhead.ledger.model import RangeClaim
from playhead.model.ranges import OffsetRange
from playhead.pipeline.deliver.files.sink import open_file_writer
from playhead.pipeline.deliver.sink import RECORDS

ROWS, BATCH, ROUNDS = 100_000, 10_000, 5
RUN, SHARE = 2.4, 0.15  # microseconds; of a run without a chain
_TYPE = "org.apache.kafka.connect.transforms."
ROUTER = {
    "transforms": "r",
    "transforms.r.type": f"{_TYPE}RegexRouter",
    "transforms.r.regex": "(.*)",
    "transforms.r.replacement": "new-$1",
}
THREE = {
    "transforms": "r,c,i",
    "transforms.r.type": f"{_TYPE}ReplaceField$Value",
    "transforms.r.renames": "name:title",
    "transforms.c.type": f"{_TYPE}Cast$Value",
    "transforms.c.spec": "qty:string",
    "transforms.i.type": f"{_TYPE}InsertField$Value",
    "transforms.i.static.field": "s",
    "transforms.i.static.value": "x",
}
NONE = "no chain"
CHAINS = {NONE: {}, "router only": ROUTER, "chain of three": THREE}
FIELDS = [("id", "int64"), ("name", "string"), ("qty", "int32"), ("price", "double"), ("note", "string")]
SCHEMA = {"type": "struct", "fields": [{"field": name, "type": kind} for name, kind in FIELDS]}


def measure() -> Iterator[str]:
    for words, has_schema in (("without a schema", False), ("with a schema", True)):
        batches = list(_batches(has_schema=has_schema))
        best = dict.fromkeys(CHAINS, float("inf"))
        for _ in range(ROUNDS):
            for name, chain in CHAINS.items():
                best[name] = min(best[name], _micros(batches, chain, has_schema=has_schema))
        for name, micros in best.items():
            yield f"{words}, {name}: {micros:.2f} us of CPU per record"
        for name in list(CHAINS)[1:]:
            share = (best[name] - best[NONE]) / RUN
            yield f"bar: {words}, {name} adds at most {SHARE:.0%} of a run without; got {share:.0%}"


def _batches(*, has_schema: bool) -> Iterator[pa.RecordBatch]:
    dice = random.Random(15)
    for start in range(0, ROWS, BATCH):
        values = []
        for number in range(start, start + BATCH):
            row = {
                "id": number,
                "name": f"name {number}",
                "qty": number % 1000,
                "price": round(dice.uniform(0, 1000), 2),
                "note": f"a note of a row, {dice.getrandbits(64):016x}",
            }
            record = {"schema": SCHEMA, "payload": row} if has_schema else row
            values.append(json.dumps(record, separators=(",", ":")).encode())
        offsets = pa.array(range(start, start + BATCH), pa.int64())
        times = pa.array([1_700_000_000_000_000 + number for number in range(BATCH)]).cast(pa.timestamp("us", "UTC"))
        yield pa.record_batch(
            [offsets, times, pa.nulls(BATCH, pa.binary()), pa.array(values, pa.binary()), offsets], schema=RECORDS
        )


def _micros(batches: list[pa.RecordBatch], chain: dict[str, str], *, has_schema: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "store.url": f"file://{folder}",
            "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
            "flush.size": str(ROWS),
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": str(has_schema).lower(),
            **chain,
        }
        writer = open_file_writer(config, {})
        claim = RangeClaim(OffsetRange("orders", "id", 0, 0, ROWS), True, "shape", 1_700_000_000_000)
        began = time.process_time()
        closed = list(writer.write(claim, iter(batches), print))
        spent = time.process_time() - began
    if sum(one.count for one in closed) != ROWS:
        raise SystemExit("not all records were written")
    return spent / ROWS * 1e6
