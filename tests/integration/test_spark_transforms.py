"""Transforms on rows of a source give the bytes that Kafka's own transforms and converters give, on random rows."""

import base64
import json
import random
import re
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from integration.test_spark_records import _random_double, _random_text
from integration.transform_oracle import Outcome, transformed
from playhead.errors import Invalid, Rejected
from playhead.pipeline.ingest.encoding import RecordEncoder
from playhead.pipeline.ingest.record_options import parse_source_records
from playhead.pipeline.records.encode.fields import SqlColumn
from playhead.pipeline.records.encode.options import JSON, STRING
from playhead.pipeline.records.transforms.on_sources import route

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA = "org.apache.kafka.connect.transforms."
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = [
    SqlColumn(name, jdbc_type, type_name, precision, scale, signed=True, nullable=name != "id")
    for name, jdbc_type, type_name, precision, scale in [
        ("id", 4, "int4", 10, 0),
        ("i1", -6, "tinyint", 3, 0),
        ("i2", 5, "int2", 5, 0),
        ("i4", 4, "int4", 10, 0),
        ("i8", -5, "int8", 19, 0),
        ("f", 7, "float4", 8, 8),
        ("d", 8, "float8", 17, 17),
        ("bo", 16, "bool", 1, 0),
        ("s", 12, "text", 0, 0),
        ("w", 12, "text", 0, 0),
        ("n", 2, "numeric", 12, 2),
        ("y", -2, "bytea", 0, 0),
        ("dt", 91, "date", 13, 0),
        ("ts", 93, "timestamp", 29, 6),
        ("tm", 92, "time", 15, 6),
    ]
]
FRAME = (
    "id int, i1 tinyint, i2 smallint, i4 int, i8 bigint, f float, d double, bo boolean, s string, w string, n string,"
    " y binary, dt int, ts timestamp, tm string"
)
Rows = list[dict[str, Any]]


def chain(*transforms: str, **more: str) -> dict[str, str]:
    """`Cast$Key spec=string` and so on, in their order; converters are JSON without schemas by default."""
    config = {"key.converter": JSON, "value.converter": JSON, "transforms": ""}
    config |= {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    for number, text in enumerate(transforms):
        name, *options = text.split(" ")
        alias = f"t{number}"
        config["transforms"] += f",{alias}" if number else alias
        config[f"transforms.{alias}.type"] = KAFKA + name
        config |= {f"transforms.{alias}.{option.partition('=')[0]}": option.partition("=")[2] for option in options}
    config |= {name.replace("__", "."): value for name, value in more.items()}
    for part in ("key", "value"):
        if config[f"{part}.converter"] == STRING:
            del config[f"{part}.converter.schemas.enable"]
    return config


WITH_SCHEMAS = {"key__converter__schemas__enable": "true", "value__converter__schemas__enable": "true"}
TEXTS = {"key__converter": STRING, "value__converter": STRING}
EXCEPT_BYTES = "ReplaceField$Value exclude=y"
CHAINS = [
    chain(),
    chain(**WITH_SCHEMAS),
    chain(EXCEPT_BYTES, **TEXTS),
    chain("ValueToKey fields=id", **WITH_SCHEMAS),
    chain("ValueToKey fields=s,i8,n", **WITH_SCHEMAS),
    chain("ValueToKey fields=id", "ExtractField$Key field=id"),
    chain("ValueToKey fields=id", "ExtractField$Key field=id", EXCEPT_BYTES, **TEXTS),
    *(
        chain(f"ValueToKey fields={name}", f"ExtractField$Key field={name}", **more)
        for name in ("i1", "i8", "f", "d", "bo", "s", "n", "y", "dt", "ts", "tm")
        for more in ({}, WITH_SCHEMAS)
    ),
    *(
        chain(f"ExtractField$Value field={name}", value__converter=STRING)
        for name in ("i1", "i8", "f", "d", "bo", "s", "n", "dt", "ts", "tm")
    ),
    *(chain(f"ExtractField$Value field={name}", **WITH_SCHEMAS) for name in ("i4", "s", "n", "ts")),
    chain("ExtractField$Value field=n", value__converter__decimal__format="NUMERIC"),
    chain("ValueToKey fields=n,id", key__converter__decimal__format="NUMERIC"),
    chain("ReplaceField$Value include=id,s,ts renames=s:text,ts:id2", **WITH_SCHEMAS),
    chain("ReplaceField$Value renames=i1:i2,i2:i1", **WITH_SCHEMAS),
    chain("ReplaceField$Value include=id,s exclude=id renames=nothing:here"),
    chain("ValueToKey fields=id,s", "ReplaceField$Key exclude=s renames=id:k", **WITH_SCHEMAS),
    chain('InsertField$Value topic.field=topic! static.field=st static.value=é😀"x', **WITH_SCHEMAS),
    chain("InsertField$Value partition.field=p timestamp.field=t? static.field=st! static.value=", **WITH_SCHEMAS),
    chain("ValueToKey fields=id", "InsertField$Key static.field=a static.value=b", "InsertField$Value topic.field=x"),
    chain("MaskField$Value fields=i1,i2,i4,i8,f,d,bo,s,gone,id", **WITH_SCHEMAS),
    chain("MaskField$Value fields=i1,i2,i4,i8,f,d,s,id replacement=-12", **WITH_SCHEMAS),
    chain("MaskField$Value fields=f,d,s replacement=0.1"),
    chain("MaskField$Value fields=s replacement=***é"),
    chain("ValueToKey fields=s,id", "MaskField$Key fields=s", EXCEPT_BYTES, **TEXTS),
    *(
        chain(f"Cast$Value spec={','.join(f'{name}:{kind}' for name in names)}", **WITH_SCHEMAS)
        for kind in ("int8", "int16", "int32", "int64", "float32", "float64", "boolean")
        for names in (["i1", "i2", "i4", "i8", "bo", "n", "id"], ["f", "d"], ["dt", "ts", "tm"], ["w"])
    ),
    chain(
        "Cast$Value spec=i1:string,i2:string,i4:string,i8:string,f:string,d:string,bo:string,s:string", **WITH_SCHEMAS
    ),
    chain("Cast$Value spec=n:string,y:string,w:STRING,gone:int8"),
    chain("Cast$Value spec=n:string,y:string,w:string", **TEXTS),
    chain("ValueToKey fields=id", "ExtractField$Key field=id", "Cast$Key spec=string", key__converter=STRING),
    chain("ValueToKey fields=id", "ExtractField$Key field=id", "Cast$Key spec=int64", **WITH_SCHEMAS),
    chain("HoistField$Value field=row", **WITH_SCHEMAS),
    chain("HoistField$Value field=row", "InsertField$Value topic.field=t", "Flatten$Value delimiter=_", **WITH_SCHEMAS),
    chain(EXCEPT_BYTES, "HoistField$Value field=row", **TEXTS),
    chain("ExtractField$Value field=s", "HoistField$Value field=line", "ValueToKey fields=line", **WITH_SCHEMAS),
    chain("Flatten$Value", **WITH_SCHEMAS),
    chain("SetSchemaMetadata$Value schema.name=a.b.C schema.version=7", **WITH_SCHEMAS),
    chain("ValueToKey fields=id", "SetSchemaMetadata$Key schema.name=k", **WITH_SCHEMAS),
    chain("RegexRouter regex=shop_(.*) replacement=new-$1", "InsertField$Value topic.field=x"),
    chain("InsertField$Value topic.field=x", "RegexRouter regex=hop replacement=nothing"),
    *(
        chain(f"TimestampConverter$Value field={name} target.type={target} {more}".strip(), **WITH_SCHEMAS)
        for name in ("ts", "dt", "tm")
        for target, more in [
            ("unix", ""),
            ("unix", "unix.precision=seconds"),
            ("unix", "unix.precision=microseconds"),
            ("unix", "unix.precision=nanoseconds"),
            ("Timestamp", ""),
            ("Date", ""),
            ("Time", ""),
            ("string", "format=yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
        ]
    ),
    *(
        chain(f"TimestampConverter$Value field=i8 target.type={target} unix.precision={unit}", **WITH_SCHEMAS)
        for target in ("Timestamp", "unix", "Time")
        for unit in ("milliseconds", "microseconds", "nanoseconds")
    ),
    chain("TimestampConverter$Value field=ts target.type=string format=yyyyMMdd", EXCEPT_BYTES, **TEXTS),
    chain("TimestampConverter$Value field=ts target.type=Time", "MaskField$Value fields=ts", **WITH_SCHEMAS),
    chain("TimestampConverter$Value field=dt target.type=Date", "MaskField$Value fields=dt,s", **WITH_SCHEMAS),
    chain(
        "ValueToKey fields=id predicate=p",
        "RegexRouter regex=.* replacement=other predicate=p negate=true",
        predicates="p",
        predicates__p__type=KAFKA + "predicates.TopicNameMatches",
        predicates__p__pattern="shop_.*",
    ),
]
# Kafka fails at the first record that is not null there, so it is refused before anything is read, or stops at the row.
FAILING = [
    chain("ValueToKey fields=gone"),
    chain("ExtractField$Value field=gone"),
    chain("InsertField$Value static.field=id static.value=x"),
    chain("ReplaceField$Value renames=i4:i8"),
    chain("MaskField$Value fields=ts"),
    chain("MaskField$Value fields=dt"),
    chain("MaskField$Value fields=tm"),
    chain("MaskField$Value fields=n"),
    chain("TimestampConverter$Value field=ts target.type=Timestamp", "MaskField$Value fields=ts"),
    chain("TimestampConverter$Value field=ts target.type=Date", "MaskField$Value fields=ts,dt"),
    chain("MaskField$Value fields=y"),
    chain("MaskField$Value fields=bo replacement=true"),
    chain("MaskField$Value fields=i4 replacement=x"),
    chain("Cast$Value spec=s:int32"),
    chain("Cast$Value spec=s:float64"),
    chain("Cast$Value spec=y:int8"),
    chain("Cast$Value spec=string"),
    chain("ExtractField$Value field=ts", "Cast$Value spec=int64", **WITH_SCHEMAS),
    chain("ExtractField$Value field=i4", "Flatten$Value"),
    chain("ExtractField$Value field=i4", "ValueToKey fields=i4"),
    chain("ExtractField$Value field=id", "SetSchemaMetadata$Value schema.name=x", **WITH_SCHEMAS),
    chain("TimestampConverter$Value field=i4 target.type=unix"),
    chain("HoistField$Value field=a", "Cast$Value spec=a:string"),
    chain("HoistField$Value field=a", "MaskField$Value fields=a"),
]


def random_rows(count: int) -> Rows:
    """As Java gets them: floats as their bits, dates as days, timestamps as microseconds, times as milliseconds."""
    dice = random.Random(20261115)
    texts = ["0", "-7", "+12", "127", "5", "99"]
    rows = []
    for number in range(count):
        whole = {
            f"i{size}": dice.choice([0, 1, -1, dice.getrandbits(8 * size) - 2 ** (8 * size - 1)])
            for size in (1, 2, 4, 8)
        }
        single = dice.choice(
            [dice.uniform(-1, 1), dice.uniform(-3e38, 3e38), 0.1, 0.5, 300.7, float("nan"), float("inf")]
        )
        double = dice.choice([_random_double(dice), 0.5, -129.9, 1e10, -1e19, float("nan"), float("-inf")])
        cents = dice.choice([0, 5, -5, 100, -12999, dice.randrange(-(10**12) + 1, 10**12)])
        row = {
            "id": number - count // 2,
            **whole,
            "f": struct.unpack(">i", struct.pack(">f", single))[0],
            "d": struct.unpack(">q", struct.pack(">d", double))[0],
            "bo": dice.random() < 0.5,
            "s": _random_text(dice),
            "w": dice.choice(texts),
            "n": f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02}",
            "y": base64.b64encode(dice.randbytes(dice.randint(0, 20))).decode(),
            "dt": dice.randint(-20000, 60000),
            "ts": dice.randint(-(10**15), 4 * 10**15),
            "tm": dice.randint(0, 86_399_999),
        }
        rows.append({name: None if name != "id" and dice.random() < 0.1 else value for name, value in row.items()})
    return rows


def frame_of(session: "SparkSession", rows: Rows) -> "DataFrame":
    def given(row: dict[str, Any], name: str) -> Any:
        value = row[name]
        if value is None:
            return None
        forms = {
            "f": lambda: struct.unpack(">f", struct.pack(">i", value))[0],
            "d": lambda: struct.unpack(">d", struct.pack(">q", value))[0],
            "y": lambda: base64.b64decode(value),
            "ts": lambda: EPOCH + timedelta(microseconds=value),
            "tm": lambda: str((EPOCH + timedelta(milliseconds=value)).time()),
        }
        return forms[name]() if name in forms else value

    return session.createDataFrame([tuple(given(row, column.name) for column in COLUMNS) for row in rows], FRAME)


def ours(frame: pa.Table, config: Mapping[str, str]) -> list[tuple[str, bytes | None, bytes | None]]:
    from playhead.pipeline.records.encode.record import make_record

    options = parse_source_records(config, {}, is_jdbc=True)
    record = make_record(COLUMNS, options, "t", "PostgreSQL")
    return written(RecordEncoder(record.rows, options, "shop_t"), frame, route(options.transforms, "shop_t"))


def written(encoder: RecordEncoder, frame: pa.Table, topic: str) -> list[tuple[str, bytes | None, bytes | None]]:
    made = [encoder(batch) for batch in frame.to_batches()]
    keys = [one for part in made for one in (part.keys.to_pylist() if part.keys else [None] * len(part.values))]
    return [
        (topic, key, value)
        for key, value in zip(keys, (one for part in made for one in part.values.to_pylist()), strict=True)
    ]


def shown(config: Mapping[str, str]) -> str:
    kept = {name: value.removeprefix(KAFKA) for name, value in config.items() if name.startswith("transforms.")}
    return " ".join(kept.values()) + (" schemas" if config.get("value.converter.schemas.enable") == "true" else "")


ROWS = random_rows(120)


@pytest.fixture(scope="module")
def frame(spark: "SparkSession") -> pa.Table:
    return frame_of(spark, ROWS).toArrow()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    return transformed(ROWS, [*CHAINS, *FAILING])


@pytest.mark.parametrize("number", range(len(CHAINS)), ids=[shown(one) for one in CHAINS])
def test_keys_and_values_are_what_kafka_makes_of_them(frame, kafka, number):
    assert kafka[number].error is None
    made, theirs = ours(frame, CHAINS[number]), kafka[number].records
    if ":float" in CHAINS[number].get("transforms.t0.spec", ""):  # before JDK 19 Java has more digits than it needs
        assert [shortest(value) for _, _, value in made] == [shortest(value) for _, _, value in theirs]
    else:
        assert made == theirs


def shortest(value: bytes | None) -> tuple[object, dict[str, object]]:
    """The schema, and the fields with floats as numbers of their type."""
    record = json.loads(value or b"")
    types = {field["field"]: field["type"] for field in record["schema"]["fields"]}
    kinds = {"float": np.float32, "double": np.float64}
    fields = record["payload"].items()
    return record["schema"], {
        name: str(kinds[types[name]](one)) if types[name] in kinds and one is not None else one for name, one in fields
    }


@pytest.mark.parametrize("number", range(len(FAILING)), ids=[shown(one) for one in FAILING])
def test_what_kafka_fails_at_is_refused(frame, kafka, number):
    assert kafka[len(CHAINS) + number].error is not None
    with pytest.raises((Invalid, Rejected), match=r"transform 't\d'|column"):
        ours(frame, FAILING[number])


NAMES = [column.name for column in COLUMNS]
TYPES = ["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"]


def random_chain(dice: random.Random) -> dict[str, str]:
    def name() -> str:
        return dice.choice([*NAMES, "a", "b"])

    def transform() -> str:
        return dice.choice(
            [
                f"ReplaceField$Value exclude={name()} renames={name()}:a",
                f"ReplaceField$Value include={','.join(dice.sample(NAMES, 8))},a",
                f"InsertField$Value topic.field={dice.choice('ab')} static.field=c static.value=x",
                f"MaskField$Value fields={name()}",
                f"Cast$Value spec={name()}:{dice.choice(TYPES)}",
                "HoistField$Value field=b",
                "Flatten$Value",
                "SetSchemaMetadata$Value schema.version=3",
                f"ExtractField$Value field={name()}",
                f"ValueToKey fields={name()}",
                f"ExtractField$Key field={name()}",
                "HoistField$Key field=k",
                f"Cast$Key spec={dice.choice(TYPES)}",
                f"TimestampConverter$Value field=ts target.type={dice.choice(['unix', 'Date', 'Time'])}",
                "RegexRouter regex=(.*)_(.*) replacement=$2_$1",
            ]
        )

    key = ["ValueToKey fields=id,i8"] * (dice.random() < 0.7)
    return chain(*key, *(transform() for _ in range(dice.randint(1, 4))), **dice.choice([WITH_SCHEMAS, {}]))


# What Kafka writes and Playhead refuses: see docs/records.md.
DELIBERATE = re.compile("never")


def test_random_chains_end_as_kafka_s_own(frame, tmp_path):
    dice = random.Random(431)
    chains = [random_chain(dice) for _ in range(80)]
    alike, refused = 0, []
    for config, theirs in zip(chains, transformed(ROWS, chains), strict=True):
        try:
            records = ours(frame, config)
        except (Invalid, Rejected) as error:
            if theirs.error is None and not DELIBERATE.search(error.what):
                refused.append(f"{shown(config)}: {error.what}")
            continue
        assert (theirs.error, records) == (None, theirs.records), shown(config)
        alike += 1
    assert not refused, "\n".join(refused)
    assert alike > len(chains) // 3


LINES = [
    chain(),
    chain(**TEXTS),
    chain(
        "HoistField$Value field=line", "InsertField$Value topic.field=t static.field=é static.value=x", **WITH_SCHEMAS
    ),
    chain("HoistField$Value field=line", "ValueToKey fields=line", "ExtractField$Key field=line", **TEXTS),
    chain("HoistField$Value field=line", "ValueToKey fields=line", "ExtractField$Key field=line", **WITH_SCHEMAS),
    chain("Cast$Value spec=boolean", **WITH_SCHEMAS),
    chain("RegexRouter regex=shop_(.*) replacement=$1", "HoistField$Value field=l", "InsertField$Value topic.field=t"),
]


def test_lines_of_a_file_end_as_kafka_s_own():
    from pathlib import Path

    from playhead.pipeline.ingest.file import FileLines, open_file_source

    rows = [row for row in ROWS if row["s"] is not None]
    frame = pa.table({"line": [row["s"] for row in rows], "playhead_id": range(len(rows))})
    for config, theirs in zip(LINES, transformed(rows, LINES, lines=True), strict=True):
        (lines,) = open_file_source({**config, "file": "f", "topic": "shop_t"}, {}).streams()
        assert isinstance(lines, FileLines)
        assert lines.path == Path("f")
        assert (theirs.error, written(lines.encoder, frame, lines.topic)) == (None, theirs.records), shown(config)


DATES = [
    chain("HoistField$Value field=l", f"TimestampConverter$Value field=l target.type={target} format=yyyy-MM-dd", mask)
    for target in ("Timestamp", "Date", "Time")
    for mask in ("MaskField$Value fields=l", "Flatten$Value")
]


def test_a_time_that_was_a_line_is_masked_as_with_kafka():
    from playhead.pipeline.ingest.file import FileLines, open_file_source

    texts = ["2024-02-29", "1970-01-01"]
    frame = pa.table({"line": texts, "playhead_id": range(len(texts))})
    rows = [{**ROWS[0], "s": text} for text in texts]
    for config, theirs in zip(DATES, transformed(rows, DATES, lines=True), strict=True):
        (lines,) = open_file_source({**config, "file": "f", "topic": "shop_t"}, {}).streams()
        assert isinstance(lines, FileLines)
        assert (theirs.error, written(lines.encoder, frame, lines.topic)) == (None, theirs.records), shown(config)
