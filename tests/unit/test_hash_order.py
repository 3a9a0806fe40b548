"""The order of a Java HashMap decides the bytes of a key with several fields. The oracle is Java's own HashMap."""

import json
import random
import subprocess

import pytest

from playhead.connect.dialects import DIALECTS
from playhead.connect.javajson import hash_map_order
from playhead.pipeline.jars import java

ORACLE = """
import java.nio.charset.StandardCharsets;
import java.util.*;

public class Order {
    // A line is a list of names, each as hexadecimal UTF-16, with blanks between; the answer has the same form.
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in, StandardCharsets.US_ASCII);
        while (in.hasNextLine()) {
            Map<String, Integer> map = new HashMap<>();
            for (String hex : in.nextLine().split(" ")) map.put(text(hex), 0);
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
    asked = "".join(" ".join(map(as_hex, case)) + "\n" for case in cases)
    done = subprocess.run([java(), str(source)], input=asked, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    answers = [line.split(" ") for line in done.stdout.splitlines()]
    return [
        (case, [bytes.fromhex(part[1:]).decode("utf-16-be") for part in answer])
        for case, answer in zip(cases, answers, strict=True)
    ]


def test_names_come_in_the_order_of_javas_hash_map(java_orders):
    assert [hash_map_order(case) for case, _ in java_orders] == [answer for _, answer in java_orders]


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
