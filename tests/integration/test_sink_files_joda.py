"""Folders of time-based partitioners against Joda itself, which Spark brings along: the library the connector uses."""

import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyspark
import pytest

from playhead.pipeline.deliver.files.joda import open_zone, parse_pattern

PATTERNS = [
    "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
    "yyyy-MM-dd'T'HH:mm:ss.SSS",
    "y M d H m s S SS SSS SSSS",
    "YY yy xx x xxxx ww w e C CC D DDD",
    "K KK h hh k kk a MMM MMMM E EEE EEEE",
    "Z ZZ ZZZ",
    "'it''s' ''HH'' {x} yyyyy/",
]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Africa/Casablanca", "Asia/Beirut"]
ZONES += ["Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns", "Asia/Kathmandu", "+05:30", "-0330", "Etc/GMT+5"]
DURATIONS = [1, 60_000, 900_000, 3_600_000, 7_200_000, 21_600_000, 86_400_000, 604_800_000]
PROGRAM = """
import java.io.*; import java.util.*; import org.joda.time.*; import org.joda.time.format.*;
public class Folders {
  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = in.readLine()) != null; ) {
      String[] asked = line.split("\\t");
      DateTimeZone zone = DateTimeZone.forID(asked[0]);
      long length = Long.parseLong(asked[1]);
      long local = zone.convertUTCToLocal(Long.parseLong(asked[2]));
      long start = zone.convertLocalToUTC((local / length) * length, false);
      DateTimeFormatter f = DateTimeFormat.forPattern(asked[3]).withZone(zone).withLocale(new Locale("en"));
      System.out.println(new DateTime(start).toString(f));
    }
  }
}
"""


def _joda() -> Path:
    return next((Path(pyspark.__file__).parent / "jars").glob("joda-time-*.jar"))


def _instants(rng: random.Random) -> list[int]:
    """All over the past years (rules of the future differ by the zone data), and close to where clocks change."""
    anywhere = [rng.randrange(0, 1_750_000_000_000) for _ in range(60)] + [
        rng.randrange(-(10**12), 0) for _ in range(8)
    ]
    changes = [1711846800000, 1729994400000, 1710054000000, 1730613600000, 1541300400000, 1679781600000, 1325239200000]
    return anywhere + [change + rng.randrange(-10_800_000, 10_800_000) for change in changes for _ in range(12)]


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is the oracle")
def test_a_folder_of_a_time_is_the_one_that_joda_makes(tmp_path):
    rng = random.Random(7)
    asked = [
        (zone, duration, instant, PATTERNS[rng.randrange(len(PATTERNS))])
        for zone in ZONES
        for duration in DURATIONS
        for instant in _instants(rng)
    ]
    source = tmp_path / "Folders.java"
    source.write_text(PROGRAM)
    lines = "".join("\t".join(map(str, one)) + "\n" for one in asked)
    said = subprocess.run(
        ["java", "-Duser.timezone=UTC", "-cp", str(_joda()), str(source)],
        input=lines, capture_output=True, text=True, check=True, timeout=120,
    ).stdout.split("\n")[:-1]  # fmt: skip
    zones = {name: open_zone(name) for name in ZONES}
    patterns = {text: parse_pattern(text, "en") for text in PATTERNS}
    different = []
    for (zone, duration, instant, pattern), expected in zip(asked, said, strict=True):
        start = zones[zone].period_starts(np.array([instant]), duration)[0]
        made = patterns[pattern].format(zones[zone].moment(int(start)))
        if made != expected:
            different.append((zone, duration, instant, pattern, made, expected))
    assert not different, f"{len(different)} of {len(asked)}: {different[:10]}"
