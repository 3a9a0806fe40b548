"""A key or a value -> the bytes of its converter, JsonConverter or StringConverter, as columns of Spark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from playhead.errors import Invalid
from playhead.pipeline.records.encode.javacalls import is_ascii
from playhead.pipeline.records.encode.jsontext import Member, escape_beyond_basic_plane, write_object
from playhead.pipeline.records.encode.nodes import Leaf, Made, Node, Read, Struct, is_decimal, leaves
from playhead.pipeline.records.encode.options import JSON, Converter
from playhead.pipeline.records.encode.schema import encode_schema
from playhead.pipeline.records.encode.structtext import write_struct

_LONE = "v"  # Spark writes objects only: a lone value is the one member of an object, whose frame is cut off again
_FRAME = len('{"v":') + 1


@dataclass(frozen=True, slots=True)
class Writing:
    """Two projections: in one, Spark would create the text again each time that it is used. `finished` is over the columns
    `name` and `plain`. To be built once and used for many frames: it takes hundreds of calls to the JVM."""

    name: str
    text: Column
    is_plain: Column
    finished: Column

    @property
    def plain(self) -> str:
        return plain_name(self.name)


def plain_name(name: str) -> str:
    return f"playhead_plain_{name}"


def write_all(frame: DataFrame, writings: Sequence[Writing], *others: Column) -> DataFrame:
    """The texts of all, and `others` of `frame` next to them."""
    texts = [part for one in writings for part in (one.text.alias(one.name), one.is_plain.alias(one.plain))]
    first = frame.select(*texts, *others)
    return first.select(*(one.finished.alias(one.name) for one in writings), *first.columns[len(texts) :])


def write_node(node: Node, converter: Converter, name: str) -> Writing:
    """The column `name` holds UTF-8 texts; null where the converter gives no bytes at all."""
    if converter.name != JSON:
        check_text(node)
        return Writing(name, _java_text(node), F.lit(True), F.col(name))
    text = F.col(name)
    if isinstance(node, Struct):
        written = _object(node, converter)
    else:
        value, is_text = _json_value(node, converter)
        written = F.coalesce(value, F.lit("null")) if is_text else write_object([(_LONE, value, False)])
        text = text if is_text else F.substring(text, F.lit(_FRAME), F.length(text) - _FRAME)
    payload = escape_beyond_basic_plane(text, F.col(plain_name(name)))
    if converter.schemas_enable:
        payload = F.concat(F.lit(f'{{"schema":{encode_schema(node.schema)},"payload":'), payload, F.lit("}"))
    return Writing(name, written, _is_plain(node), payload)


def check_text(node: Node) -> None:
    """Refuses what has no text of its own: an array of bytes prints its address in memory."""
    for name, leaf in leaves(node):
        if leaf.schema.type == "bytes" and not is_decimal(leaf):
            raise Invalid(
                f"column {name!r} is bytes, which StringConverter writes as an address in memory",
                "use org.apache.kafka.connect.json.JsonConverter, or leave the column out",
            )
        if isinstance(leaf, Made) and leaf.schema.is_logical:
            raise Invalid(
                f"field {name!r} is a time that a transform created, whose text would depend on the worker's zone",
                "use org.apache.kafka.connect.json.JsonConverter",
            )


def _object(node: Struct, converter: Converter) -> Column:
    members: list[Member] = []
    for name, child in node.fields:
        if isinstance(child, Struct):
            members.append((name, _object(child, converter), True))
        else:
            members.append((name, *_json_value(child, converter)))
    return write_object(members)


def _json_value(leaf: Leaf, converter: Converter) -> tuple[Column, bool]:
    """And whether it is JSON text already."""
    if isinstance(leaf, Read) and is_decimal(leaf) and converter.decimal_format == "NUMERIC":
        return leaf.number()
    return leaf.json(), False


def _java_text(node: Node) -> Column:
    if isinstance(node, Struct):
        return write_struct([(name, _java_text(child)) for name, child in node.fields])
    return node.text().cast("string")


def _is_plain(node: Node) -> Column:
    """Whether the names are ASCII, and the strings of a row: what else is in it always is."""
    if not all(name.isascii() for name in _names(node)):
        return F.lit(False)
    strings = [leaf.string for _, leaf in leaves(node)]
    return reduce(and_, (F.coalesce(is_ascii(text), F.lit(True)) for text in strings if text is not None), F.lit(True))


def _names(node: Node) -> Iterator[str]:
    if isinstance(node, Struct):
        for name, child in node.fields:
            yield name
            yield from _names(child)
