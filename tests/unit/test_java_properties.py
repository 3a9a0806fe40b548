r"""The `.properties` syntax, with java.util.Properties itself as the judge."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.config import Property, parse_properties, read_properties
from playhead.errors import ConfigInvalid
from playhead.pipeline.jars import java

# Loads every file of a folder and prints `number key value ...` in hexadecimal UTF-16, or `number !` where Java refuses.
JAVA = """
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;

public class Load {
    static String hex(Object text) {
        StringBuilder out = new StringBuilder("x");
        for (char unit : ((String) text).toCharArray()) out.append(String.format("%04x", (int) unit));
        return out.toString();
    }

    public static void main(String[] args) throws Exception {
        for (int i = 0; i < Integer.parseInt(args[1]); i++) {
            StringBuilder line = new StringBuilder(i + "");
            Properties read = new Properties();
            try (InputStream in = new FileInputStream(new File(args[0], i + ".properties"))) {
                read.load(new InputStreamReader(in, StandardCharsets.ISO_8859_1));
                read.forEach((key, value) -> line.append(" " + hex(key) + " " + hex(value)));
            } catch (IllegalArgumentException malformed) {
                line.append(" !");
            }
            System.out.println(line);
        }
    }
}
"""
PIECES = [
    *["a", "b", "key", "0", "#", "!", "=", ":", " ", "\t", "\f", "\n", "\r", "\r\n", "\x00", "\x85", "\xe9", "\xff"],
    *["\\", "\\\\", "\\\n", "\\\r", "\\\r\n", "\\\n \t", "\\=", "\\:", "\\ ", "\\#", "\\n", "\\t", "\\r", "\\f", "\\z"],
    *["\\u0041", "\\u00e9", "\\uD83D\\uDE00", "\\ud83d", "\\ude00", "\\u00", "\\u", "\\uxyzw", "\n# ", "\na=", "\n\n"],
]
FILES = st.lists(st.sampled_from(PIECES), max_size=24).map(lambda pieces: "".join(pieces).encode("iso-8859-1"))
KNOWN_EDGES = [
    b"",
    b"\\",
    b"\\\n",
    b"\\\n\na=b",
    b"\\\n#c\na=b",
    b"  \\\n  a=b",
    b"a\\",
    b"a=b\\",
    b"a=b\\\n",
    b"a=b\\\\\\\n  c",
    b"a=b\\\n\n c=d",
    b"a=b\\\n#no comment",
    b"#comment\\\na=b",
    b"a\rb\r\nc\n\rd",
    b"=",
    b":",
    b" = = ",
    b"a b=c",
    b"a\\ b\\=c\\:d = e",
    b"\\#a=1\n\\!b=2",
    b"a=\\ud83d\\ude00 \\ud83d \\ude00\\ud83d",
    b"a=1\na=2",
    b"a=\\u004",
    b"a=\\u00zz",
    b"\\u003d=1",
    b"a=\xc3\xa9",
    b"a=b\x0c",
    b"\x0ca\x0cb",
]
Loaded = list[tuple[str, str]] | None


def java_loads(folder: Path, files: list[bytes]) -> list[Loaded]:
    """What java.util.Properties reads, in one start of the JVM. Java keeps half a surrogate pair; here it is U+FFFD."""
    (folder / "Load.java").write_text(JAVA)
    for number, data in enumerate(files):
        (folder / f"{number}.properties").write_bytes(data)
    done = subprocess.run(
        [java(), str(folder / "Load.java"), str(folder), str(len(files))], capture_output=True, text=True, check=True
    )
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    assert [int(line[0]) for line in lines] == list(range(len(files)))
    return [None if line[1:] == ["!"] else _pairs(line[1:]) for line in lines]


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    texts = [bytes.fromhex(word[1:]).decode("utf-16-be", "replace") for word in words]
    return list(zip(texts[::2], texts[1::2], strict=True))


def we_load(data: bytes) -> Loaded:
    try:
        return [(entry.key, entry.value) for entry in parse_properties(data, "x")]
    except ConfigInvalid:
        return None


def agree(data: bytes, theirs: Loaded) -> bool:
    ours = we_load(data)
    if ours is None or theirs is None:
        return ours is theirs
    if re.search(rb"(^|[\r\n])[ \t\f]*\\[\r\n]*$", data):
        # A lone backslash at the end is an empty property to Java, or none, by the kind of line end. To us it is none.
        ours, theirs = [pair for pair in ours if pair[0]], [pair for pair in theirs if pair[0]]
    # Two keys that differ only in half a surrogate pair are two to Java and one to us.
    unique = {key for key, count in Counter(key for key, _ in theirs).items() if count == 1}
    return {key for key, _ in ours} == {key for key, _ in theirs} and {
        (key, value) for key, value in ours if key in unique
    } == {(key, value) for key, value in theirs if key in unique}


def test_every_file_means_to_us_what_it_means_to_java(tmp_path):
    files = list(KNOWN_EDGES)

    @settings(max_examples=1500, database=None)
    @given(FILES)
    def collect(data: bytes) -> None:
        files.append(data)

    collect()
    theirs = java_loads(tmp_path, files)
    assert [(f, we_load(f), t) for f, t in zip(files, theirs, strict=True) if not agree(f, t)] == []
    assert sum(loaded is None for loaded in theirs) > 20  # both kinds were really met
    assert sum(bool(loaded) for loaded in theirs) > 500


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("=", {"": ""}),
        ("\\\n", {}),
        ("  # no\n ! no\na=1", {"a": "1"}),
        ("list=one,\\\n     two", {"list": "one,two"}),
        ("a=x\\\n# y", {"a": "x# y"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=x\\", {"a": "x"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("my\\ key\\=is\\:here=1", {"my key=is:here": "1"}),
        ("path=C:\\\\temp\\new", {"path": "C:\\temp\new"}),
        ("e=\\u00e9\\uD83D\\uDE00", {"e": "é😀"}),
        ("half=\\ud83d!", {"half": "\ufffd!"}),
    ],
)
def test_a_known_text_has_the_known_meaning(text, expected):
    assert {entry.key: entry.value for entry in parse_properties(text, "x")} == expected


def test_utf_8_in_a_file_is_read_as_kafka_reads_it(tmp_path):
    path = tmp_path / "worker.properties"
    path.write_bytes("name=é".encode())
    assert read_properties(path) == [Property("name", "Ã©", 1)]


def test_the_last_of_two_equal_keys_wins_and_has_its_own_line():
    assert parse_properties("a=1\nb=2\na=3", "x") == [Property("b", "2", 2), Property("a", "3", 3)]


def test_a_property_has_the_line_it_starts_on():
    read = parse_properties("# one\n\na=1,\\\n  2\n\nb=2\r\nc=3", "x")
    assert [(entry.key, entry.line) for entry in read] == [("a", 3), ("b", 6), ("c", 7)]


def test_all_malformed_escapes_are_reported_at_once_with_their_lines():
    with pytest.raises(ConfigInvalid) as caught:
        parse_properties("a=\\u12\nok=1\n\\uzzzz=2", "worker.properties")
    assert [(fault.where, fault.line) for fault in caught.value.faults] == [
        ("worker.properties", 1),
        ("worker.properties", 3),
    ]
    assert "four hexadecimal digits must follow '\\u'" in caught.value.what


def test_a_malformed_escape_in_a_password_does_not_show_the_password():
    with pytest.raises(ConfigInvalid) as caught:
        parse_properties("password=\\usecr3t", "x")
    assert "secr" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigInvalid, match=r"nowhere\.properties: No such file"):
        read_properties(tmp_path / "nowhere.properties")


def escaped(text: str) -> str:
    """As java.util.Properties.store writes: every character outside plain letters and digits as an escape."""
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    return "".join(chr(c) if c < 128 and chr(c).isalnum() else f"\\u{c:04x}" for c in codes)


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_what_is_written_with_escapes_is_read_back(wanted):
    text = "".join(f"{escaped(key)}={escaped(value)}\n" for key, value in wanted.items())
    assert {e.key: e.value for e in parse_properties(text.encode("iso-8859-1"), "x")} == wanted
