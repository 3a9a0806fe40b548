"""Kafka as the oracle of transforms of batches: its own classes in a Java program, on records as a converter reads them.

Both sides are written down in one form: the schema with its default, and the value with the Java class of every part of it; and
with the bytes that JsonConverter makes of them.
"""

import base64
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import starmap
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from integration.java_oracle import CHAIN, run_java
from playhead.pipeline.records import javamaps
from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import TRANSFORMATION, Batch, Header, Moment, Untyped, Values
from playhead.pipeline.records.decode import options, shapes
from playhead.pipeline.records.decode.batches import read_values
from playhead.pipeline.records.decode.columns import Part
from playhead.pipeline.records.encode.converters import encode
from playhead.pipeline.records.encode.options import JSON, Converter
from playhead.pipeline.records.javamaps import copy_capacity
from playhead.pipeline.records.schema import DATE, TIME, TIMESTAMP, Schema
from playhead.pipeline.records.transforms.apply import apply_chain
from playhead.pipeline.records.transforms.arrow.headers import plain_values
from playhead.pipeline.records.transforms.arrow.values import default_array
from playhead.pipeline.records.transforms.options import parse_stages

SOURCE = r"""
import java.math.*; import java.util.*; import com.fasterxml.jackson.databind.*; import com.fasterxml.jackson.databind.node.*;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.record.*; import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.*; import org.apache.kafka.connect.header.*; import org.apache.kafka.connect.json.*;
import org.apache.kafka.connect.sink.SinkRecord;

public class Stages {
  static final ObjectMapper MAPPER = new ObjectMapper();

  static ArrayNode tagged(String tag, JsonNode value) { return MAPPER.createArrayNode().add(tag).add(value); }
  static ArrayNode tagged(String tag, String value) { return MAPPER.createArrayNode().add(tag).add(value); }

  static JsonNode dump(Object value) {
    if (value == null) return NullNode.instance;
    if (value instanceof Boolean) return BooleanNode.valueOf((Boolean) value);
    if (value instanceof Byte) return tagged("int8", value.toString());
    if (value instanceof Short) return tagged("int16", value.toString());
    if (value instanceof Integer) return tagged("int32", value.toString());
    if (value instanceof Long) return tagged("int64", value.toString());
    if (value instanceof Float) return tagged("float", "" + Float.floatToIntBits((Float) value));
    if (value instanceof Double) return tagged("double", "" + Double.doubleToLongBits((Double) value));
    if (value instanceof String) return tagged("string", (String) value);
    if (value instanceof byte[]) return tagged("bytes", Base64.getEncoder().encodeToString((byte[]) value));
    if (value instanceof BigDecimal) {
      BigDecimal number = (BigDecimal) value;
      return tagged("decimal", number.signum() == 0 ? "0" : number.stripTrailingZeros().toPlainString());
    }
    if (value instanceof java.util.Date) return tagged("date", "" + ((java.util.Date) value).getTime());
    ArrayNode parts = MAPPER.createArrayNode();
    if (value instanceof List) {
      for (Object one : (List<?>) value) parts.add(dump(one));
      return tagged("list", parts);
    }
    if (value instanceof Map) {
      ((Map<?, ?>) value).forEach((k, v) -> parts.add(MAPPER.createArrayNode().add(dump(k)).add(dump(v))));
      return tagged("map", parts);
    }
    Struct struct = (Struct) value;
    for (Field field : struct.schema().fields())
      parts.add(MAPPER.createArrayNode().add(field.name()).add(dump(struct.getWithoutDefault(field.name()))));
    return tagged("struct", parts);
  }

  static JsonNode dump(Schema schema) {
    if (schema == null) return NullNode.instance;
    ObjectNode out = MAPPER.createObjectNode();
    out.put("type", schema.type().getName());
    out.put("optional", schema.isOptional());
    out.put("name", schema.name());
    out.put("version", schema.version());
    out.put("doc", schema.doc());
    out.set("parameters", MAPPER.valueToTree(new TreeMap<>(schema.parameters() == null ? Map.of() : schema.parameters())));
    out.set("default", dump(schema.defaultValue()));
    if (schema.type() == Schema.Type.STRUCT) {
      ArrayNode fields = out.putArray("fields");
      for (Field field : schema.fields())
        fields.add(MAPPER.createArrayNode().add(field.name()).add(dump(field.schema())));
    }
    if (schema.type() == Schema.Type.MAP) out.set("keys", dump(schema.keySchema()));
    if (schema.type() == Schema.Type.MAP || schema.type() == Schema.Type.ARRAY) out.set("items", dump(schema.valueSchema()));
    return out;
  }

  static JsonNode both(Schema schema, Object value) {
    return MAPPER.createArrayNode().add(dump(schema)).add(dump(value));
  }

  static String write(JsonConverter with, Schema schema, Object value) {
    try {
      byte[] bytes = with.fromConnectData("t", schema, value);
      return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    } catch (RuntimeException error) {
      return "ERROR " + error;
    }
  }

  static SchemaAndValue read(JsonConverter with, JsonConverter without, JsonNode given) {
    JsonNode text = given.get("text");
    byte[] bytes = text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8);
    return (given.get("schemas").asBoolean() ? with : without).toConnectData("t", bytes);
  }

  @SuppressWarnings("unchecked")
  static JsonNode run(JsonNode given, JsonConverter with, JsonConverter without) throws Exception {
    Map<String, String> config = MAPPER.convertValue(given.get("config"), Map.class);
    ArrayNode out = MAPPER.createArrayNode();
    Chain<SinkRecord> chain;
    try {
      chain = new Chain<>(config);
    } catch (RuntimeException error) {
      return MAPPER.createObjectNode().put("error", String.valueOf(error));
    }
    for (JsonNode one : given.get("records")) {
      ObjectNode answer = out.addObject();
      SchemaAndValue key = read(with, without, one.get("key")), value = read(with, without, one.get("value"));
      ConnectHeaders headers = new ConnectHeaders();
      for (JsonNode header : one.get("headers")) {
        SchemaAndValue its = read(with, without, header.get("value"));
        headers.add(header.get("name").asText(), its);
      }
      Long timestamp = one.get("timestamp").isNull() ? null : one.get("timestamp").asLong();
      SinkRecord record = new SinkRecord(one.get("topic").asText(), one.get("partition").asInt(), key.schema(), key.value(),
        value.schema(), value.value(), one.get("offset").asLong(), timestamp, TimestampType.CREATE_TIME, headers);
      try {
        record = chain.apply(record);
      } catch (RuntimeException error) {
        answer.put("error", String.valueOf(error));
        continue;
      }
      if (record == null) { answer.put("dropped", true); continue; }
      answer.put("topic", record.topic());
      answer.set("key", both(record.keySchema(), record.key()));
      answer.set("value", both(record.valueSchema(), record.value()));
      ArrayNode written = answer.putArray("written");
      written.add(write(with, record.keySchema(), record.key())).add(write(with, record.valueSchema(), record.value()));
      ArrayNode listed = answer.putArray("headers");
      for (Header header : record.headers())
        listed.add(MAPPER.createArrayNode().add(header.key()).add(both(header.schema(), header.value())));
    }
    return out;
  }

  static JsonConverter converter(boolean schemas) {
    JsonConverter made = new JsonConverter();
    made.configure(Map.of("schemas.enable", "" + schemas, "replace.null.with.default", "false"), false);
    return made;
  }

  public static void main(String[] args) throws Exception {
    TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
    Locale.setDefault(Locale.US);
    JsonConverter with = converter(true), without = converter(false);
    ArrayNode out = MAPPER.createArrayNode();
    for (JsonNode one : MAPPER.readTree(System.in)) out.add(run(one, with, without));
    System.out.write(MAPPER.writeValueAsBytes(out));
    System.out.flush();
  }
}
"""

_DOUBLE = re.compile(r"-?[0-9]+\.[0-9]+(E-?[0-9]+)?")
_NUMBER = re.compile(r"-?[0-9]+\.[0-9]+(?:E-?[0-9]+)?")
LOGICAL = (DATE, TIME, TIMESTAMP)
FEWEST = (1_000, 1)  # values of one shape without a schema, one by one or as columns


@dataclass(frozen=True)
class Case:
    """A chain and its records: keys and values each under one schema, or without one. `None` for a schema: none.

    Values are as `Header` has them: counts for dates and times, Decimals, dicts for structs, pairs for maps."""

    config: Mapping[str, str]
    value_schema: Schema | None
    values: Sequence[Any]
    key_schema: Schema | None = None
    keys: Sequence[Any] = ()
    timestamps: Sequence[int | None] = ()
    headers: Sequence[tuple[Header, ...]] | None = None
    topic: str = "shop.orders"

    def times(self) -> list[int | None]:
        return list(self.timestamps) or [1_700_000_000_000 + row for row in range(len(self.values))]

    def batches(self) -> Iterator[Batch]:
        """One for each pair of schemas or shapes of key and value."""
        count = len(self.values)
        headers = None if self.headers is None else [tuple(map(_read_header, listed)) for listed in self.headers]
        values = _read(self.value_schema, self.values)
        for key_rows, key in _read(self.key_schema, list(self.keys) or [None] * count):
            for value_rows, value in values:
                rows, of_key, of_value = np.intersect1d(key_rows, value_rows, return_indices=True)
                if len(rows):
                    yield Batch(
                        rows,
                        self.topic,
                        key.take(of_key),
                        value.take(of_value),
                        pa.array([self.times()[row] for row in rows], pa.int64()),
                        3,
                        rows + 100,
                        None if headers is None else [headers[row] for row in rows],
                    )


def _read(schema: Schema | None, values: Sequence[Any]) -> list[Part]:
    """By our JsonConverter, from the bytes that Kafka's is given."""
    texts = [_given(schema, value)["text"] for value in values]
    octets = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    parts, bad = read_values(octets, options.Converter(schemas_enable=schema is not None, null_to_default=False))
    assert not bad, bad
    assert sorted(row for part in parts for row in part.rows) == list(range(len(values)))
    return parts


def _read_header(given: Header) -> Header:
    ((_, found),) = _read(given.schema, [given.value])
    if isinstance(found, Untyped):
        return Header(given.name, None, found.values[0])
    return Header(given.name, found.schema, plain_values(found.column, found.schema)[0])


def kafka(cases: Sequence[Case]) -> list[Any]:
    """Of each case: what became of its records, or one error of its options."""
    asked = json.dumps([_asked(case) for case in cases]).encode()
    found: list[Any] = json.loads(run_java("Stages", SOURCE + CHAIN, given=asked))
    return found


def ours(case: Case) -> list[dict[str, Any]]:
    with patch.object(javamaps, "copy_capacity", _copy_capacity):
        made = [apply_chain(parse_stages(case.config), batch) for batch in case.batches()]
    out: list[dict[str, Any]] = [{} for _ in case.values]
    for row in (row for one in made for row in one.filtered):
        out[row]["dropped"] = True
    for bad in (bad for one in made for bad in one.bad):
        assert not out[bad.row] and bad.stage == TRANSFORMATION
        out[bad.row]["error"] = bad.reason
    for batch in (batch for one in made for batch in one.batches):
        assert list(batch.rows) == sorted(batch.rows)
        keys, values = _dumped(batch.key), _dumped(batch.value)
        written = list(zip(_written(batch.key), _written(batch.value), strict=True))
        for at, row in enumerate(batch.rows):
            assert not out[row], (row, out[row])
            out[row] |= {"topic": batch.topic, "key": keys[at], "value": values[at], "written": list(written[at])}
            listed = batch.headers[at] if batch.headers is not None else ()
            out[row]["headers"] = [
                [one.name, [dump_schema(one.schema), _dump(one.value, one.schema)]] for one in listed
            ]
    assert all(out)
    return out


def _copy_capacity(count: int) -> int:
    """Of the Java that runs Kafka's classes here."""
    if java_feature() >= 19:
        return copy_capacity(count)
    return 1 << (int(count / 0.75 + 1) - 1).bit_length() if count else 16


@cache
def java_feature() -> int:
    program = "public class Feature { public static void main(String[] a) { System.out.print(Runtime.version().feature()); } }"
    return int(run_java("Feature", program))


def differences(case: Case, expected: Any) -> list[str]:
    """One line for each record that ends otherwise than Kafka's."""
    if isinstance(expected, dict):
        return [f"Kafka refuses the options: {expected['error']}"]
    found = []
    for fewest in FEWEST if None in (case.key_schema, case.value_schema) else FEWEST[:1]:
        with patch.object(shapes, "FEWEST", fewest):
            made = ours(case)
        for row, (mine, its) in enumerate(zip(made, expected, strict=True)):
            alike = "error" in mine and "error" in its
            if not alike and not _same(mine, its):
                what = f"row {row}: ours {json.dumps(mine)}\n   kafka {json.dumps(its)}\n   of {case.values[row]!r}"
                found.append(f"{what}, {fewest} of one shape are columns")
    return found


def _written(values: Values) -> list[str | None]:
    """By our JsonConverter, which takes no defaults for nulls, as Kafka's does not here."""
    octets, bad = encode(values, Converter(JSON, schemas_enable=True, null_to_default=False))
    texts = [None if one is None else one.decode() for one in octets.to_pylist()]
    for one in bad:
        texts[one.row] = f"ERROR {one.reason}"
    return texts


def _same_texts(mine: str | None, its: str | None) -> bool:
    """Byte for byte; but see `_same` for doubles."""
    if mine is None or its is None or mine == its:
        return mine == its
    if its.startswith("ERROR"):  # a masked decimal has a scale of its own: see docs/records.md
        return mine.startswith("ERROR") or "mismatching scale" in its
    if mine.startswith("ERROR"):
        return False
    numbers = zip(_NUMBER.findall(mine), _NUMBER.findall(its), strict=False)
    return _NUMBER.sub("0", mine) == _NUMBER.sub("0", its) and all(starmap(_same_number, numbers))


def _same_number(mine: str, its: str) -> bool:
    if mine == its:
        return True
    with np.errstate(over="ignore"):
        return len(mine) <= len(its) and (float(mine) == float(its) or bool(np.float32(mine) == np.float32(its)))


def _same(mine: Any, its: Any) -> bool:
    """Java before 19 writes a digit more of some doubles than is needed to distinguish them from others."""
    if isinstance(mine, dict) and isinstance(its, dict):
        return mine.keys() == its.keys() and all(
            all(map(_same_texts, mine[name], its[name])) if name == "written" else _same(mine[name], its[name])
            for name in mine
        )
    if isinstance(mine, list) and isinstance(its, list):
        if mine[:1] == its[:1] == ["string"] and mine != its:
            texts = (mine[1], its[1])
            is_number = all(_DOUBLE.fullmatch(text) for text in texts)
            return is_number and len(mine[1]) < len(its[1]) and float(mine[1]) == float(its[1])
        return len(mine) == len(its) and all(map(_same, mine, its))
    return bool(mine == its)


def _asked(case: Case) -> dict[str, Any]:
    keys = list(case.keys) or [None] * len(case.values)
    listed = case.headers or [()] * len(case.values)
    return {
        "config": case.config,
        "records": [
            {
                "topic": case.topic,
                "partition": 3,
                "offset": row + 100,
                "timestamp": case.times()[row],
                "key": _given(case.key_schema, keys[row]),
                "value": _given(case.value_schema, value),
                "headers": [{"name": one.name, "value": _given(one.schema, one.value)} for one in listed[row]],
            }
            for row, value in enumerate(case.values)
        ],
    }


def _given(schema: Schema | None, value: Any) -> dict[str, Any]:
    if schema is None:
        return {"schemas": False, "text": None if value is None else json.dumps(value)}
    return {"schemas": True, "text": json.dumps({"schema": json.loads(schema.text), "payload": payload(schema, value)})}


def payload(schema: Schema, value: Any) -> Any:
    """As JsonConverter writes it."""
    if value is None:
        return None
    if schema.is_struct:
        return {name: payload(inner, value[name]) for name, inner in schema.fields}
    if schema.keys is not None and schema.items is not None:
        if schema.is_string_map:
            return {key: payload(schema.items, item) for key, item in value}
        return [[payload(schema.keys, key), payload(schema.items, item)] for key, item in value]
    if schema.items is not None:
        return [payload(schema.items, item) for item in value]
    if schema.is_decimal:
        unscaled = int(value.scaleb(schema.parameter("scale", 0)))
        value = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    return base64.b64encode(value).decode() if schema.type == "bytes" else value


def _dumped(values: Values) -> list[Any]:
    if isinstance(values, Untyped):
        return [[None, _dump(value, None)] for value in values.values]
    assert values.column.type == arrow_type(values.schema), (values.column.type, values.schema)
    schema = dump_schema(values.schema)
    return [[schema, _dump(value, values.schema)] for value in plain_values(values.column, values.schema)]


def dump_schema(schema: Schema | None) -> Any:
    if schema is None:
        return None
    default = None
    if schema.default is not None:
        default = _dump(plain_values(default_array(schema), schema)[0], schema)
    out: dict[str, Any] = {
        "type": {"float": "float32", "double": "float64"}.get(schema.type, schema.type),
        "optional": schema.optional,
        "name": schema.name or None,
        "version": schema.version,
        "doc": schema.doc,
        "parameters": dict(schema.parameters),
        "default": default,
    }
    if schema.is_struct:
        out["fields"] = [[name, dump_schema(inner)] for name, inner in schema.fields]
    if schema.type == "map":
        out["keys"] = dump_schema(schema.keys)
    if schema.type in ("map", "array"):
        out["items"] = dump_schema(schema.items)
    return out


def _dump(value: Any, schema: Schema | None) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if schema is None:
        return _dump_untyped(value)
    if schema.is_struct:
        return ["struct", [[name, _dump(value[name], inner)] for name, inner in schema.fields]]
    if schema.type == "map":
        return ["map", [[_dump(key, schema.keys), _dump(item, schema.items)] for key, item in value]]
    if schema.type == "array":
        return ["list", [_dump(item, schema.items) for item in value]]
    if schema.is_decimal:
        return ["decimal", _digits(value)]
    if schema.name in LOGICAL:
        return ["date", str(value * (86_400_000 if schema.name == DATE else 1))]
    return _scalar(schema.type, value)


def _dump_untyped(value: Any) -> Any:
    if isinstance(value, dict):
        return ["map", [[_dump(key, None), _dump(item, None)] for key, item in value.items()]]
    if isinstance(value, list):
        return ["list", [_dump(item, None) for item in value]]
    if isinstance(value, Moment):
        return ["date", str(value.millis)]
    if isinstance(value, Decimal):
        return ["decimal", _digits(value)]
    small = {np.int8: "int8", np.int16: "int16", np.int32: "int32", np.float32: "float"}
    plain = {int: "int64", float: "double", str: "string", bytes: "bytes"}
    return _scalar((small | plain)[type(value)], value)


def _scalar(kind: str, value: Any) -> Any:
    if kind == "float":
        return [kind, str(int.from_bytes(struct.pack(">f", value), "big", signed=True))]
    if kind == "double":
        return [kind, str(int.from_bytes(struct.pack(">d", value), "big", signed=True))]
    return [kind, base64.b64encode(value).decode() if kind == "bytes" else str(value)]


def _digits(value: Decimal) -> str:
    return f"{value.normalize():f}" if value else "0"
