"""Java as the oracle of records: Connect's own JsonConverter and `java.util.Calendar`, asked through one small program."""

import base64
import struct
from collections.abc import Sequence

from integration.java_oracle import run_java

SOURCE = """
import java.io.*; import java.math.*; import java.nio.charset.*; import java.util.*;
import org.apache.kafka.connect.data.*; import org.apache.kafka.connect.json.*;

public class Oracle {
  static Schema decimal(int scale) { return Decimal.builder(scale).optional().build(); }
  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "US-ASCII"));
    PrintStream out = new PrintStream(System.out, false, "US-ASCII");
    Base64.Encoder to = Base64.getEncoder();
    Schema schema = SchemaBuilder.struct().field("s", Schema.STRING_SCHEMA).field("d", Schema.FLOAT64_SCHEMA)
      .field("f", Schema.FLOAT32_SCHEMA).field("a", decimal(2)).field("b", decimal(10)).field("c", decimal(20))
      .field("u", decimal(127)).build();
    JsonConverter converter = new JsonConverter();
    converter.configure(Map.of("schemas.enable", "false", "decimal.format", args.length > 1 ? args[1] : "BASE64"), false);
    for (String line; (line = in.readLine()) != null; ) {
      String[] part = line.split(" ");
      if (args[0].startsWith("calendar")) {
        Calendar calendar = new GregorianCalendar(TimeZone.getTimeZone(part[0]));
        calendar.clear();
        calendar.set(Integer.parseInt(part[1]), Integer.parseInt(part[2]) - 1, Integer.parseInt(part[3]),
          Integer.parseInt(part[4]), Integer.parseInt(part[5]), Integer.parseInt(part[6]));
        java.text.SimpleDateFormat printer = new java.text.SimpleDateFormat("yyyy-MM-dd HH:mm:ss");
        printer.setTimeZone(TimeZone.getTimeZone("UTC"));
        out.println(args[0].equals("calendar-text") ? printer.format(calendar.getTime()) : "" + calendar.getTimeInMillis());
        continue;
      }
      Struct row = new Struct(schema).put("s", new String(Base64.getDecoder().decode(part[0]), StandardCharsets.UTF_8))
        .put("d", Double.longBitsToDouble(Long.parseLong(part[1])))
        .put("f", Float.intBitsToFloat(Integer.parseInt(part[2])))
        .put("a", new BigDecimal(part[3]).setScale(2)).put("b", new BigDecimal(part[4]).setScale(10))
        .put("c", new BigDecimal(part[5]).setScale(20)).put("u", new BigDecimal(part[6]).setScale(127));
      byte[] value = args[0].equals("text")
        ? row.toString().getBytes(StandardCharsets.UTF_8) : converter.fromConnectData("t", schema, row);
      out.println(to.encodeToString(value));
    }
    out.flush();
  }
}
"""

Row = tuple[str, float, float, str, str, str, str]


def connect_values(rows: Sequence[Row], decimal_format: str) -> list[bytes]:
    return [base64.b64decode(line) for line in _run(["json", decimal_format], _lines(rows))]


def connect_texts(rows: Sequence[Row]) -> list[bytes]:
    return [base64.b64decode(line) for line in _run(["text"], _lines(rows))]


def calendar_millis(walls: Sequence[tuple[str, str]]) -> list[int]:
    """Of (zone, `yyyy-mm-dd hh:mm:ss`)."""
    return [int(line) for line in _run(["calendar"], _walls(walls))]


def calendar_texts(walls: Sequence[tuple[str, str]]) -> list[str]:
    """What Java prints in UTC for wall times of zones."""
    return _run(["calendar-text"], _walls(walls))


def _walls(walls: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{zone} {wall.replace('-', ' ').replace(':', ' ')}" for zone, wall in walls]


def _lines(rows: Sequence[Row]) -> list[str]:
    return [
        f"{base64.b64encode(text.encode()).decode()} {_bits('>d', '>q', double)} {_bits('>f', '>i', single)} "
        + " ".join(decimals)
        for text, double, single, *decimals in rows
    ]


def _bits(form: str, whole: str, number: float) -> int:
    return int(struct.unpack(whole, struct.pack(form, number))[0])


def _run(arguments: Sequence[str], lines: Sequence[str]) -> list[str]:
    return run_java("Oracle", SOURCE, *arguments, given="\n".join(lines).encode()).decode().splitlines()
