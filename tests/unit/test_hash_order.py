"""The order of a Java HashMap decides the bytes of a key with several fields. The oracle is Java's own HashMap."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from playhead.connect.dialects import DIALECTS
from playhead.connect.javajson import hash_map_order
from playhead.pipeline.jars import java, java_version
from playhead.pipeline.records.javamaps import copied_map, copy_capacity, hash_map, map_pairs, sized_map
from playhead.pipeline.records.schema import Schema

ORACLE = """
import java.nio.charset.StandardCharsets;
import java.util.*;

public class Order {
    // A line is a list of names, each as hexadecimal UTF-16, with blanks between; the answer has the same form.
    // Before them is how the map is made: the capacity that it is given, -1 for none, -2 for a copy.
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in, StandardCharsets.US_ASCII);
        while (in.hasNextLine()) {
            int capacity = in.nextInt();
            Map<String, Integer> map = capacity < 0 ? new HashMap<>() : new HashMap<>(capacity);
            if (capacity == -2) map = new LinkedHashMap<>();
            for (String hex : in.nextLine().substring(1).split(" ")) map.put(text(hex), 0);
            if (capacity == -2) map = new HashMap<>(map);
            StringJoiner joined = new StringJoiner(" ");
            for (String name : map.keySet()) joined.add(hex(name));
            System.out.println(joined);
        }
    }

    static String text(String hex) {
        StringBuilder text = new StringBuilder();
        for (int i = 1; i < hex.length(); i += 4) text.append((char) Integer.parseInt(hex.substring(i, i + 4), 16));
        return text.toString();
    }

    static String hex(String text) {
        StringBuilder hex = new StringBuilder("x");
        for (char unit : text.toCharArray()) hex.append(String.format("%04x", (int) unit));
        return hex.toString();
    }
}
"""
REAL = [
    ["protocol", "table"],
    ["cluster", "partition", "topic"],
    ["topic", "partition", "group"],
    ["sourceClusterAlias", "targetClusterAlias"],
    ["server", "database"],
    ["rs", "server_id"],
    ["task_key", "server"],
    ["Container", "DatabaseName"],
    ["bucket", "partition", "connector"],
    ["kafka_topic", "kafka_partition"],
    ["cloudant.url", "cloudant.db"],
]
SAME_BUCKET = ["AaAa", "BBBB", "AaBB", "BBAa"]  # one hash code for all four


def some_names() -> list[list[str]]:
    chance = random.Random(11)
    alphabets = ["abcdefgh_.", "éü日本", "😀𝄞x", "AaB"]
    cases = [list(case) for case in REAL]
    cases += [list(reversed(case)) for case in REAL]
    cases += [SAME_BUCKET, SAME_BUCKET[::-1], [""], ["x" * 5000, "y"]]
    for size in [1, 2, 3, 5, 8, 11, 12, 13, 14, 24, 25, 26, 49, 60]:
        for _ in range(12):
            alphabet = chance.choice(alphabets)
            cases.append(["".join(chance.choices(alphabet, k=chance.randrange(1, 14))) + str(n) for n in range(size)])
    return cases


def as_hex(name: str) -> str:
    return "x" + name.encode("utf-16-be").hex()


@pytest.fixture(scope="module")
def java_orders(tmp_path_factory) -> list[tuple[list[str], list[str]]]:
    source = tmp_path_factory.mktemp("order") / "Order.java"
    source.write_text(ORACLE)
    cases = some_names()
    return list(zip(cases, ask_java(source, [(DEFAULT, case) for case in cases]), strict=True))


DEFAULT, COPY = -1, -2


def ask_java(source: Path, cases: list[tuple[int, list[str]]]) -> list[list[str]]:
    asked = "".join(f"{capacity} " + " ".join(map(as_hex, case)) + "\n" for capacity, case in cases)
    done = subprocess.run([java(), str(source)], input=asked, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    answers = [line.split(" ") for line in done.stdout.splitlines()]
    return [[bytes.fromhex(part[1:]).decode("utf-16-be") for part in answer] for answer in answers]


def test_names_come_in_the_order_of_javas_hash_map(java_orders):
    assert [hash_map_order(case) for case, _ in java_orders] == [answer for _, answer in java_orders]


def colliding(count: int) -> list[str]:
    """Of one hash code; each has the letters of one that came before."""
    return ["".join(("Aa", "BB")[number >> bit & 1] for bit in range(6)) for number in range(count)]


def test_maps_made_with_a_size_and_copies_have_their_own_order(tmp_path):
    (source := tmp_path / "Order.java").write_text(ORACLE)
    chance = random.Random(12)
    asked = [
        (chance.choice([DEFAULT, COPY, 0, 1, 2, 3, 5, len(one), 40]), one) for one in some_names() for _ in range(3)
    ]
    full = [colliding(count) for count in (8, 9, 10)]  # a small table is doubled for the ninth in a bucket
    full += [[*colliding(9), *(f"n{number}" for number in range(count))] for count in (3, 4, 20)]
    full += [[*(f"n{number}" for number in range(count)), *colliding(9)] for count in (3, 4, 5, 16)]
    asked += [(capacity, one) for one in full for capacity in (DEFAULT, 0, 1, 3, 9)]
    for (capacity, case), answer in zip(asked, ask_java(source, asked), strict=True):
        members = dict.fromkeys(case)
        if capacity == COPY:
            is_doubled = java_feature() < 19 and copy_capacity(len(members)) * 3 // 4 == len(members)
            made = hash_map(members, copy_capacity(len(members)) * (2 if is_doubled else 1))
            assert is_doubled or list(copied_map(members)) == list(made)
        else:
            made = hash_map(members) if capacity == DEFAULT else sized_map(members, capacity)
        assert list(made) == answer, (capacity, case)


def java_feature() -> int:
    version = java_version()
    assert version is not None
    return int(version.split(".")[0])


@pytest.mark.parametrize(
    ("kind", "keys", "expected"),
    [
        ("int32", [17, 1, -1, 65536, 0], [-1, 0, 17, 1, 65536]),
        ("int64", [1 << 32, -1, 5, 1, 5], [-1, 1 << 32, 1, 5]),
        ("boolean", [True, False], [False, True]),
        ("string", ["table", "protocol"], ["protocol", "table"]),
        ("double", [2.0, 1.0], [2.0, 1.0]),
    ],
)
def test_a_map_under_a_schema_is_in_the_order_of_its_keys(kind, keys, expected):
    made = map_pairs([(key, at) for at, key in enumerate(keys)], Schema(kind))
    assert made == [(key, len(keys) - 1 - keys[::-1].index(key)) for key in expected]


def test_the_order_of_names_in_one_bucket_is_that_of_insertion():
    assert hash_map_order(SAME_BUCKET) == SAME_BUCKET
    assert hash_map_order(SAME_BUCKET[::-1]) == SAME_BUCKET[::-1]


def test_a_name_given_twice_is_one_key():
    assert hash_map_order(["table", "protocol", "table"]) == ["protocol", "table"]


def test_the_dialects_of_connectors_with_a_hash_map_write_keys_in_its_order(java_orders):
    java_order = {frozenset(case): answer for case, answer in java_orders if len(case) > 1}
    compared = 0
    for dialect in DIALECTS:
        for shape in dialect.shapes:
            names = [field.name for field in shape]
            if len(names) > 1 and "kafka_topic" not in names:  # a sink's position is no key of the offsets topic
                assert dialect.field_order(sorted(names)) == tuple(java_order[frozenset(names)]), json.dumps(names)
                compared += 1
    assert compared >= 7
