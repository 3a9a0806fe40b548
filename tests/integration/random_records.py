"""Random schemas of Connect and values under them, for properties by hypothesis."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from playhead.pipeline.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

NAMES = ["a", "b", "c.d", "e_f", "\u00e9", "id", "x y"]
_KEYS = st.sampled_from([*NAMES, "AaAa", "BBBB", "AaBB", "BBAa", "\U0001f600"]) | st.text(
    max_size=4
)  # four of one hash code
_INTEGERS = {f"int{bits}": st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)}
_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    **_INTEGERS,
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": st.one_of(
        st.text(max_size=6), st.integers().map(str), st.floats().map(str), st.sampled_from(["true", "NaN", "1e5"])
    ),
    "bytes": st.binary(max_size=5),
}
_LOGICAL = [
    Schema("int32", name=DATE, version=1),
    Schema("int32", name=TIME, version=1),
    Schema("int64", name=TIMESTAMP, version=1),
    Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "2"),)),
    Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "0"),)),
]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> Schema:
    kinds = ["plain", "logical", "plain", *(["struct", "array", "map"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "plain":
        made = Schema(draw(st.sampled_from(list(_PLAIN))), doc=draw(st.sampled_from([None, "d"])))
    elif kind == "logical":
        made = draw(st.sampled_from(_LOGICAL))
    elif kind == "struct":
        made = draw(structs(depth=depth - 1))
    elif kind == "array":
        made = Schema("array", items=draw(schemas(depth=depth - 1)))
    else:
        keys = Schema(draw(st.sampled_from(["string", "string", "int8", "int16", "int32", "int64", "boolean"])))
        made = Schema("map", keys=keys, items=draw(schemas(depth=depth - 1)))
    return replace(made, optional=draw(st.booleans()))


@st.composite
def structs(draw: st.DrawFn, depth: int = 2) -> Schema:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    name = draw(st.sampled_from(["", "shop.Row"]))
    return Schema("struct", name=name, fields=tuple((one, draw(schemas(depth=depth))) for one in names))


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """As `Header` has them."""
    made = _given(schema)
    return st.none() | made if schema.optional else made


def _given(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.is_struct:
        return st.fixed_dictionaries({name: values(inner) for name, inner in schema.fields})
    if schema.keys is not None and schema.items is not None:
        keys = _KEYS if schema.keys.type == "string" else values(schema.keys)
        pairs = st.tuples(keys, values(schema.items))
        return st.lists(pairs, max_size=14, unique_by=lambda pair: pair[0])
    if schema.items is not None:
        return st.lists(values(schema.items), max_size=2)
    if schema.is_decimal:
        scale = schema.parameter("scale", 0)
        return st.integers(-(10**20), 10**20).map(lambda unscaled: Decimal(unscaled).scaleb(-scale))
    if schema.name == TIME:
        return st.integers(0, 86_399_999)
    if schema.name == DATE:
        return st.integers(-3_000_000, 3_000_000)
    if schema.name == TIMESTAMP:
        return st.integers(-(10**15), 10**15)
    return _PLAIN[schema.type]


def free_values() -> st.SearchStrategy[Any]:
    """Without a schema, as JsonConverter reads them."""
    lone = st.none() | st.booleans() | _INTEGERS["int64"] | _PLAIN["double"] | _PLAIN["string"]
    nested = st.recursive(
        lone,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=4),
        max_leaves=6,
    )
    many = st.dictionaries(_KEYS, lone, max_size=30)
    return st.dictionaries(st.sampled_from(NAMES), nested, max_size=5) | nested | many
