"""Kafka as the oracle of transforms: its own classes and converters in a Java program, on rows as the JDBC source makes them."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from integration.java_oracle import CHAIN, run_java

SOURCE = r"""
import java.math.*; import java.util.*; import com.fasterxml.jackson.databind.*; import com.fasterxml.jackson.databind.node.*;
import org.apache.kafka.common.utils.Utils; import org.apache.kafka.connect.data.*; import org.apache.kafka.connect.json.*;
import org.apache.kafka.connect.source.SourceRecord; import org.apache.kafka.connect.storage.*;

public class Transforms {
  static final ObjectMapper MAPPER = new ObjectMapper();
  static Schema decimal() {
    return Decimal.builder(2).parameter("connect.decimal.precision", "12").optional().build();
  }
  static final Schema ROW = SchemaBuilder.struct().name("t").field("id", Schema.INT32_SCHEMA)
    .field("i1", Schema.OPTIONAL_INT8_SCHEMA).field("i2", Schema.OPTIONAL_INT16_SCHEMA)
    .field("i4", Schema.OPTIONAL_INT32_SCHEMA).field("i8", Schema.OPTIONAL_INT64_SCHEMA)
    .field("f", Schema.OPTIONAL_FLOAT32_SCHEMA).field("d", Schema.OPTIONAL_FLOAT64_SCHEMA)
    .field("bo", Schema.OPTIONAL_BOOLEAN_SCHEMA).field("s", Schema.OPTIONAL_STRING_SCHEMA)
    .field("w", Schema.OPTIONAL_STRING_SCHEMA).field("n", decimal()).field("y", Schema.OPTIONAL_BYTES_SCHEMA)
    .field("dt", org.apache.kafka.connect.data.Date.builder().optional().build())
    .field("ts", org.apache.kafka.connect.data.Timestamp.builder().optional().build())
    .field("tm", org.apache.kafka.connect.data.Time.builder().optional().build()).build();

  static Object value(String name, JsonNode given) {
    if (given.isNull()) return null;
    switch (name) {
      case "i1": return (byte) given.asInt();
      case "i2": return (short) given.asInt();
      case "id": case "i4": return given.asInt();
      case "i8": return given.asLong();
      case "f": return Float.intBitsToFloat(given.asInt());
      case "d": return Double.longBitsToDouble(given.asLong());
      case "bo": return given.asBoolean();
      case "n": return new BigDecimal(given.asText());
      case "y": return Base64.getDecoder().decode(given.asText());
      case "dt": return new java.sql.Date(given.asLong() * 86400000L);
      case "tm": return new java.sql.Time(given.asLong());
      case "ts":
        java.sql.Timestamp time = new java.sql.Timestamp(Math.floorDiv(given.asLong(), 1000000L) * 1000L);
        time.setNanos((int) Math.floorMod(given.asLong(), 1000000L) * 1000);
        return time;
      default: return given.asText();
    }
  }

  static Converter converter(Map<String, String> config, String option, boolean isKey) throws Exception {
    Converter made = (Converter) Class.forName(config.get(option)).getDeclaredConstructor().newInstance();
    made.configure(Chain.below(config, option + "."), isKey);
    return made;
  }

  @SuppressWarnings("unchecked")
  static ObjectNode run(JsonNode rows, Map<String, String> config, boolean isLine) throws Exception {
    ObjectNode out = MAPPER.createObjectNode();
    try {
      Chain<SourceRecord> chain = new Chain<>(config);
      Converter keys = converter(config, "key.converter", true), values = converter(config, "value.converter", false);
      ArrayNode pairs = out.putArray("records");
      for (JsonNode row : rows) {
        SourceRecord record;
        if (isLine) {
          record = new SourceRecord(null, null, "shop_t", null, null, null, Schema.STRING_SCHEMA, row.get("s").asText());
        } else {
          Struct struct = new Struct(ROW);
          for (Field field : ROW.fields()) struct.put(field, value(field.name(), row.get(field.name())));
          record = new SourceRecord(null, null, "shop_t", ROW, struct);
        }
        record = chain.apply(record);
        byte[] key = keys.fromConnectData(record.topic(), record.keySchema(), record.key());
        byte[] value = values.fromConnectData(record.topic(), record.valueSchema(), record.value());
        ArrayNode pair = pairs.addArray();
        pair.add(record.topic());
        pair.add(key); pair.add(value);
      }
    } catch (RuntimeException error) {
      out.removeAll();
      out.put("error", String.valueOf(error));
    }
    return out;
  }

  public static void main(String[] args) throws Exception {
    TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
    JsonNode in = MAPPER.readTree(System.in);
    ArrayNode out = MAPPER.createArrayNode();
    if (in.has("keys")) {
      for (JsonNode key : in.get("keys"))
        out.add(Utils.toPositive(Utils.murmur2(Base64.getDecoder().decode(key.asText()))) % in.get("partitions").asInt());
    } else {
      for (JsonNode chain : in.get("chains"))
        out.add(run(in.get("rows"), MAPPER.convertValue(chain, Map.class), in.get("lines").asBoolean()));
    }
    System.out.write(MAPPER.writeValueAsBytes(out));
    System.out.flush();
  }
}
"""


@dataclass(frozen=True)
class Outcome:
    """What Kafka made of a chain: the records as (topic, key, value), or how it failed."""

    records: list[tuple[str, bytes | None, bytes | None]]
    error: str | None = None


def transformed(
    rows: Sequence[Mapping[str, object]], chains: Sequence[Mapping[str, str]], *, lines: bool = False
) -> list[Outcome]:
    """`lines`: only `s` of each row, as a record of FileStreamSource."""
    outcomes = []
    for answer in _run({"rows": rows, "chains": chains, "lines": lines}):
        records = [(topic, _bytes(key), _bytes(value)) for topic, key, value in answer.get("records", [])]
        outcomes.append(Outcome(records, answer.get("error")))
    return outcomes


def partitions_chosen(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Where Kafka's own producer puts these keys."""
    return _run({"keys": [base64.b64encode(key).decode() for key in keys], "partitions": partitions})


def _bytes(encoded: str | None) -> bytes | None:
    return None if encoded is None else base64.b64decode(encoded)


def _run(asked: Mapping[str, object]) -> list[Any]:
    found: list[Any] = json.loads(run_java("Transforms", SOURCE + CHAIN, given=json.dumps(asked).encode()))
    return found
