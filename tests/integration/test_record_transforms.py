"""Every transform of Kafka over batches: each record ends as with Kafka's own classes: schema, Java classes and all."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration.random_records import NAMES, free_values, schemas, structs, values
from integration.stage_oracle import Case, differences, kafka, payload
from playhead.pipeline.records.batch import Header
from playhead.pipeline.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

KAFKA = "org.apache.kafka.connect.transforms."
FALSE = {"replace.null.with.default": "false"}


def decimal(scale: int, **more: Any) -> Schema:
    return Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", str(scale)),), **more)


DAY, TIME_OF_DAY = Schema("int32", name=DATE, version=1), Schema("int32", name=TIME, version=1)
MOMENT = Schema("int64", name=TIMESTAMP, version=1)
NESTED = Schema(
    "struct",
    name="inner",
    fields=(("x", Schema("int32")), ("y", Schema("string", optional=True, default='"why"'))),
)
# name -> schema, a default as JSON has it (JsonConverter cannot read one of a struct), and values
TYPES: dict[str, tuple[Schema, str | None, list[Any]]] = {
    "i1": (Schema("int8"), "7", [0, -128, 127]),
    "i2": (Schema("int16"), "-300", [1, -32768, 32767]),
    "i4": (Schema("int32"), "70000", [-1, -(2**31), 2**31 - 1, 300]),
    "i8": (Schema("int64"), "5000000000", [1_700_000_000_123, -(2**63), 2**63 - 1, -1, 16777217]),
    "f": (Schema("float"), "1.5", [0.25, -3.75, 3.0e38, 1.0e-40, -0.0]),
    "d": (Schema("double"), "0.1", [0.1, -2.5e300, 1.0e19, 128.9, -0.5, -0.0]),
    "b": (Schema("boolean"), "true", [True, False]),
    "s": (Schema("string"), '"12"', ["", "12", "-7", "true", "1.5e3", "x", "2024-02-29", "99999999999999999999"]),
    "y": (Schema("bytes"), '"AAE="', [b"", b"\x00\xff"]),
    "n": (decimal(2), '"AfQ="', [Decimal("1.25"), Decimal("-99999.99"), Decimal("0.00"), Decimal("300.50")]),
    "dt": (DAY, "100", [0, 19_000, -1, -200_000]),
    "tm": (TIME_OF_DAY, "1000", [0, 86_399_999]),
    "ts": (MOMENT, "1000", [0, 1_700_000_000_123, -1, -13_000_000_000_000, 86_400_000 * 365]),
    "st": (NESTED, None, [{"x": 1, "y": None}, {"x": -1, "y": "abc"}]),
    "ar": (Schema("array", items=Schema("int32", optional=True)), "[1]", [[], [1, None, 3]]),
    "mp": (Schema("map", keys=Schema("string"), items=Schema("int64")), '{"k":1}', [[], [("a", 1), ("b", 2)]]),
}


def row_schema(*, without: tuple[str, ...] = (), **more: Any) -> Schema:
    """All types: required, optional, and optional with a default (`r_`, `o_`, `q_`)."""
    fields = []
    for name, (schema, default, _) in TYPES.items():
        if name not in without:
            fields += [
                (f"r_{name}", schema),
                (f"o_{name}", replace(schema, optional=True, doc="may be null")),
                (f"q_{name}", replace(schema, optional=True, default=default)),
            ]
    return Schema("struct", fields=tuple(fields), **more)


def rows_of(schema: Schema, count: int, dice: random.Random) -> list[dict[str, Any]]:
    def value(name: str, inner: Schema) -> Any:
        if inner.optional and dice.random() < 0.4:
            return None
        return dice.choice(TYPES[name.split("_")[1]][2])

    return [{name: value(name, inner) for name, inner in schema.fields} for _ in range(count)]


def one(type_: str, options: dict[str, str] | None = None, alias: str = "t") -> dict[str, str]:
    config = {"transforms": alias, f"transforms.{alias}.type": KAFKA + type_}
    return config | {f"transforms.{alias}.{name}": text for name, text in (options or {}).items()}


def chained(*stages: dict[str, str]) -> dict[str, str]:
    made: dict[str, str] = {"transforms": ",".join(f"s{at}" for at in range(len(stages)))}
    for at, stage in enumerate(stages):
        alias = stage["transforms"]
        made |= {
            name.replace(f"transforms.{alias}.", f"transforms.s{at}."): text
            for name, text in stage.items()
            if name != "transforms"
        }
    return made


def check(cases: list[Case]) -> None:
    found = [
        f"{case.config}\n {line}"
        for case, expected in zip(cases, kafka(cases), strict=True)
        for line in differences(case, expected)
    ]
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:5])


FREE: list[Any] = [
    {"a": 1, "b": {"c": "x", "d": {"e": [1, {"f": 2}]}}, "n": None, "t": True, "s": "12", "x": 1.5, "big": 2**40},
    {"a": "text", "b": None, "s": "", "x": -2.5e300, "m": {}, "l": []},
    {},
    None,
    "lone",
    7,
    [1, 2],
    {"a": 128, "b.c": 3, "t": False, "x": 1e19, "ts": 1_700_000_000_123, "when": "2024-02-29 10:11:12"},
]
SHAPES: list[tuple[str, dict[str, str]]] = [
    ("ReplaceField", {"exclude": "r_i1,r_s,a"}),
    ("ReplaceField", {"include": "r_i1,o_i4,q_s,q_st,a,b", "renames": "r_i1:id,q_s:o_i1,a:z", **FALSE}),
    ("ReplaceField", {"include": "q_i4,q_n,q_ts,q_ar,q_mp,q_y,q_b,q_d"}),
    ("ReplaceField", {"renames": "r_i1:r_i2"}),
    ("ReplaceField", {"exclude": "r_i1", "renames": "r_i1:o_i2"}),
    ("ReplaceField", {"exclude": "r_i1", "renames": "r_i1:o_i1"}),
    ("ReplaceField", {"exclude": "o_st", "renames": "o_st:r_st"}),
    ("ReplaceField", {"exclude": "o_ar", "renames": "o_ar:r_ar"}),
    ("ReplaceField", {"exclude": "o_s", "renames": "o_s:q_mp"}),
    ("ReplaceField", {"renames": "gone:r_s"}),
    ("ReplaceField", {"include": "nothing"}),
    (
        "InsertField",
        {"topic.field": "topic!", "partition.field": "part", "offset.field": "off!", "timestamp.field": "at?"},
    ),
    ("InsertField", {"static.field": "s2", "static.value": "v", "timestamp.field": "at!", **FALSE}),
    ("InsertField", {"static.field": "r_i1", "static.value": "v"}),
    ("ExtractField", {"field": "r_i1"}),
    ("ExtractField", {"field": "q_i4"}),
    ("ExtractField", {"field": "q_st", **FALSE}),
    ("ExtractField", {"field": "o_mp"}),
    ("ExtractField", {"field": "gone"}),
    ("ExtractField", {"field": "q_st.y", "field.syntax.version": "V2"}),
    ("ExtractField", {"field": "o_st.y", "field.syntax.version": "v2", **FALSE}),
    ("ExtractField", {"field": "b.d.e", "field.syntax.version": "V2"}),
    ("ExtractField", {"field": "`b.c`", "field.syntax.version": "V2"}),
    ("ExtractField", {"field": "o_i4.x", "field.syntax.version": "V2"}),
    ("ExtractField", {"field": "a"}),
    ("HoistField", {"field": "whole"}),
    ("Flatten", {}),
    ("Flatten", {"delimiter": "_"}),
    ("SetSchemaMetadata", {"schema.name": "my.Name"}),
    ("SetSchemaMetadata", {"schema.version": "3", **FALSE}),
    ("SetSchemaMetadata", {"schema.name": "n", "schema.version": "9"}),
]
NAMED: dict[str, Any] = {"name": "shop.Row", "version": 2, "doc": "a row", "parameters": (("p", "1"),)}


def records(change: str, options: dict[str, str], dice: random.Random, count: int) -> Iterator[Case]:
    """One transform on all kinds of records: typed, lone, null, without a schema; as values and as keys."""
    without = ("mp",) if change == "Flatten" and dice.random() < 0.8 else ()
    for optional in (False, True):
        schema = row_schema(without=without, optional=optional, **NAMED)
        rows: list[Any] = rows_of(schema, count, dice)
        if optional:
            rows.insert(1, None)
        yield Case(one(f"{change}$Value", options), schema, rows)
        yield Case(one(f"{change}$Key", options), Schema("string"), ["v"] * len(rows), schema, rows)
    yield Case(one(f"{change}$Value", options), None, FREE)
    yield Case(one(f"{change}$Key", options), Schema("string"), ["v"] * len(FREE), None, FREE)
    yield Case(one(f"{change}$Value", options), Schema("int32", optional=True), [5, None, -5])
    yield Case(one(f"{change}$Value", options), replace(DAY, optional=True, doc="d"), [5, None])


def grid(changes: list[tuple[str, dict[str, str]]], seed: int, count: int) -> list[Case]:
    dice = random.Random(seed)
    return [case for change, options in changes for case in records(change, options, dice, count)]


def test_fields_are_chosen_named_nested_and_added_as_kafka_does_it():
    check(grid(SHAPES, 1, 4))


@pytest.mark.parametrize("options", [{"fields": "r_i1,q_s"}, {"fields": "q_i4,o_st", **FALSE}, {"fields": "a,gone"}])
def test_keys_are_made_of_values_as_kafka_does_it(options):
    dice = random.Random(2)
    schema = row_schema(optional=True)
    rows = [*rows_of(schema, 4, dice), None]
    check([Case(one("ValueToKey", options), schema, rows), Case(one("ValueToKey", options), None, FREE)])
    check([Case(one("ValueToKey", options), Schema("string"), ["x"])])


def test_a_map_whose_keys_are_optional_strings_is_an_object_too():
    """The payload that Kafka's JsonConverter is given here is an object; it cannot read an array of pairs."""
    maps = Schema("map", keys=Schema("string", optional=True), items=Schema("int32"))
    schema, rows = Schema("struct", fields=(("m", maps),)), [{"m": [("a", 1)]}, {"m": []}]
    check([Case(one("HoistField$Value", {"field": "h"}), schema, rows)])


def test_a_null_left_in_a_required_field_fails_the_next_transform_that_copies_it():
    insert = one("InsertField$Value", {"timestamp.field": "at!"})
    schema, rows = Schema("struct", fields=(("a", Schema("int32")),)), [{"a": 1}, {"a": 2}]
    times = [None, 5]
    after = [
        one("ReplaceField$Value", {"include": "a,at"}),
        one("ReplaceField$Value", {"include": "a"}),
        one("HoistField$Value", {"field": "h"}),
        one("SetSchemaMetadata$Value", {"schema.name": "n"}),
        one("ExtractField$Value", {"field": "at"}),
        chained(one("ExtractField$Value", {"field": "at"}), one("HoistField$Value", {"field": "h"})),
    ]
    check([Case(insert, schema, rows, timestamps=times)])
    check([Case(chained(insert, *_parts(one_)), schema, rows, timestamps=times) for one_ in after])


def _parts(config: dict[str, str]) -> list[dict[str, str]]:
    aliases = config["transforms"].split(",")
    return [
        {"transforms": alias} | {name: text for name, text in config.items() if name.startswith(f"transforms.{alias}.")}
        for alias in aliases
    ]


# Types


def of_one_type(name: str, *, defaults: bool = True) -> tuple[Schema, list[dict[str, Any]]]:
    schema, default, given_values = TYPES[name]
    fields = [("r", schema), ("o", replace(schema, optional=True))]
    if defaults:
        fields.append(("q", replace(schema, optional=True, default=default)))
    rows = []
    for at, value in enumerate(given_values):
        row: dict[str, Any] = {"r": value, "o": None if at % 2 else value, "q": None if at % 3 == 0 else value}
        rows.append({field: row[field] for field, _ in fields})
    return Schema("struct", fields=tuple(fields), **NAMED), rows


NUMBERS = ["int8", "int16", "int32", "int64", "float32", "float64"]
TARGETS = [*NUMBERS, "boolean", "string"]
TEXTS = [
    *(
        "+5",
        "-0",
        " 5",
        "0x10",
        "1_0",
        "\u0663\u0664",
        "1e400",
        "NaN",
        "-Infinity",
        "+NaN",
        "0x1.8p1",
        "-0X.8P-2",
        "1f",
        "1.0D",
    ),
    *(
        ".5",
        "5.",
        ".",
        "",
        "TRUE",
        "tRue",
        "128",
        "-129",
        "32768",
        "1e39",
        "16777217",
        "0.1",
        "1.17549435E-38",
        "  1.5\t",
    ),
    *(
        "+.5e-3",
        "1e-46",
        "3.4028235677973366e38",
        "3.4028235677973365e38",
        "1.00000017881393421514957253748434595763683319091796875001",
    ),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "007",
        "1e5",
        "--1",
        "\U0001d7d9",
        "-0.0",
        "1e-400",
    ),
]


def cast_cases() -> Iterator[Case]:
    for name, target in itertools.product(TYPES, TARGETS):
        schema, rows = of_one_type(name)
        yield Case(one("Cast$Value", {"spec": f"r:{target},o:{target}"}), schema, rows)
        yield Case(one("Cast$Value", {"spec": f"r:{target},q:{target},gone:int8"}), schema, rows)
        yield Case(one("Cast$Value", {"spec": f"q:{target}", **FALSE}), schema, rows)
        lone, default, values = TYPES[name]
        if lone.name:  # it would keep its name: see docs/records.md
            continue
        whole = replace(lone, optional=True, doc="d", parameters=(("p", "1"),))
        yield Case(
            one("Cast$Key", {"spec": target}), Schema("string"), ["v"] * (len(values) + 1), whole, [*values, None]
        )
        yield Case(one("Cast$Value", {"spec": target}), replace(whole, name="n", default=default), values)
    texts = Schema("struct", fields=(("r", Schema("string")),))
    for target in TARGETS:
        yield Case(one("Cast$Value", {"spec": f"r:{target}"}), texts, [{"r": text} for text in TEXTS])
        yield Case(
            one("Cast$Value", {"spec": target}), None, [*TEXTS, 5, -1.5, True, 2**40, 1e300, [1], {"a": 1}, None]
        )
        spec = ",".join(f"{field}:{target}" for field in ("a", "t", "x", "gone"))
        yield Case(one("Cast$Value", {"spec": spec}), None, FREE)


def test_values_are_cast_as_kafka_does_it():
    check(list(cast_cases()))


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_cast_without_a_schema_keeps_its_java_class(target):
    """A later cast, mask or conversion depends on it."""
    first = one("Cast$Value", {"spec": f"a:{target}"})
    rows = [{"a": 1.1}, {"a": 300}, {"a": True}, {"a": "7"}, {"a": -129}]
    after = [one("Cast$Value", {"spec": f"a:{other}"}) for other in TARGETS]
    after += [one("MaskField$Value", {"fields": "a"}), one("MaskField$Value", {"fields": "a", "replacement": "12.7"})]
    after += [one("TimestampConverter$Value", {"field": "a", "target.type": "unix", "format": "yyyy"})]
    check([Case(chained(first, then), None, rows) for then in after])


@pytest.mark.parametrize("replacement", [None, "5", "x", "12.7", "-300", "1e3"])
def test_values_are_masked_as_kafka_does_it(replacement):
    more = {} if replacement is None else {"replacement": replacement}
    cases = []
    for name in TYPES:
        schema, rows = of_one_type(name)
        cases.append(Case(one("MaskField$Value", {"fields": "r,gone", **more}), schema, rows))
        cases.append(Case(one("MaskField$Value", {"fields": "o,q", **more}), schema, rows))
        keys = replace(schema, optional=True)
        config = one("MaskField$Key", {"fields": "q", **more, **FALSE})
        cases.append(Case(config, Schema("string"), ["v"] * (len(rows) + 1), keys, [*rows, None]))
    names = ("a", "b", "n", "t", "s", "x", "l", "gone")
    cases += [Case(one("MaskField$Value", {"fields": name, **more}), None, FREE) for name in names]
    cases.append(Case(one("MaskField$Value", {"fields": "a", **more}), Schema("int32", optional=True), [1, None]))
    check(cases)


# Times

UNITS = ["milliseconds", "seconds", "microseconds", "nanoseconds"]
FORMATS = [
    *("yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss.SSS", "yyyyMMddHHmmss", "dd/MM/yy", "d MMM yyyy", "EEE, d MMMM yyyy hh:mm a"),
    *(
        "yyyy-MM-dd'T'HH:mm:ss'Z'",
        "G y M d k K h H D u",
        "yyyy DDD",
        "EEEE",
        "HH:mm",
        "''yyyy'' 'o''clock'",
        "SSSSSS s m",
    ),
    *(
        "yyyy-MM-dd HH:mm:ss Z",
        "yyyy-MM-dd'T'HH:mm:ssX",
        "yyyy-MM-dd'T'HH:mm:ssXX",
        "yyyy-MM-dd'T'HH:mm:ssXXX",
        "z zzzz",
    ),
    *("yyyyy", "y", "yyy", "MMMMM LLL L", "K:mm a, z", "MM/yyyy", "HH", "aa KK"),
]
MOMENTS = [
    *(0, 1, -1, 1_700_000_000_123, -12_219_292_800_000, -12_219_292_800_001, -12_219_379_200_000, 253_402_300_799_999),
    *(-62_135_596_800_000, -62_135_596_800_001, -62_167_219_200_001, 951_782_400_000, 86_400_000, 4_102_444_800_000),
    *(-13_000_000_000_000, 253_402_300_800_000, -100_000_000_000_000, 9_000_000_000_000_000, 43_200_000),
]
WRITTEN = [
    *(
        "2024-02-29",
        "2024-02-30",
        "1582-10-10",
        "1582-10-04",
        "0001-01-01",
        "0000-01-01",
        "12024-01-01",
        "2024-1-2",
        "2024-13-45",
    ),
    *(
        "2024-02-29 10:11:12.123",
        "2024-02-29 10:11:12.5",
        "2024-02-29 25:61:61.9999",
        "20240229101112",
        "202402",
        "2024022910111299",
    ),
    *(
        "01/02/24",
        "1/2/05",
        "01/02/2024",
        "01/02/88",
        "1/2/-5",
        "5 Feb 2024",
        "5 february 2024",
        "5  MAR 2024",
        " 5 Sep 24",
    ),
    *(
        "Thu, 29 February 2024 11:30 PM",
        "Mon, 1 January 2024 12:00 am",
        "Fri, 1 Feb 2024 13:00 PM",
        "AD 2024 2 29 24 5 12 13 60 4",
    ),
    *(
        "BC 5 1 1 1 1 1 1 1 1",
        "2024 060",
        "2024 366",
        "1582 300",
        "Tuesday",
        "fri",
        "10:11",
        "'2024' o'clock",
        "000123 5 6",
        "7 5 6",
    ),
    *(
        "2024-02-29 10:11:12 +0130",
        "2024-02-29 10:11:12 GMT",
        "2024-02-29 10:11:12 GMT+2:30",
        "2024-02-29 10:11:12 -2500",
    ),
    *(
        "2024-02-29T10:11:12Z",
        "2024-02-29T10:11:12+05",
        "2024-02-29T10:11:12+0530",
        "2024-02-29T10:11:12-05:30",
        "UTC GMT",
    ),
    *(
        "",
        " ",
        "x",
        "-5",
        "2024-02-29x",
        "2024-02-29T10:11:12",
        "\u0662\u0660\u0662\u0664-01-01",
        "1583-01-01",
        "9999-12-31",
    ),
    *("02/2024", "24", "pm 5", "AM 12", "5:30 PM, UTC", "13:00 AM, GMT", "2E3-01-01", "0-0-0"),
]


def time_cases() -> Iterator[Case]:
    for name, target, unit in itertools.product(TYPES, ["unix", "Timestamp", "Date", "Time", "string"], UNITS):
        is_far = target == "Date" and name == "i8"  # beyond 32 bits of days: see docs/records.md
        if unit != "milliseconds" and name not in ("i8", "ts"):
            continue
        schema, rows = of_one_type(name)
        rows = [row for row in rows if not is_far or abs(row["r"]) < 2**40]
        options = {"target.type": target, "unix.precision": unit, "format": "yyyy-MM-dd HH"}
        for more in ({"field": "r"}, {"field": "q"}, {"field": "o", **FALSE}, {"field": "gone"}):
            yield Case(one("TimestampConverter$Value", options | more), schema, rows)
        lone, _, values = TYPES[name]
        kept = [value for value in values if not is_far or abs(value) < 2**40]
        whole = replace(lone, optional=True, doc="d")
        config = one("TimestampConverter$Key", options)
        yield Case(config, Schema("string"), ["v"] * (len(kept) + 1), whole, [*kept, None])
        optional = replace(schema, optional=True)
        for field, form in itertools.product(("r", "q"), ("yyyy-MM-dd HH", "")):
            if form or target != "string":
                config = one("TimestampConverter$Value", options | {"field": field, "format": form})
                yield Case(config, optional, [*rows, None])
    for target in ("unix", "Timestamp", "Date", "Time", "string"):
        for field in ("ts", "when", "a", "x", "gone", ""):
            options = {"field": field, "target.type": target, "format": "yyyy-MM-dd HH:mm:ss"}
            yield Case(one("TimestampConverter$Value", options), None, FREE)
        back = one("TimestampConverter$Value", {"field": "ts", "target.type": "unix"})
        there = one("TimestampConverter$Value", {"field": "ts", "target.type": target, "format": "yyyy"})
        yield Case(chained(there, back), None, FREE)
        for then in (
            one("Flatten$Value"),
            one("Cast$Value", {"spec": "ts:string"}),
            one("MaskField$Value", {"fields": "ts"}),
        ):
            yield Case(chained(there, then), None, FREE)
    schema = Schema("struct", fields=(("r", Schema("string")),))
    yield Case(one("TimestampConverter$Value", {"field": "r", "target.type": "unix"}), schema, [{"r": "5"}])


def test_moments_are_converted_as_kafka_does_it():
    check(list(time_cases()))


def test_formats_are_written_and_read_as_java_does_it():
    moments, texts = (Schema("struct", fields=(("r", inner),)) for inner in (MOMENT, Schema("string")))
    cases = []
    for form in FORMATS:
        written = one("TimestampConverter$Value", {"field": "r", "target.type": "string", "format": form})
        read = one("TimestampConverter$Value", {"field": "r", "target.type": "unix", "format": form})
        cases.append(Case(written, moments, [{"r": moment} for moment in MOMENTS]))
        cases.append(Case(chained(written, read), moments, [{"r": moment} for moment in MOMENTS]))
        # A year of more digits than a moment has is another year to Java: see docs/records.md
        kept = [text for text in WRITTEN if len(text) < 14 or not text.isdigit() or set(form) != {"y"}]
        cases.append(Case(read, texts, [{"r": text} for text in kept]))
    check(cases)


# Topics, headers, predicates

PATTERNS = [
    *(
        (r"(.*)", "x-$1"),
        (r"shop\.(\w+)", "$1"),
        (r"orders", "z"),
        (r"(?<name>\w+)\.(?:\w+)", "${name}_"),
        (r"s|shop.*", "<>"),
    ),
    *(
        (r"([a-z])([a-z]+).*", "$2$10\\$1"),
        (r"(?i)SHOP\..*", "low"),
        (r"\Qshop.orders\E", ""),
        (r"[^x&&&y].*", "n"),
        (r".*", "$1"),
    ),
    *(
        (r".*", "$"),
        (r".*", "${none}"),
        (r".*", "\\"),
        (r"shop.(o?rd(ers)?)(x)?", "$1-$3-$2"),
        (r"\p{Alpha}{4}\W[\w.]++", "p"),
    ),
    *((r"(s)hop\.orde(r)s(?!x)", "$2$1"), (r"[\w&&[^0-9]]+.*", "n"), (r"^shop[.]orders$", "a$0b")),
]
REFUSED = {r"[^x&&&y].*", r"[\w&&[^0-9]]+.*"}
LITERALS = [
    *('["a", "2024-02-29"]', '[{"a": 1}, [1], 5]', '{"a": 1, 2: {"b": [1]}}', "1e3", "[1e3, 1.5]", "{true: 1, 1: 2}"),
    *(
        "true",
        "null",
        "12",
        "-129",
        "40000",
        "3000000000",
        "99999999999999999999",
        "1.5",
        "1e40",
        "1e400",
        "0.1",
        "text",
        "",
        " ",
    ),
    *(
        "2024-02-29",
        "10:11:12.123Z",
        "2024-02-29T10:11:12.123Z",
        "2024-02-2x",
        "[1, 2]",
        "[1, 300, 70000]",
        "[1, 2.5]",
        "[]",
        "{}",
    ),
    *(
        '["a", "b"]',
        '["a", 1]',
        '{"a": 1, "b": 2}',
        '{"a": "b"}',
        "{1: 2}",
        '{"a": null}',
        "[null]",
        "[1, null]",
        "[1,,2]",
        "[1",
        "{1",
    ),
    *(
        '{"a": [1, 2]}',
        "[[1], [2]]",
        "[true, false]",
        '["2024-02-29"]',
        '"quoted"',
        'say "x"',
        "a,b",
        "1,2",
        "+5",
        "-",
        "12:30",
    ),
    *(
        "1 2",
        "\\[1\\]",
        "[1] x",
        '{"a": 1} x',
        "true x",
        " true ",
        '[ "2024-02-29", 5 ]',
        '[5, "2024-02-29"]',
        "{a:1}",
        "[1.5, 2]",
        "1.0",
    ),
]


def test_topics_are_routed_as_kafka_does_it():
    cases = []
    for regex, replacement in PATTERNS:
        if regex not in REFUSED:
            config = one("RegexRouter", {"regex": regex, "replacement": replacement})
            cases += [
                Case(config, Schema("string"), ["v"], topic=topic) for topic in ("shop.orders", "orders", "other-1")
            ]
    formats = [{}, {"topic.format": "${timestamp}/${topic}/${topic}", "timestamp.format": "yyyy-MM-dd-HH"}]
    formats += [{"topic.format": "$1\\x"}, {"timestamp.format": "yyyyMM", "topic.format": "t${timestamp}${timestamp}"}]
    for options in formats:
        times = [0, 86_400_000 * 40, None, 5, -1]
        cases.append(Case(one("TimestampRouter", options), None, [1, 2, 3, None, 5], timestamps=times))
    check(cases)


HEADERS = [
    (Header("h", Schema("string"), "x"), Header("i", Schema("int32"), 5), Header("h", None, 7)),
    (),
    (Header("i", Schema("int32", optional=True), None),),
]


def header_cases() -> Iterator[Case]:
    yield from (
        Case(one("InsertHeader", {"header": "h", "value.literal": literal}), Schema("string"), ["v"])
        for literal in LITERALS
    )
    for names in ("h", "i,none", "h,i"):
        yield Case(one("DropHeaders", {"headers": names}), Schema("string"), ["a", "b", "c"], headers=HEADERS)
    yield Case(one("InsertHeader", {"header": "i", "value.literal": "1"}), None, ["a", "b", "c"], headers=HEADERS)
    dice = random.Random(5)
    schema = row_schema(optional=True)
    names = ",".join(name for name, _ in schema.fields)
    for operation, more in itertools.product(("move", "copy"), ({}, FALSE)):
        for fields, headers in (("r_i1,q_s", "a,b"), ("a,gone", "a,b"), ("o_st,q_ts,r_mp", "i,j,i"), (names, names)):
            options = {"fields": fields, "headers": headers, "operation": operation, **more}
            rows = [*rows_of(schema, 5, dice), None]
            yield Case(one("HeaderFrom$Value", options), schema, rows)
            yield Case(one("HeaderFrom$Key", options), None, [1] * len(FREE), None, FREE)
            yield Case(one("HeaderFrom$Value", options), None, FREE, headers=[HEADERS[0]] * len(FREE))
            yield Case(one("HeaderFrom$Value", options), Schema("string"), ["lone"])


def test_headers_are_those_of_kafka():
    check(list(header_cases()))


PREDICATES = [
    {"type": "TopicNameMatches", "pattern": "shop.*"},
    {"type": "TopicNameMatches", "pattern": "shop"},
    {"type": "HasHeaderKey", "name": "h"},
    {"type": "RecordIsTombstone"},
]


def only_if(config: dict[str, str], predicate: dict[str, str], *, negate: bool) -> dict[str, str]:
    alias = config["transforms"]
    theirs = {f"predicates.p.{name}": text for name, text in predicate.items()}
    theirs["predicates.p.type"] = f"{KAFKA}predicates.{predicate['type']}"
    return (
        config
        | {"predicates": "p", f"transforms.{alias}.predicate": "p", f"transforms.{alias}.negate": str(negate).lower()}
        | theirs
    )


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("predicate", PREDICATES, ids=lambda one: one["type"])
def test_a_stage_is_for_the_records_that_its_predicate_chooses(predicate, negate):
    stages = [
        one("Filter"),
        one("InsertField$Value", {"static.field": "s", "static.value": "v"}),
        one("HoistField$Value", {"field": "h"}),
        one("SetSchemaMetadata$Value", {"schema.name": "n"}),
        one("DropHeaders", {"headers": "h"}),
    ]
    schema = Schema("struct", optional=True, fields=(("a", Schema("int32")),))
    cases = []
    for stage in stages:
        config = only_if(stage, predicate, negate=negate)
        cases.append(Case(config, schema, [{"a": 1}, None, {"a": 2}], headers=HEADERS))
        cases.append(Case(config, None, [{"a": 1}, None, {"a": 2}], headers=HEADERS))
    check(cases)


# Chains


def any_stage(dice: random.Random, names: list[str]) -> dict[str, str]:
    name, other, third = (dice.choice(names) for _ in range(3))
    side = dice.choice(["Value", "Value", "Key"])
    moved = dice.choice(["move", "copy"])
    masked = "a" if name.endswith("_n") else name  # a masked decimal has another scale: see docs/records.md
    stages = [
        one(f"ReplaceField${side}", {"exclude": f"{name},{other}"} if name != other else {"exclude": name}),
        one(f"ReplaceField${side}", {"renames": f"{name}:{third}x"}),
        one(f"InsertField${side}", {"topic.field": "topic", "timestamp.field": "ts_"}),
        one(f"InsertField${side}", {"static.field": name, "static.value": "5", "offset.field": "off"}),
        one(f"Cast${side}", {"spec": f"{name}:{dice.choice(TARGETS)}"}),
        one(f"Cast${side}", {"spec": f"{name}:{dice.choice(TARGETS)},{name}y:string"}),
        one(f"MaskField${side}", {"fields": masked}),
        one(f"TimestampConverter${side}", {"field": name, "target.type": dice.choice(["unix", "Timestamp", "Time"])}),
        one(f"ExtractField${side}", {"field": name}),
        one(f"ExtractField${side}", {"field": f"`{name}`.{dice.choice('xyd')}", "field.syntax.version": "V2"}),
        one(f"HoistField${side}", {"field": name}),
        one(f"Flatten${side}", {"delimiter": "_"}),
        one(f"SetSchemaMetadata${side}", {"schema.name": "n"}),
        one("ValueToKey", {"fields": name}),
        one(f"HeaderFrom${side}", {"fields": name, "headers": "h", "operation": moved}),
        one("DropHeaders", {"headers": "h"}),
        one("InsertHeader", {"header": dice.choice("hi"), "value.literal": dice.choice(["12", "x", "[1, 2]", "null"])}),
        one("RegexRouter", {"regex": "(shop).*", "replacement": "$1"}),
        one("TimestampRouter", {"topic.format": "${topic}_${timestamp}", "timestamp.format": "yyyyMMddHH"}),
        one("Filter"),
    ]
    stage = dice.choice(stages)
    if stage["transforms.t.type"].endswith("Filter") or dice.random() < 0.3:
        stage = only_if(stage, dice.choice(PREDICATES), negate=dice.random() < 0.5)
    return stage


def with_predicates(stages: list[dict[str, str]]) -> dict[str, str]:
    """A chain of these, each with its own predicate, if it has one."""
    config = chained(*({k: v for k, v in stage.items() if not k.startswith("predicates")} for stage in stages))
    listed = []
    for at, stage in enumerate(stages):
        if "predicates" in stage:
            listed.append(f"p{at}")
            config[f"transforms.s{at}.predicate"] = f"p{at}"
            config |= {
                k.replace("predicates.p.", f"predicates.p{at}."): v
                for k, v in stage.items()
                if k.startswith("predicates.p.")
            }
    return config | ({"predicates": ",".join(listed)} if listed else {})


def random_case(dice: random.Random) -> Case:
    """A schema of some types, nested now and then, with nulls; or none. Up to five stages."""
    picked = dice.sample(list(TYPES), 4)
    fields = []
    for name in picked:
        schema, default, _ = TYPES[name]
        kind = dice.choice(["r", "o", "q"])
        made = schema if kind == "r" else replace(schema, optional=True, default=default if kind == "q" else None)
        fields.append((f"{kind}_{name}", made))
    schema = Schema("struct", optional=dice.random() < 0.5, fields=tuple(fields))
    rows: list[Any] = rows_of(schema, 4, dice)
    if schema.optional:
        rows[dice.randrange(4)] = None
    names = [name for name, _ in fields] + ["topic", "a"]
    config = with_predicates([any_stage(dice, names) for _ in range(dice.randint(1, 5))])
    headers = [dice.choice(HEADERS) for _ in rows]
    if dice.random() < 0.3:
        values = [dice.choice(FREE) for _ in rows]
        return Case(config, None, values, schema, rows, headers=headers)
    return Case(config, schema, rows, None, [dice.choice(FREE) for _ in rows], headers=headers)


def test_random_chains_end_as_kafka_s_own():
    dice = random.Random(11)
    check([random_case(dice) for _ in range(400)])


@st.composite
def drawn_cases(draw: st.DrawFn) -> Case:
    """Any schema, or none; up to four stages over its fields, with predicates; headers."""
    dice = draw(st.randoms(use_true_random=False))
    config = with_predicates([any_stage(dice, NAMES) for _ in range(draw(st.integers(1, 4)))])
    count = draw(st.integers(1, 3))

    def side() -> tuple[Schema | None, list[Any]]:
        schema = draw(st.none() | structs().map(lambda made: replace(made, optional=True)) | schemas())
        drawn = free_values() if schema is None else values(schema)
        return schema, [draw(drawn) for _ in range(count)]

    (key_schema, keys), (value_schema, rows) = side(), side()
    times = draw(st.lists(st.none() | st.integers(0, 2**42), min_size=count, max_size=count))
    headers = [dice.choice(HEADERS) for _ in rows]
    return Case(config, value_schema, rows, key_schema, keys, times, headers)


@given(st.lists(drawn_cases(), min_size=1, max_size=4))
@settings(max_examples=25)
def test_any_schema_through_any_chain_ends_as_with_kafka(cases):
    check(cases)


FIELDS = ("r", "o", "q", "gone")
WITH_DEFAULTS = {"ReplaceField", "InsertField", "MaskField", "Cast", "ExtractField", "ValueToKey", "TimestampConverter"}
WITH_DEFAULTS |= {"SetSchemaMetadata", "HeaderFrom"}


def every_change() -> Iterator[tuple[str, dict[str, str]]]:
    for field, other in itertools.product(FIELDS, ("z", "r", "o")):
        yield "ReplaceField", {"renames": f"{field}:{other}"}
        yield "ReplaceField", {"exclude": field, "renames": f"{field}:{other}"}
        yield "HeaderFrom", {"fields": f"{field},{other}", "headers": "h,h", "operation": "copy"}
    for field in FIELDS:
        yield "ReplaceField", {"exclude": field}
        yield "ReplaceField", {"include": f"{field},r"}
        for inserted in ("topic.field", "partition.field", "offset.field", "timestamp.field"):
            yield "InsertField", {inserted: field}
            yield "InsertField", {inserted: f"n_{field}!"}
            yield "InsertField", {inserted: "n", "static.field": field, "static.value": "12"}
        for text in (None, "5", "x", "-1.5e300"):
            yield "MaskField", {"fields": f"{field},r"} | ({} if text is None else {"replacement": text})
        for target in TARGETS:
            yield "Cast", {"spec": f"{field}:{target}"}
            yield "Cast", {"spec": f"{field}:{target},r:string,gone:int8"}
        for target, unit in itertools.product(("unix", "Timestamp", "Date", "Time", "string"), UNITS):
            options = {"field": field, "target.type": target, "unix.precision": unit, "format": "yyyy-MM-dd HH:mm"}
            yield "TimestampConverter", options
        yield "ExtractField", {"field": field}
        yield "ExtractField", {"field": f"{field}.y", "field.syntax.version": "V2"}
        yield "HoistField", {"field": field}
        yield "ValueToKey", {"fields": f"{field},r" if field != "r" else "r"}
        yield "HeaderFrom", {"fields": field, "headers": "h", "operation": "move"}
        yield "HasHeaderKey", {"name": field}
    yield from [("Flatten", {}), ("Flatten", {"delimiter": "_"}), ("Flatten", {"delimiter": ""})]
    yield from [("SetSchemaMetadata", {"schema.name": "n"}), ("SetSchemaMetadata", {"schema.version": "-1"})]


def configs_of(change: str, options: dict[str, str]) -> Iterator[dict[str, str]]:
    """On keys and on values, with and without defaults for nulls."""
    if change == "HasHeaderKey":
        yield only_if(one("Filter"), {"type": change, **options}, negate=False)
        return
    for more in ({}, FALSE) if change in WITH_DEFAULTS else ({},):
        for side in ("",) if change == "ValueToKey" else ("$Value", "$Key"):
            yield one(change + side, options | more)


@pytest.mark.soak
@pytest.mark.parametrize("name", TYPES)
def test_every_option_of_every_transform_on_every_type_ends_as_with_kafka(name):
    """Fields that are required, optional, with a default or missing; a schema, an optional one, or none; keys and values."""
    schema, rows = of_one_type(name)
    if name == "i8":  # a date beyond 32 bits of days: see docs/records.md
        rows = [row for row in rows if abs(row["r"]) < 2**40]
    free = [payload(schema, row) for row in rows]
    sides: list[tuple[Schema | None, list[Any]]] = [(schema, rows), (None, [*free, None, {}, "lone", 5])]
    sides.append((replace(schema, optional=True), [*rows, None]))
    cases = [
        Case(config, side, given_rows, side, given_rows, headers=[dice_headers(at) for at in range(len(given_rows))])
        for change, options in every_change()
        if name != "n" or options.get("replacement") != "-1.5e300"  # no decimal of any column: see docs/records.md
        for config in configs_of(change, options)
        for side, given_rows in sides
    ]
    for start in range(0, len(cases), 500):
        check(cases[start : start + 500])


def dice_headers(at: int) -> tuple[Header, ...]:
    return (HEADERS[0], (), (Header("r", Schema("string"), "x"),))[at % 3]


@pytest.mark.soak
@given(st.lists(drawn_cases(), min_size=1, max_size=4))
@settings(max_examples=4000, derandomize=False)
def test_many_schemas_through_many_chains_end_as_with_kafka(cases):
    check(cases)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
def test_many_random_chains_and_rows_end_as_kafka_s_own(seed):
    dice = random.Random(1000 + seed)
    check([random_case(dice) for _ in range(2000)])
    check(grid(SHAPES, seed, 20))
