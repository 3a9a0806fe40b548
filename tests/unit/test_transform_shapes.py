"""What a chain makes of the fields of a row, without a session: which column ends where, and what is refused before reading."""

import pytest

pytest.importorskip("pyspark")

from playhead.errors import Invalid
from playhead.pipeline.records.encode.columns import SqlColumn
from playhead.pipeline.records.encode.nodes import Node
from playhead.pipeline.records.encode.options import RecordOptions
from playhead.pipeline.records.encode.record import make_record
from playhead.pipeline.records.encode.schema import encode_schema
from playhead.pipeline.records.transforms import (
    Chain,
    Change,
    ExtractField,
    Flatten,
    HoistField,
    ReplaceField,
    SetSchemaMetadata,
    Transform,
    ValueToKey,
)
from playhead.pipeline.records.transforms.chain import Parts, apply_chain, columns_shown

COLUMNS = [SqlColumn(name, 4, "int4", 10, 0, signed=True, nullable=False) for name in ("id", "n", "m")]


def row() -> Node:
    return make_record(COLUMNS, RecordOptions(), "t", "PostgreSQL").value


def chain_of(*changes: Change, on_key: bool = False) -> Chain:
    return tuple(Transform(f"t{at}", change, on_key) for at, change in enumerate(changes))


def test_a_column_is_found_under_its_new_name():
    swapped = apply_chain(chain_of(ReplaceField(renames={"id": "n", "n": "id"})), Parts("x", row())).value
    assert columns_shown(swapped) == {"id": "n", "n": "id", "m": "m"}


def test_a_column_that_is_gone_or_nested_is_not_found():
    assert columns_shown(apply_chain(chain_of(ExtractField("id")), Parts("x", row())).value) == {}
    assert columns_shown(apply_chain(chain_of(HoistField("a")), Parts("x", row())).value) == {}


def test_the_schema_follows_the_fields():
    changes = (ReplaceField(include=frozenset({"id"})), HoistField("a"), SetSchemaMetadata("s", 2), Flatten("_"))
    value = apply_chain(chain_of(*changes), Parts("x", row())).value
    assert encode_schema(value.schema) == (
        '{"type":"struct","fields":[{"type":"int32","optional":false,"field":"a_id"}],"optional":false,"name":"s","version":2}'
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ([ReplaceField(exclude=frozenset({"id"}), renames={"id": "n"})], "Connect would write 'id' into 'n'"),
        ([ReplaceField(renames={"id": "n"})], "two fields 'n'"),
        ([ReplaceField(include=frozenset({"x"}))], "leaves no field"),
        ([ValueToKey(("x",))], "there is no field 'x'"),
        ([ExtractField("id"), ValueToKey(("id",))], "a lone int32"),
    ],
)
def test_what_connect_would_fail_at_or_mix_up_is_refused_with_the_name_of_the_transform(changes, what):
    with pytest.raises(Invalid, match=f"transform 't{len(changes) - 1}': .*{what}"):
        apply_chain(chain_of(*changes), Parts("x", row()))


def test_a_key_that_a_predicate_left_out_cannot_be_changed():
    with pytest.raises(Invalid, match="no key to change"):
        apply_chain(chain_of(ExtractField("id"), on_key=True), Parts("x", row()))
