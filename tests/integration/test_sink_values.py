"""What Connect's own JsonConverter writes: the lines are what it writes without schemas, the columns what it reads back."""

import base64
import json
import os
import shutil
import struct
import subprocess
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")  # brings what fetches the jars
import pyarrow as pa

from playhead.pipeline.jars import fetch_jars
from playhead.pipeline.records.decode.columns import Columns
from playhead.pipeline.records.decode.lines import JsonLines
from playhead.pipeline.records.decode.options import Converter

ROWS = 3000
SOURCE = """
import java.io.*; import java.math.*; import java.nio.charset.*; import java.nio.file.*; import java.util.*;
import org.apache.kafka.connect.data.*; import org.apache.kafka.connect.json.*; import org.apache.kafka.connect.errors.*;

public class SinkOracle {
  static Random random = new Random(7);
  static Schema inner = SchemaBuilder.struct().name("inner").field("x", Schema.INT32_SCHEMA)
    .field("y", Schema.OPTIONAL_STRING_SCHEMA).optional().build();
  static Schema decimal(int scale, String precision) {
    return Decimal.builder(scale).parameter("connect.decimal.precision", precision).optional().build();
  }
  static Schema schema = SchemaBuilder.struct().name("row").field("i8", Schema.INT8_SCHEMA).field("i64", Schema.INT64_SCHEMA)
    .field("f", Schema.FLOAT32_SCHEMA).field("d", Schema.OPTIONAL_FLOAT64_SCHEMA).field("b", Schema.BOOLEAN_SCHEMA)
    .field("s", Schema.OPTIONAL_STRING_SCHEMA).field("by", Schema.OPTIONAL_BYTES_SCHEMA)
    .field("n", decimal(2, "20")).field("wide", decimal(10, "60")).field("free", decimal(127, "0"))
    .field("day", org.apache.kafka.connect.data.Date.SCHEMA).field("t", Time.SCHEMA).field("ts", Timestamp.SCHEMA)
    .field("list", SchemaBuilder.array(Schema.OPTIONAL_INT32_SCHEMA).optional().build()).field("in", inner)
    .field("def", SchemaBuilder.int16().optional().defaultValue((short) 7).build()).build();
  static Schema maps = SchemaBuilder.struct().field("m", SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.INT64_SCHEMA).build())
    .field("p", SchemaBuilder.map(Schema.INT32_SCHEMA, Schema.OPTIONAL_STRING_SCHEMA).build()).build();

  static String text() {
    int length = random.nextInt(6);
    StringBuilder made = new StringBuilder();
    for (int i = 0; i < length; i++) {
      int c = random.nextInt(4) == 0 ? random.nextInt(0x110000) : random.nextInt(0x100);
      made.appendCodePoint(c >= 0xD800 && c < 0xE000 ? '?' : c);
    }
    return made.toString();
  }
  static byte[] bytes() { byte[] made = new byte[random.nextInt(8)]; random.nextBytes(made); return made; }
  static <T> T maybe(T value) { return random.nextInt(5) == 0 ? null : value; }
  static BigDecimal number(int bits, int scale) {
    BigInteger made = new BigInteger(random.nextInt(bits), random);
    return new BigDecimal(random.nextBoolean() ? made : made.negate(), scale);
  }
  static float single() { float f; do f = Float.intBitsToFloat(random.nextInt()); while (!Float.isFinite(f)); return f; }
  static double dual() { double d; do d = Double.longBitsToDouble(random.nextLong()); while (!Double.isFinite(d)); return d; }
  static long day() { return random.nextInt(800000) - 300000; }
  static String b64(byte[] b) { return Base64.getEncoder().encodeToString(b); }
  static String b64(String s) { return b64(s.getBytes(StandardCharsets.UTF_8)); }

  static Struct row() {
    Struct made = new Struct(schema).put("i8", (byte) random.nextInt()).put("i64", random.nextLong()).put("f", single())
      .put("d", maybe(dual())).put("b", random.nextBoolean()).put("s", maybe(text())).put("by", maybe(bytes()))
      .put("n", maybe(number(60, 2))).put("wide", maybe(number(190, 10))).put("free", maybe(number(60, 9).setScale(127)))
      .put("day", new java.util.Date(day() * 86400000L)).put("t", new java.util.Date(random.nextInt(86400000)))
      .put("ts", new java.util.Date(day() * 86400000L + random.nextInt(86400000)));
    if (random.nextInt(3) > 0) made.put("list", Arrays.asList(1, maybe(random.nextInt()), 3).subList(0, random.nextInt(4)));
    if (random.nextInt(3) > 0) made.put("in", new Struct(inner).put("x", random.nextInt()).put("y", maybe(text())));
    return random.nextBoolean() ? made : made.put("def", (short) random.nextInt());
  }
  static String asText(Object value) {
    if (value == null) return "null";
    if (value instanceof Float) return "f" + Float.floatToIntBits((Float) value);
    if (value instanceof Double) return "d" + Double.doubleToLongBits((Double) value);
    if (value instanceof String) return "s" + b64((String) value);
    if (value instanceof java.nio.ByteBuffer) return "y" + b64(((java.nio.ByteBuffer) value).array());
    if (value instanceof byte[]) return "y" + b64((byte[]) value);
    if (value instanceof BigDecimal) return "n" + ((BigDecimal) value).toPlainString();
    if (value instanceof java.util.Date) return "t" + ((java.util.Date) value).getTime();
    if (value instanceof Collection) {
      StringJoiner all = new StringJoiner(",", "[", "]");
      for (Object one : (Collection<?>) value) all.add(asText(one));
      return all.toString();
    }
    if (value instanceof Map) {
      TreeSet<String> all = new TreeSet<>();
      ((Map<?, ?>) value).forEach((k, v) -> all.add(asText(k) + "=" + asText(v)));
      return all.toString().replace(" ", "");
    }
    if (value instanceof Struct) {
      StringJoiner all = new StringJoiner(",", "{", "}");
      for (Field one : ((Struct) value).schema().fields()) all.add(asText(((Struct) value).get(one)));
      return all.toString();
    }
    return value.toString();
  }
  static JsonConverter converter(String schemas, String decimals) {
    JsonConverter made = new JsonConverter();
    made.configure(Map.of("schemas.enable", schemas, "decimal.format", decimals), false);
    return made;
  }
  static void again(PrintStream out, String file) throws Exception {
    JsonConverter full = converter("true", "BASE64"), bare = converter("false", "BASE64");
    for (byte[] value : Files.readAllLines(Path.of(file)).stream().map(Base64.getDecoder()::decode).toList()) {
      try {
        SchemaAndValue read = full.toConnectData("t", value);
        out.println(b64(bare.fromConnectData("t", read.schema(), read.value())));
      } catch (DataException error) {
        out.println("bad");
      }
    }
    out.flush();
  }
  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, false, "US-ASCII");
    if (args[0].equals("again")) { again(out, args[1]); return; }
    JsonConverter full = converter("true", args[1]), bare = converter("false", args[1]);
    for (int i = 0; i < Integer.parseInt(args[2]); i++) {
      Struct row;
      if (args[0].equals("row")) row = row();
      else {
        Map<String, Long> m = new HashMap<>(); Map<Integer, String> p = new HashMap<>();
        for (int j = random.nextInt(4); j > 0; j--) { m.put(text(), random.nextLong()); p.put(random.nextInt(), maybe(text())); }
        row = new Struct(maps).put("m", m).put("p", p);
      }
      byte[] value = full.fromConnectData("t", row.schema(), row);
      Struct back = (Struct) full.toConnectData("t", value).value();
      out.println(b64(value) + " " + b64(bare.fromConnectData("t", row.schema(), row)) + " " + asText(back));
    }
    out.flush();
  }
}
"""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def java_rows(folder: Path, kind: str, decimal_format: str) -> list[list[str]]:
    """(value with its schema in base64, value without in base64, what Connect reads back, in words)."""
    return [line.split(" ") for line in java_lines(folder, kind, decimal_format, str(ROWS))]


def java_lines(folder: Path, *arguments: str) -> list[str]:
    if not shutil.which("javac"):
        pytest.skip("the oracle is a Java source file: it needs a JDK")
    source = folder / "SinkOracle.java"
    source.write_text(SOURCE)
    classes = os.pathsep.join(map(str, fetch_jars("kafka")))
    command = ["java", "-cp", classes, str(source), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def as_text(value: object, kind: pa.DataType) -> str:
    """A value of a column, as the oracle prints it."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        assert isinstance(value, dict)
        return "{" + ",".join(as_text(value[field.name], field.type) for field in kind) + "}"
    if isinstance(value, list) and pa.types.is_map(kind):
        return (
            "[" + ",".join(sorted(f"{as_text(k, kind.key_type)}={as_text(v, kind.item_type)}" for k, v in value)) + "]"
        )
    if isinstance(value, list):
        return "[" + ",".join(as_text(item, kind.value_type) for item in value) + "]"
    if isinstance(value, float):
        form = (">f", ">i", "f") if pa.types.is_float32(kind) else (">d", ">q", "d")
        return f"{form[2]}{struct.unpack(form[1], struct.pack(form[0], value))[0]}"
    return _scalar_as_text(value)


def _scalar_as_text(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return "s" + base64.b64encode(value.encode()).decode()
        case bytes():
            return "y" + base64.b64encode(value).decode()
        case datetime():
            return f"t{(value - EPOCH) // timedelta(milliseconds=1)}"
        case date():
            return f"t{(value - EPOCH.date()).days * 86_400_000}"
        case time():
            at = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
            return f"t{at // timedelta(milliseconds=1)}"
        case int():
            return str(value)
        case _:
            return f"n{value:f}"


def row_as_text(row: dict[str, object], schema: pa.Schema) -> str:
    words = [as_text(row[field.name], field.type) for field in schema]
    return "{" + ",".join(words) + "}"


@pytest.mark.parametrize(("kind", "decimal_format"), [("row", "BASE64"), ("row", "NUMERIC"), ("maps", "BASE64")])
def test_what_connect_writes_is_read_as_connect_reads_it(tmp_path, kind, decimal_format):
    rows = java_rows(tmp_path, kind, decimal_format)
    assert len(rows) == ROWS
    with_schemas = pa.array([base64.b64decode(row[0]) for row in rows], pa.binary())
    without = [base64.b64decode(row[1]) for row in rows]
    batch = pa.record_batch([with_schemas], names=["value"])

    lines = JsonLines(Converter()).lines(batch)
    assert not lines.bad
    assert len(lines.segments) == 1
    assert lines.array.to_pylist() == without

    made = Columns(Converter()).convert(batch)
    assert not made.bad
    (part,) = made.parts
    bare = pa.record_batch([pa.array(without, pa.binary())], names=["value"])
    again = Columns(Converter(schemas_enable=False), part.schema).convert(bare)
    assert again.parts[0].columns.equals(part.columns)
    assert json.loads(part.schema.text) == json.loads(with_schemas[0].as_py())["schema"]
    for row, (_, _, expected) in zip(part.columns.to_pylist(), rows, strict=True):
        if kind == "row" and row["free"] is not None:  # text with the digits that count, in place of 127 of them
            words = row_as_text(row, part.columns.schema).split(",")
            java = expected.split(",")
            assert Decimal(row["free"]) == Decimal(java[9][1:])
            assert words[:9] + words[10:] == java[:9] + java[10:]
        else:
            assert row_as_text(row, part.columns.schema) == expected


INNER = {
    "type": "struct",
    "fields": [{"type": "int32", "field": "x"}, {"type": "string", "field": "y", "optional": True}],
}
FIELDS = [
    {"type": "int32", "field": "id"},
    {"type": "string", "field": "v", "optional": True},
    {"type": "string", "field": "def", "default": "dflt"},
    {"type": "int64", "field": "both", "optional": True, "default": 7},
    {**INNER, "field": "in", "optional": True},
    {"type": "array", "field": "many", "optional": True, "items": INNER},
    {"type": "map", "field": "named", "optional": True, "keys": {"type": "string"}, "values": INNER},
]
PAYLOADS = [
    *['{"id":1}', '{"def":"x","id":2,"v":"y"}', '{"id":3,"def":null,"both":null,"v":null}', '{"in":{"x":1},"id":4}'],
    *['{"id":5,"many":[{"x":1},{"y":"b","x":2}]}', '{"id":6,"named":{"k":{"x":9}}}', '{"id":7,"in":null,"many":[]}'],
    *['{"v":"no id"}', '{"id":null}', '{"id":8,"in":{}}', '{"id":9,"many":[{}]}', "[1]", "5"],
    *['{"id":10,"v":"x","def":"d","both":1,"in":{"x":1,"y":null},"many":null,"named":{}}'],
]


def test_a_payload_that_lacks_members_is_written_as_connect_writes_it(tmp_path):
    schema = json.dumps({"type": "struct", "fields": FIELDS})
    values = [f'{{"schema":{schema},"payload":{payload}}}'.encode() for payload in PAYLOADS]
    (tmp_path / "values").write_bytes(b"\n".join(map(base64.b64encode, values)))
    expected = java_lines(tmp_path, "again", str(tmp_path / "values"))
    found = JsonLines(Converter()).lines(pa.record_batch([pa.array(values, pa.binary())], names=["value"]))
    written = ["bad" if line is None else base64.b64encode(line).decode() for line in found.array.to_pylist()]
    assert written == expected
    assert expected.count("bad") == 6
