"""Transforms of batches: their options, and which batch each record ends in. Kafka itself is asked in tests/integration."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from playhead.connect.javaregex import compile_pattern
from playhead.errors import ConfigInvalid, Invalid
from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import TRANSFORMATION, Bad, Batch, Header, Typed, Untyped, Values
from playhead.pipeline.records.javaformat import DateFormat
from playhead.pipeline.records.schema import DATE, DECIMAL, TIMESTAMP, Schema
from playhead.pipeline.records.transforms import (
    DropHeaders,
    ExtractField,
    Filter,
    HasHeader,
    HeaderFrom,
    Inserted,
    InsertField,
    InsertHeader,
    IsTombstone,
    MaskField,
    SetSchemaMetadata,
    Stage,
    TimestampConverter,
    TimestampRouter,
    TopicMatches,
)
from playhead.pipeline.records.transforms.apply import apply_chain
from playhead.pipeline.records.transforms.options import parse_stages

KAFKA = "org.apache.kafka.connect.transforms."
ROW = Schema("struct", optional=True, fields=(("a", Schema("int32")), ("s", Schema("string", optional=True))))


def one(type_: str, **options: str) -> dict[str, str]:
    """A chain of one transform; `__` stands for a dot."""
    config = {"transforms": "t", "transforms.t.type": KAFKA + type_}
    return config | {f"transforms.t.{name.replace('__', '.')}": value for name, value in options.items()}


@pytest.mark.parametrize(
    ("config", "change"),
    [
        (one("Filter"), Filter()),
        (one("TimestampRouter"), TimestampRouter("${topic}-${timestamp}", "yyyyMMdd")),
        (one("TimestampRouter", topic__format="x", timestamp__format="EEE"), TimestampRouter("x", "EEE")),
        (one("InsertHeader", header="h", value__literal="[1]"), InsertHeader("h", "[1]")),
        (one("DropHeaders", headers="a, b"), DropHeaders(frozenset("ab"))),
        (
            one("HeaderFrom$Key", fields="a,b", headers="x,x", operation="move"),
            HeaderFrom(("a", "b"), ("x", "x"), moves=True),
        ),
        (one("ExtractField$Key", field="a", replace__null__with__default="false"), ExtractField("a", (), False)),
        (
            one("ExtractField$Value", field="`a.b`.c", field__syntax__version="v2"),
            ExtractField("`a.b`.c", ("a.b", "c")),
        ),
        (one("ExtractField$Value", field="a.b"), ExtractField("a.b")),
        (one("InsertField$Value", offset__field="o!"), InsertField(offset=Inserted("o", optional=False))),
        (
            one("InsertField$Value", static__field=" f ", static__value=" v "),
            InsertField(static=Inserted("f"), static_value="v"),
        ),
        (
            one("MaskField$Value", fields="a", replace__null__with__default="False"),
            MaskField(("a",), None, False),
        ),
        (one("SetSchemaMetadata$Key", schema__name="n"), SetSchemaMetadata("n")),
        (
            one("TimestampConverter$Value", target__type="string", format="EEE d MMM"),
            TimestampConverter("", "string", "EEE d MMM", "milliseconds"),
        ),
    ],
)
def test_options_of_batches_are_read_as_kafka_reads_them(config, change):
    (stage,) = parse_stages(config)
    assert stage.change == change


@pytest.mark.parametrize(
    ("config", "where", "what"),
    [
        (one("HeaderFrom", fields="a"), "transforms.t.type", "HeaderFrom$Key or HeaderFrom$Value"),
        (one("HeaderFrom$Key", fields="a", headers="b,c", operation="copy"), "transforms.t.headers", "as many"),
        (one("HeaderFrom$Key", fields="a", headers="b", operation="cut"), "transforms.t.operation", "move, copy"),
        (one("InsertHeader", header="h"), "transforms.t.value.literal", "is missing"),
        (one("DropHeaders"), "transforms.t.headers", "is missing"),
        (one("Filter", field="a"), "transforms.t.field", "is not an option of Filter"),
        (one("ExtractField$Key", field="`a.b", field__syntax__version="V2"), "transforms.t.field", "backtick"),
        (one("RegexRouter", regex="[a&&[b]]", replacement=""), "transforms.t.regex", "Java only"),
        (one("RegexRouter", regex="(", replacement=""), "transforms.t.regex", "no regular expression"),
        (one("TimestampRouter", timestamp__format="yyyy-ww"), "transforms.t.timestamp.format", "weeks"),
        (one("TimestampConverter$Key", target__type="string"), "transforms.t.format", "is missing"),
        (one("TimestampConverter$Key", target__type="unix", format="yyyy-bb"), "transforms.t.format", "does not know"),
        (one("TimestampConverter$Key", target__type="unix", format="yyyy 'x"), "transforms.t.format", "quote"),
        (one("SetSchemaMetadata$Key", schema__name=""), "transforms.t.schema.name", "empty"),
        (
            {"predicates": "p", "predicates.p.type": KAFKA + "predicates.HasHeaderKey"},
            "predicates.p.name",
            "is missing",
        ),
        (
            {"predicates": "p", "predicates.p.type": "RecordIsTombstone", "predicates.p.name": "x"},
            "predicates.p.name",
            "is not an option of RecordIsTombstone",
        ),
    ],
)
def test_what_batches_cannot_do_is_refused_by_name(config, where, what):
    with pytest.raises(ConfigInvalid) as caught:
        parse_stages(config)
    assert what in {fault.where: fault.what for fault in caught.value.faults}[where]


@pytest.mark.parametrize(
    ("options", "predicate"),
    [
        ({"type": "HasHeaderKey", "name": "h"}, HasHeader("h", negate=True)),
        ({"type": "RecordIsTombstone"}, IsTombstone(negate=True)),
        ({"type": "TopicNameMatches", "pattern": "a.*"}, TopicMatches("a.*", negate=True)),
    ],
)
def test_every_predicate_may_be_negated(options, predicate):
    config = one("Filter", predicate="p", negate="true") | {"predicates": "p"}
    config |= {f"predicates.p.{name}": value for name, value in options.items()}
    assert parse_stages(config) == (Stage("t", Filter(), only_if=predicate),)


@pytest.mark.parametrize(
    "pattern", [r"\G", r"[a[b]]", r"\0101", r"(?x)a", r"a(?i)b", r"\p{IsGreek}", "a{,3}", "a{", r"(?<=a+)b", "[", "[]"]
)
def test_patterns_that_only_java_knows_are_refused(pattern):
    with pytest.raises(Invalid):
        compile_pattern(pattern)


# Which batch a record ends in


def typed(values: list[object], schema: Schema = ROW) -> Typed:
    return Typed(schema, pa.array(values, arrow_type(schema)))


def batch_of(value: Values, **more: object) -> Batch:
    count = len(value)
    # The rows of a batch that was cut out of a larger one.
    given: dict[str, object] = {"key": Untyped([None] * count), "timestamps": pa.array([5] * count, pa.int64())}
    return Batch(np.arange(count) * 10 + 3, "t", value=value, **(given | more))  # type: ignore[arg-type]


def test_bad_and_filtered_records_are_named_by_the_rows_of_the_batch():
    batch = batch_of(typed([{"a": 1, "s": "7"}, {"a": 2, "s": "x"}, None, {"a": 3, "s": None}]))
    chain = parse_stages(
        {
            "transforms": "drop,cast",
            "transforms.drop.type": "Filter",
            "transforms.drop.predicate": "gone",
            "transforms.cast.type": "Cast$Value",
            "transforms.cast.spec": "s:int32",
            "predicates": "gone",
            "predicates.gone.type": "RecordIsTombstone",
        }
    )
    made = apply_chain(chain, batch)
    assert made.filtered.tolist() == [23]
    assert made.bad == [
        Bad(13, "transform 'cast': field 's' holds the text 'x', which is no int32", TRANSFORMATION, "cast")
    ]
    (left,) = made.batches
    assert left.rows.tolist() == [3, 33]
    assert isinstance(left.value, Typed) and left.value.column.to_pylist() == [{"a": 1, "s": 7}, {"a": 3, "s": None}]


def test_a_null_keeps_its_schema_in_a_batch_of_its_own():
    made = apply_chain(parse_stages(one("ReplaceField$Value", exclude="s")), batch_of(typed([None, {"a": 1, "s": ""}])))
    assert [
        (part.rows.tolist(), len(part.value.schema.fields)) for part in made.batches if isinstance(part.value, Typed)
    ] == [
        ([3], 2),
        ([13], 1),
    ]


def test_a_null_does_not_take_the_defaults_of_the_fields_that_it_has_not():
    schema = Schema("struct", optional=True, fields=(("a", Schema("string", optional=True, default='"x"')),))
    chain = parse_stages(one("TimestampConverter$Value", field="a", target__type="unix"))
    made = apply_chain(chain, batch_of(typed([None, {"a": None}], schema)))
    assert [(bad.row, bad.reason) for bad in made.bad] == [
        (13, "transform 't': field 'a' is a text, and there is no format")
    ]
    (left,) = made.batches
    assert isinstance(left.value, Typed)
    assert left.rows.tolist() == [3] and left.value.column.to_pylist() == [None]


def test_parts_that_are_alike_again_are_one_batch_in_the_order_of_the_rows():
    headers = [(Header("h", None, 1),), (), (Header("h", None, 2),), ()]
    batch = batch_of(typed([{"a": row, "s": "secret"} for row in range(4)]), headers=headers)
    config = one("MaskField$Value", fields="s", predicate="p") | {"predicates": "p"}
    config |= {"predicates.p.type": "HasHeaderKey", "predicates.p.name": "h"}
    (made,) = apply_chain(parse_stages(config), batch).batches
    assert made.rows.tolist() == batch.rows.tolist() and made.headers == headers
    assert isinstance(made.value, Typed)
    assert [row["s"] for row in made.value.column.to_pylist()] == ["", "secret", "", "secret"]


def test_a_failure_that_the_schema_tells_is_that_of_every_record():
    made = apply_chain(parse_stages(one("ExtractField$Value", field="none")), batch_of(typed([{"a": 1, "s": ""}] * 2)))
    assert not made.batches and [(bad.row, bad.reason) for bad in made.bad] == [
        (3, "transform 't': there is no field 'none'"),
        (13, "transform 't': there is no field 'none'"),
    ]


def test_an_empty_batch_stays_empty():
    made = apply_chain(parse_stages(one("ExtractField$Value", field="none")), batch_of(typed([])))
    assert not made.batches and not made.bad and not len(made.filtered)


def test_a_record_of_a_source_has_no_offset_and_maybe_no_partition_and_time():
    batch = batch_of(typed([{"a": 1, "s": ""}]), timestamps=pa.array([None], pa.int64()))
    made = apply_chain(parse_stages(one("InsertField$Value", partition__field="p", timestamp__field="ts")), batch)
    assert isinstance(made.batches[0].value, Typed)
    assert made.batches[0].value.column.to_pylist() == [{"a": 1, "s": "", "p": None, "ts": None}]
    made = apply_chain(parse_stages(one("InsertField$Value", offset__field="o")), batch)
    assert [bad.reason for bad in made.bad] == ["transform 't': a record of a source has no offset"]


def test_a_slice_of_a_column_is_transformed_as_the_column_itself():
    whole = typed([{"a": row, "s": None if row % 2 else str(row)} for row in range(6)])
    config = {"transforms": "h,f,c", "transforms.h.type": "HoistField$Value", "transforms.h.field": "x"}
    config |= {"transforms.f.type": "Flatten$Value", "transforms.c.type": "Cast$Value", "transforms.c.spec": "x.s:int8"}
    (made,) = apply_chain(parse_stages(config), batch_of(Typed(ROW, whole.column.slice(2, 3)))).batches
    assert isinstance(made.value, Typed)
    assert made.value.column.to_pylist() == [{"x.a": 2, "x.s": 2}, {"x.a": 3, "x.s": None}, {"x.a": 4, "x.s": 4}]


# Where Playhead is stricter than Kafka: docs/records.md names them


def test_a_lone_date_that_is_cast_is_bad_because_it_would_keep_its_name():
    dates = Schema("int32", name=DATE, version=1)
    made = apply_chain(parse_stages(one("Cast$Value", spec="string")), batch_of(typed([1], dates)))
    assert "would still be called" in made.bad[0].reason


def test_a_moment_too_far_away_for_a_date_is_bad():
    schema = Schema("struct", fields=(("a", Schema("int64", name=TIMESTAMP, version=1)),))
    values = pa.StructArray.from_arrays(
        [pa.array([1 << 62, 0]).cast(pa.timestamp("ms", tz="UTC"))], fields=list(arrow_type(schema))
    )
    made = apply_chain(
        parse_stages(one("TimestampConverter$Value", field="a", target__type="Date")), batch_of(Typed(schema, values))
    )
    assert [(bad.row, bad.reason) for bad in made.bad] == [(3, "transform 't': field 'a' is too far away for a date")]
    assert made.batches[0].rows.tolist() == [13]


def test_a_masked_decimal_has_the_scale_of_its_schema():
    schema = Schema("struct", fields=(("a", Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "2"),))),))
    (made,) = apply_chain(
        parse_stages(one("MaskField$Value", fields="a")), batch_of(typed([{"a": Decimal("1.25")}], schema))
    ).batches
    assert isinstance(made.value, Typed) and str(made.value.column[0]["a"].as_py()) == "0.00"
    made_ = apply_chain(
        parse_stages(one("MaskField$Value", fields="a", replacement="1.234")),
        batch_of(typed([{"a": Decimal("1.25")}], schema)),
    )
    assert "scale 2" in made_.bad[0].reason


def test_a_year_of_more_digits_than_a_moment_has_is_not_read():
    assert DateFormat.of("y").parse_one("2024022910") is None


@pytest.mark.parametrize(("literal", "kind"), [("1e330030030", "bytes"), ("1e-330030030", "float"), ("1e18", "int64")])
def test_a_number_beyond_all_proportion_takes_no_time(literal, kind):
    batch = batch_of(typed([{"a": 1, "s": ""}]))
    (made,) = apply_chain(parse_stages(one("InsertHeader", header="h", value__literal=literal)), batch).batches
    assert made.headers is not None and made.headers[0][0].schema is not None
    assert made.headers[0][0].schema.type == kind
    (masked,) = apply_chain(parse_stages(one("MaskField$Value", fields="a", replacement="1e330030030")), batch).batches
    assert isinstance(masked.value, Typed) and masked.value.column[0]["a"].as_py() == 0


def test_a_replacement_of_too_many_digits_fits_no_decimal():
    schema = Schema("struct", fields=(("a", Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "2"),))),))
    config = one("MaskField$Value", fields="a", replacement="1e330030030")
    made = apply_chain(parse_stages(config), batch_of(typed([{"a": Decimal("1.25")}], schema)))
    assert "scale 2" in made.bad[0].reason
