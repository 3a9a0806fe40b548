"""The texts of options of transforms and predicates: read, and refused, as Kafka's own classes do it.

Kafka's `ConfigDef` takes the blanks off every option, splits a list at commas with the blanks around them, and counts an entry
that is there twice once. Blanks are Java's: a non-breaking space is none.
"""

from typing import Any

import pytest

from integration.stage_oracle import Case, differences, kafka
from integration.test_record_transforms import KAFKA, one
from playhead.errors import ConfigInvalid
from playhead.pipeline.records.batch import Header
from playhead.pipeline.records.schema import Schema
from playhead.pipeline.records.transforms.options import parse_stages

FIXED = "\u00a0"  # a non-breaking space
LISTS = [
    "a,b",
    " a , b ",
    "a,a",
    "a,,b",
    "a,",
    "",
    ",",
    f"{FIXED}a",
    f"a{FIXED},{FIXED}b",
    "\x01a\x1f",
    "a\t,\nb",
    "a\x1f,b",
]
TEXTS = ["a", " a ", f"{FIXED}a", "\ta\x01", "a b", "null"]
FLAGS = ["true", "TRUE", " False ", "yes", "", "1"]
FLAG = {"replace.null.with.default": FLAGS}
MARKED = ["a!", "a?", "a!!", " a! ", "a !", "a? "]
RENAMES = [
    "a:b,b:c",
    " a:b , c:d ",
    "a : b",
    "a:",
    "a",
    "a:b:c",
    "",
    "a:b,",
    "a:b,a:b",
    f"{FIXED}a:b",
    "a: ",
    "a:a",
    "a:b,b:a",
]
SPECS = [
    "a:int8,b:string",
    " a:int8 , b:string ",
    "a : int8",
    "a:INT8",
    " Int8 ",
    "a:int8,int8",
    "int8,int8",
    "a:",
    "a",
]
SPECS += [
    "a:int8:x",
    "a:date",
    "bytes",
    "",
    ",",
    "a:int8,",
    "a:int8,a:int16",
    "a:int8,a:int8",
    "a:float",
    f"a:{FIXED}int8",
]
VERSIONS = [
    "3",
    " 3 ",
    "+3",
    "-3",
    "x",
    "",
    "3.0",
    "2147483647",
    "2147483648",
    "-2147483648",
    "\u0663",
    "1_0",
    "000000000003",
]
FORMATS = ["yyyy", " yyyy ", "", "  ", "b", "'x"]
PATHS = [
    "a.b",
    "`a",
    "`a.b`",
    "a.",
    ".a",
    "a..b",
    "`a`b",
    "a`b",
    "``",
    "`a\\`.b`",
    "`a`.",
    "`a`.`b`",
    "a.`b",
    "`",
    "`a``",
    ".",
]
# A transform, the options that it has, and texts for each option in turn; None: it is left out.
OPTIONS: list[tuple[str, dict[str, str], dict[str, list[Any]]]] = [
    ("ValueToKey", {"fields": "a"}, {"fields": [*LISTS, None], **FLAG}),
    ("ExtractField$Value", {"field": "a"}, {"field": [*TEXTS, None], "field.syntax.version": ["v2", " v1 ", "", "V3"]}),
    ("ExtractField$Key", {"field.syntax.version": "V2"}, {"field": PATHS}),
    ("HoistField$Value", {"field": "a"}, {"field": [*TEXTS, None]}),
    ("ReplaceField$Value", {}, {"include": LISTS, "exclude": LISTS, "renames": RENAMES, **FLAG}),
    ("InsertField$Value", {"static.field": "z", "static.value": "v"}, {"static.field": [*TEXTS, *MARKED, None]}),
    ("InsertField$Value", {"static.field": "z", "static.value": "v"}, {"static.value": [*TEXTS, "", None], **FLAG}),
    ("InsertField$Key", {}, {f"{what}.field": TEXTS for what in ("topic", "partition", "offset", "timestamp")}),
    ("MaskField$Value", {"fields": "a"}, {"fields": [*LISTS, None], "replacement": [*TEXTS, "", " 5 "], **FLAG}),
    ("Cast$Value", {"spec": "a:int8"}, {"spec": [*SPECS, None], **FLAG}),
    ("SetSchemaMetadata$Value", {"schema.name": "n"}, {"schema.name": [*TEXTS, None], "schema.version": VERSIONS}),
    ("Flatten$Value", {}, {"delimiter": [*TEXTS, "", "..", "$"]}),
    ("TimestampConverter$Value", {"target.type": "unix"}, {"field": TEXTS, "format": FORMATS, **FLAG}),
    ("TimestampConverter$Value", {"target.type": "unix"}, {"target.type": [" unix ", "UNIX", "timestamp", "", None]}),
    ("TimestampConverter$Value", {"target.type": "unix"}, {"unix.precision": [" seconds ", "Seconds", "", "x"]}),
    ("TimestampConverter$Key", {"target.type": "string"}, {"format": [*FORMATS, None]}),
    (
        "RegexRouter",
        {"regex": "(.*)", "replacement": "x"},
        {"regex": [" shop.* ", "(", None], "replacement": [" $1 ", "", None]},
    ),
    ("TimestampRouter", {}, {"topic.format": [*TEXTS, ""], "timestamp.format": ["yyyy", " yyyy ", "", "  "]}),
    (
        "InsertHeader",
        {"header": "h", "value.literal": "x"},
        {"header": [*TEXTS, None], "value.literal": [" 5 ", "", None]},
    ),
    ("DropHeaders", {"headers": "h"}, {"headers": [*LISTS, None]}),
    (
        "HeaderFrom$Value",
        {"fields": "a", "headers": "h", "operation": "copy"},
        {"operation": [" move ", "MOVE", "", None]},
    ),
    (
        "HeaderFrom$Value",
        {"fields": "a,b", "headers": "h,i", "operation": "copy"},
        {"fields": [" a , b ", "a,a", "a,", None]},
    ),
]
PREDICATES = [
    *(("TopicNameMatches", {"pattern": text}) for text in ("shop.*", " shop.* ", "shop", "(")),
    *(("HasHeaderKey", {"name": text}) for text in [*TEXTS, "", " h "]),
    ("HasHeaderKey", {}),
]
ROW = Schema(
    "struct",
    optional=True,
    fields=(
        ("a", Schema("string")),
        ("b", Schema("string", optional=True)),
        ("s", Schema("struct", fields=(("a", Schema("int32")),))),
    ),
)
ROWS = [{"a": "12", "b": None, "s": {"a": 1}}, {"a": "x", "b": "y", "s": {"a": 2}}]
FREE = [{"a": "12", "b": None, " a": "3"}, {"a b": "x", "": 1}]
HEADERS = [(Header("h", Schema("string"), "x"), Header("a", Schema("string"), "y")), ()]


def agrees(cases: list[Case]) -> None:
    found = []
    for case, expected in zip(cases, kafka(cases), strict=True):
        try:
            parse_stages(case.config)
        except ConfigInvalid as error:
            if not isinstance(expected, dict):
                found.append(f"{case.config}\n Kafka takes it; ours: {error}")
        else:
            found += [f"{case.config}\n {line}" for line in differences(case, expected)]
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:5])


@pytest.mark.parametrize(("change", "given", "texts"), OPTIONS)
def test_an_option_is_read_or_refused_as_kafka_does_it(change, given, texts):
    cases = []
    for option, listed in texts.items():
        for text in listed:
            options = {name: its for name, its in (given | {option: text}).items() if its is not None}
            config = one(change, options)
            cases.append(Case(config, ROW, ROWS, ROW, ROWS, headers=HEADERS))
            cases.append(Case(config, None, FREE, None, FREE, headers=HEADERS))
    agrees(cases)


@pytest.mark.parametrize(("predicate", "options"), PREDICATES)
def test_an_option_of_a_predicate_is_read_or_refused_as_kafka_does_it(predicate, options):
    config = one("Filter", {"predicate": "p"}) | {
        "predicates": "p",
        "predicates.p.type": f"{KAFKA}predicates.{predicate}",
    }
    config |= {f"predicates.p.{name}": text for name, text in options.items()}
    agrees([Case(config, ROW, ROWS, headers=HEADERS)])
