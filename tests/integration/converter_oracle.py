"""Kafka's own converters as the oracle of bytes: they are given values of any schema, and print what they write.

A schema goes to Java as the JSON that JsonConverter reads. A value goes as JSON of its own: floats by their bits, decimals by
their unscaled value, times by their counts, structs as arrays in the order of their fields, maps as arrays of pairs, in whose
order they are. Without a schema a value is an object of one member that names its Java type.
"""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from integration.java_oracle import run_java
from playhead.pipeline.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

SOURCE = r"""
import java.math.*; import java.util.*; import com.fasterxml.jackson.databind.*; import com.fasterxml.jackson.databind.node.*;
import org.apache.kafka.connect.data.*; import org.apache.kafka.connect.json.*; import org.apache.kafka.connect.storage.*;

public class Converters {
  static final ObjectMapper MAPPER = new ObjectMapper();
  static final Set<String> TIMES = Set.of("org.apache.kafka.connect.data.Date", "org.apache.kafka.connect.data.Time",
    "org.apache.kafka.connect.data.Timestamp");

  static Object typed(Schema schema, JsonNode given) {
    if (given.isNull()) return null;
    if (Decimal.LOGICAL_NAME.equals(schema.name()))
      return new BigDecimal(new BigInteger(given.asText()), Integer.parseInt(schema.parameters().get("scale")));
    if (schema.name() != null && TIMES.contains(schema.name()))
      return new java.util.Date(given.asLong() * (schema.name().endsWith(".Date") ? 86400000L : 1L));
    switch (schema.type()) {
      case INT8: return (byte) given.asInt();
      case INT16: return (short) given.asInt();
      case INT32: return given.asInt();
      case INT64: return given.asLong();
      case FLOAT32: return Float.intBitsToFloat(given.asInt());
      case FLOAT64: return Double.longBitsToDouble(given.asLong());
      case BOOLEAN: return given.asBoolean();
      case STRING: return given.asText();
      case BYTES: return Base64.getDecoder().decode(given.asText());
      case ARRAY: {
        List<Object> items = new ArrayList<>();
        for (JsonNode one : given) items.add(typed(schema.valueSchema(), one));
        return items;
      }
      case MAP: {
        Map<Object, Object> entries = new LinkedHashMap<>();
        for (JsonNode pair : given)
          entries.put(typed(schema.keySchema(), pair.get(0)), typed(schema.valueSchema(), pair.get(1)));
        return entries;
      }
      default: {
        Struct struct = new Struct(schema);
        int at = 0;
        for (Field field : schema.fields()) {
          Object value = typed(field.schema(), given.get(at++));
          if (value != null) struct.put(field, value);
        }
        return struct;
      }
    }
  }

  static Object bare(JsonNode given) {
    if (given.isNull()) return null;
    String kind = given.fieldNames().next();
    JsonNode value = given.get(kind);
    switch (kind) {
      case "long": return value.asLong();
      case "double": return Double.longBitsToDouble(value.asLong());
      case "boolean": return value.asBoolean();
      case "string": return value.asText();
      case "bytes": return Base64.getDecoder().decode(value.asText());
      case "list": {
        List<Object> items = new ArrayList<>();
        for (JsonNode one : value) items.add(bare(one));
        return items;
      }
      default: {
        Map<Object, Object> entries = new LinkedHashMap<>();
        for (JsonNode pair : value) entries.put(bare(pair.get(0)), bare(pair.get(1)));
        return entries;
      }
    }
  }

  static JsonNode texts(JsonNode in) {
    ArrayNode out = MAPPER.createArrayNode();
    for (JsonNode bits : in.get("bits"))
      out.add(in.get("doubles").asBoolean()
        ? Double.toString(Double.longBitsToDouble(bits.asLong())) : Float.toString(Float.intBitsToFloat(bits.asInt())));
    return out;
  }

  @SuppressWarnings("unchecked")
  static JsonNode converted(JsonNode in) throws Exception {
    ArrayNode out = MAPPER.createArrayNode();
    Object converter = Class.forName(in.get("converter").asText()).getDeclaredConstructor().newInstance();
    if (converter instanceof Converter)
      ((Converter) converter).configure(MAPPER.convertValue(in.get("config"), Map.class), false);
    Schema schema = null;
    if (!in.get("schema").isNull()) {
      JsonConverter reader = new JsonConverter();
      reader.configure(Map.of("schemas.enable", "true"), false);
      schema = reader.asConnectSchema(in.get("schema"));
    }
    for (JsonNode row : in.get("rows")) {
      ObjectNode one = out.addObject();
      try {
        Object value = schema == null ? bare(row) : typed(schema, row);
        one.put("bytes", converter instanceof Converter
          ? ((Converter) converter).fromConnectData("t", schema, value)
          : ((HeaderConverter) converter).fromConnectHeader("t", "h", schema, value));
      } catch (RuntimeException error) {
        one.put("error", String.valueOf(error));
      }
    }
    return out;
  }

  public static void main(String[] args) throws Exception {
    JsonNode in = MAPPER.readTree(System.in);
    System.out.write(MAPPER.writeValueAsBytes(in.has("bits") ? texts(in) : converted(in)));
    System.out.flush();
  }
}
"""


@dataclass(frozen=True)
class Written:
    """`error`: the converter failed."""

    octets: bytes | None
    error: str | None = None


def converted(
    schema: Schema | None, rows: Sequence[object], converter: str, config: Mapping[str, str] | None = None
) -> list[Written]:
    """`rows` as Python has them: Decimals as unscaled ints, times as counts, structs as lists, maps as lists of pairs. The
    converter may be one of headers."""
    given = [_bare(row) if schema is None else _typed(row, schema) for row in rows]
    schema_json = None if schema is None else json.loads(schema.text)
    asked = {"schema": schema_json, "rows": given, "converter": converter, "config": dict(config or {})}
    return [
        Written(None if one.get("bytes") is None else base64.b64decode(one["bytes"]), one.get("error"))
        for one in _run(asked)
    ]


def java_texts(numbers: Sequence[float], *, doubles: bool) -> list[str]:
    bits = [_bits(number, doubles=doubles) for number in numbers]
    return _run({"bits": bits, "doubles": doubles})


def prints_fewest(numbers: Sequence[float], *, doubles: bool) -> list[float]:
    """Those of which this Java prints the fewest digits, as JDK 19 and later do for all; layout does not matter here."""
    import numpy as np

    def digits(text: str) -> str:
        return text.lower().lstrip("-").partition("e")[0].replace(".", "").strip("0")

    shortest = [repr(number) if doubles else str(np.float32(number)) for number in numbers]
    printed = java_texts(numbers, doubles=doubles)
    alike = [
        number for number, ours, java in zip(numbers, shortest, printed, strict=True) if digits(ours) == digits(java)
    ]
    assert len(alike) > len(numbers) * 0.5
    return alike


def _typed(value: Any, schema: Schema) -> object:
    if value is None:
        return None
    if schema.name == DECIMAL:
        return str(value)
    if schema.name in (DATE, TIME, TIMESTAMP):
        return value
    if schema.is_struct:
        return [_typed(one, inner) for one, (_, inner) in zip(value, schema.fields, strict=True)]
    if schema.keys is not None and schema.items is not None:
        return [[_typed(key, schema.keys), _typed(one, schema.items)] for key, one in value]
    if schema.items is not None:
        return [_typed(one, schema.items) for one in value]
    if schema.type in ("float", "double"):
        return _bits(value, doubles=schema.type == "double")
    return base64.b64encode(value).decode() if schema.type == "bytes" else value


def _bare(value: object) -> object:
    match value:
        case None:
            return None
        case bool():
            return {"boolean": value}
        case int():
            return {"long": value}
        case float():
            return {"double": _bits(value, doubles=True)}
        case str():
            return {"string": value}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case list():
            return {"list": [_bare(one) for one in value]}
        case dict():
            return {"map": [[_bare(key), _bare(one)] for key, one in value.items()]}
        case _:
            raise TypeError(value)


def _bits(number: float, *, doubles: bool) -> int:
    form, whole = (">d", ">q") if doubles else (">f", ">i")
    return int(struct.unpack(whole, struct.pack(form, number))[0])


def _run(asked: Mapping[str, object]) -> list[Any]:
    found: list[Any] = json.loads(run_java("Converters", SOURCE, given=json.dumps(asked).encode()))
    return found
