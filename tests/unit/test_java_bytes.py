"""Bytes that must be Java's: murmur2, JSON as Jackson writes it, the standalone offset file.

The oracle is Java itself, on the very classes Connect uses, in one run for all cases.
"""

import base64
import json
import random
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.connect.javafile import CorruptFile, FileEntry, decode_file, encode_file
from playhead.connect.javajson import encode_map, encode_string, java_double
from playhead.kafka.murmur2 import murmur2, partition_of
from playhead.model.position import Scalar
from playhead.pipeline.jars import fetch_jars, java

ORACLE = """
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.util.*;
import org.apache.kafka.common.utils.Utils;

public class Oracle {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Map<?, ?> asked = json.readValue(System.in, Map.class);
        Map<String, Object> answers = new LinkedHashMap<>();
        List<Object> list = new ArrayList<>();
        for (Object text : (List<?>) asked.get("strings")) list.add(b64(json.writeValueAsBytes(text)));
        answers.put("strings", list);
        list = new ArrayList<>();
        for (Object bytes : (List<?>) asked.get("keys")) list.add(Utils.murmur2(Base64.getDecoder().decode((String) bytes)));
        answers.put("murmur2", list);
        list = new ArrayList<>();
        for (Object number : (List<?>) asked.get("doubles")) list.add(Double.toString(Double.parseDouble((String) number)));
        answers.put("doubles", list);
        list = new ArrayList<>();
        for (Object file : (List<?>) asked.get("files")) {
            ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(Base64.getDecoder().decode((String) file)));
            List<Object> entries = new ArrayList<>();
            for (Map.Entry<?, ?> e : ((HashMap<?, ?>) in.readObject()).entrySet())
                entries.add(Arrays.asList(b64((byte[]) e.getKey()), e.getValue() == null ? null : b64((byte[]) e.getValue())));
            list.add(entries);
        }
        answers.put("files", list);
        list = new ArrayList<>();
        for (Object entries : (List<?>) asked.get("entries")) {
            HashMap<byte[], byte[]> map = new HashMap<>();
            for (Object e : (List<?>) entries) {
                Object value = ((List<?>) e).get(1);
                byte[] key = Base64.getDecoder().decode((String) ((List<?>) e).get(0));
                map.put(key, value == null ? null : Base64.getDecoder().decode((String) value));
            }
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            try (ObjectOutputStream stream = new ObjectOutputStream(out)) { stream.writeObject(map); }
            list.add(b64(out.toByteArray()));
        }
        answers.put("entries", list);
        System.out.println(json.writeValueAsString(answers));
    }

    static String b64(byte[] bytes) { return Base64.getEncoder().encodeToString(bytes); }
}
"""
STRINGS = [
    "",
    "plain",
    'q"\\/',
    "\x00\x01\x1b\x1f\x7f",
    "\b\t\n\f\r",
    "é\u2028\u2029",
    "😀 x 𝄞",
    "täble.Ünï",
    "\ufeff\uffff",
]
KEYS = [
    b"",
    b"a",
    b"ab",
    b"abc",
    b"21",
    b"foobar",
    b'["mysqltest0216",{"server":"mysqltest021601"}]',
    bytes(range(256)),
]
DOUBLES = [
    0.0,
    -0.0,
    1.0,
    -2.5,
    0.1,
    1e10,
    1.5e-7,
    0.001,
    0.00099,
    9999999.0,
    1e7,
    123.456,
    1.7976931348623157e308,
    12345678.9,
]


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def some_entries(count: int, seed: int) -> list[FileEntry]:
    chance = random.Random(seed)
    return [
        FileEntry(
            b'["c%d",{"t":"%d"}]' % (n, chance.randrange(10**9)), chance.choice([None, b"{}", b'{"position":%d}' % n])
        )
        for n in range(count)
    ]


FILES = [some_entries(count, seed=count) for count in (0, 1, 2, 12, 13, 40, 500)]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    chance = random.Random(7)
    strings = STRINGS + [
        "".join(
            chr(chance.choice([chance.randrange(0x20), chance.randrange(0x800), chance.randrange(0xE000, 0x11000)]))
            for _ in range(9)
        )
        for _ in range(300)
    ]
    keys = KEYS + [chance.randbytes(chance.randrange(200)) for _ in range(300)]
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "Oracle.java").write_text(ORACLE)
    asked = {
        "strings": strings,
        "keys": [text(key) for key in keys],
        "doubles": [repr(number) for number in DOUBLES],
        "files": [text(encode_file(entries)) for entries in FILES],
        "entries": [[[text(e.key), text(e.value)] for e in entries] for entries in FILES],
    }
    class_path = ":".join(str(jar) for jar in fetch_jars("kafka"))
    command = [java(), "-cp", class_path, str(folder / "Oracle.java")]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return {"asked": {"strings": strings, "keys": keys}, **json.loads(done.stdout)}


def test_strings_are_escaped_as_jackson_does(oracle):
    ours = [encode_string(string).encode() for string in oracle["asked"]["strings"]]
    assert ours == [base64.b64decode(encoded) for encoded in oracle["strings"]]


def test_murmur2_is_kafkas(oracle):
    assert [murmur2(key) for key in oracle["asked"]["keys"]] == oracle["murmur2"]
    assert partition_of(b'["mysqltest0216",{"server":"mysqltest021601"}]', 25) == 6  # seen in a real topic


def test_doubles_are_printed_as_java_prints_them(oracle):
    assert [java_double(number) for number in DOUBLES] == oracle["doubles"]


def test_a_map_is_compact_and_keeps_or_takes_an_order():
    fields: dict[str, Scalar] = {"table": "é", "protocol": "1", "n": 5, "x": None, "f": 1e10, "b": True}
    assert encode_map(fields) == '{"table":"é","protocol":"1","n":5,"x":null,"f":1.0E10,"b":true}'
    assert encode_map({"table": "t", "protocol": "1"}, ["protocol", "table"]) == '{"protocol":"1","table":"t"}'


def test_java_reads_the_files_we_write(oracle):
    for entries, read in zip(FILES, oracle["files"], strict=True):
        assert sorted((text(e.key), text(e.value) or "") for e in entries) == sorted((k, v or "") for k, v in read)


def test_we_read_the_files_java_writes_and_write_the_same_bytes_back(oracle):
    for entries, encoded in zip(FILES, oracle["entries"], strict=True):
        data = base64.b64decode(encoded)
        read = decode_file(data)
        assert sorted(read, key=lambda e: e.key) == sorted(entries, key=lambda e: e.key)
        assert encode_file(read) == data


def test_every_truncation_is_corrupt_and_never_empty():
    data = encode_file(some_entries(14, seed=3))
    for length in range(len(data)):
        with pytest.raises(CorruptFile) as caught:
            decode_file(data[:length])
        assert caught.value.at <= length


def test_a_zero_filled_tail_is_corrupt():
    data = encode_file(some_entries(14, seed=4))
    for length in range(0, len(data), 7):
        with pytest.raises(CorruptFile):
            decode_file(data[:length] + bytes(len(data) - length))


def test_a_foreign_class_is_refused_by_its_name():
    data = encode_file(some_entries(2, seed=5))
    with pytest.raises(CorruptFile, match=r"'java\.util\.HashSet' does not belong"):
        decode_file(data.replace(b"java.util.HashMap", b"java.util.HashSet"))
    with pytest.raises(CorruptFile, match="'evil' does not belong"):
        decode_file(data[:6] + b"\x00\x04evil" + data[6:])


def test_bytes_after_the_end_are_corrupt():
    data = encode_file(some_entries(2, seed=6))
    with pytest.raises(CorruptFile, match="3 bytes follow the end"):
        decode_file(data + b"abc")


def test_a_back_reference_to_an_array_is_followed():
    data = bytearray(encode_file([FileEntry(b"k", b"v"), FileEntry(b"l", b"v")]))
    last = bytes(data).rindex(b"\x75\x71")  # the second entry's value: a new array of the same content
    data[last:-1] = b"\x71" + (0x7E0000 + 4).to_bytes(4, "big")  # handles: map class, map, byte[] class, k, v
    assert decode_file(bytes(data)) == [FileEntry(b"k", b"v"), FileEntry(b"l", b"v")]


@given(st.lists(st.tuples(st.binary(max_size=30), st.none() | st.binary(max_size=30)), max_size=20))
def test_what_is_written_reads_back(pairs):
    entries = [FileEntry(key, value) for key, value in pairs]
    assert decode_file(encode_file(entries)) == entries


@given(st.binary(max_size=300))
def test_no_input_makes_the_reader_fail_otherwise(data):
    with pytest.raises(CorruptFile):
        decode_file(data)


@given(st.data())
def test_a_damaged_file_is_read_or_corrupt_but_nothing_else(data):
    content = bytearray(encode_file(some_entries(5, seed=9)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_file(bytes(content))
    except CorruptFile as error:
        assert 0 <= error.at <= len(content)
