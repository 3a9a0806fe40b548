"""Positions as text: what is written reads back, and other tools read it.

Oracles: the parser inside kafka-consumer-groups for CSV, the JSON module of Python for the others.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import Invalid
from playhead.model import Map, Position, Positions
from playhead.offsets.formats.forms import FORMS, read_pairs_in_order, read_positions, write_positions
from playhead.pipeline.jars import fetch_jars, java
from unit.format_checks import PAIR, faults_of, read
from unit.strategies import MAPS, TEXT

NAMES = TEXT.filter(bool)
TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))
KAFKA_PARTITIONS = st.tuples(TOPICS, st.integers(0, 2**31 - 1))
KAFKA_OFFSETS = st.integers(0, 2**63 - 1)


def kafka_positions(owners: st.SearchStrategy[str]) -> st.SearchStrategy[Positions]:
    keys = st.tuples(owners, KAFKA_PARTITIONS)
    return st.dictionaries(keys, KAFKA_OFFSETS, min_size=1, max_size=6).map(
        lambda found: Positions(Position.of_kafka(owner, *place, at) for (owner, place), at in found.items())
    )


def any_positions(owners: st.SearchStrategy[str]) -> st.SearchStrategy[Positions]:
    keys = st.tuples(owners, MAPS)
    return st.dictionaries(keys, st.none() | MAPS, min_size=1, max_size=5).map(
        lambda found: Positions(Position(owner, place, at) for (owner, place), at in found.items())
    )


@given(any_positions(st.just("o")))
def test_connect_holds_any_positions_of_one_owner(positions):
    text = write_positions(positions, "connect")
    assert read(text, "connect") == positions
    assert read(text) == positions
    assert [each["partition"] for each in json.loads(text)["offsets"]] == [dict(p.partition) for p in positions]


@given(any_positions(NAMES))
def test_kip199_holds_any_positions_of_any_owners(positions):
    text = write_positions(positions, "kip199")
    assert read(text, "kip199", owner=None) == positions
    assert set(json.loads(text)) == set(positions.owners)


@given(any_positions(NAMES))
def test_kcat_lines_hold_any_positions_of_any_owners(positions):
    text = write_positions(positions, "kcat")
    assert read(text, "kcat", owner=None) == positions
    assert read(text, owner=None) == positions
    assert text.count("\n") == len(positions)


@pytest.mark.parametrize("form", ["connect", "kip199", "csv", "rpk", "yelp", "kcat", "spark"])
@given(positions=kafka_positions(st.just("o")))
def test_every_form_holds_kafka_offsets_of_one_owner(form, positions):
    text = write_positions(positions, form)
    assert read(text, form) == positions
    assert read(text) == positions, "the form is recognised"


@pytest.mark.parametrize("form", ["kip199", "csv", "kcat"])
@given(positions=kafka_positions(NAMES.filter(lambda name: "\n" not in name and "\r" not in name)))
def test_some_forms_hold_kafka_offsets_of_several_owners(form, positions):
    text = write_positions(positions, form)
    owner = positions.owners[0] if len(positions.owners) == 1 else None
    assert read(text, form, owner) == positions


@given(any_positions(NAMES))
def test_kip199_and_kcat_lines_turn_into_each_other(positions):
    lines = write_positions(positions, "kcat")
    there = write_positions(read(lines, owner=None), "kip199")
    assert write_positions(read(there, "kip199", None), "kcat") == lines


def test_the_forms_look_as_other_tools_have_them():
    kafka = Positions(
        [Position.of_kafka("g", "t", 10, 5), Position.of_kafka("g", "t", 9, 7), Position.of_kafka("g", "s", 0, 1)]
    )
    both = Positions([*kafka, Position.of_kafka("h, 1", "t", 0, 2)])
    source = Positions(
        [
            Position("c", Map({"protocol": "1", "table": "é😀"}), Map({"incrementing": 5, "f": 2.5})),
            Position("c", Map({"table": "t"}), None),
        ]
    )
    assert write_positions(kafka, "csv") == "s,0,1\nt,10,5\nt,9,7\n"
    assert write_positions(both, "csv").splitlines()[-1] == '"h, 1",t,0,2'
    assert write_positions(kafka, "rpk") == "s 0 1\nt 10 5\nt 9 7\n"
    assert write_positions(kafka, "spark") == '{"s":{"0":1},"t":{"9":7,"10":5}}\n'
    assert write_positions(kafka, "yelp") == '{"groupid":"g","offsets":{"s":{"0":1},"t":{"9":7,"10":5}}}\n'
    assert write_positions(source, "kcat") == (
        '["c",{"protocol":"1","table":"é\\uD83D\\uDE00"}]\t{"incrementing":5,"f":2.5}\n["c",{"table":"t"}]\t\n'
    )
    assert write_positions(source, "connect") == (
        '{"offsets":[\n'
        '  {"partition":{"protocol":"1","table":"é😀"},"offset":{"incrementing":5,"f":2.5}},\n'
        '  {"partition":{"table":"t"},"offset":null}\n'
        "]}\n"
    )
    assert write_positions(source, "kip199") == (
        '{\n  "c":[\n'
        '    {"partition":{"protocol":"1","table":"é😀"},"offset":{"incrementing":5,"f":2.5}},\n'
        '    {"partition":{"table":"t"},"offset":null}\n'
        "  ]\n}\n"
    )


def test_numbers_stay_what_they_are():
    text = '{"offsets":[{"partition":{},"offset":{"a":1,"b":1.0,"c":"1","d":true,"e":null,"f":9007199254740993}}]}'
    offset = next(iter(read(text))).offset
    assert offset is not None
    assert offset.to_json() == '{"a":1,"b":1.0,"c":"1","d":true,"e":null,"f":9007199254740993}'
    assert offset != Map({"a": 1.0, "b": 1, "c": 1, "d": 1, "e": 0, "f": 9007199254740992.0})


# ---- Kafka's own tool

ORACLE = """
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Method;
import java.util.*;
import org.apache.kafka.tools.OffsetsUtils;

public class Plans {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Method parse = OffsetsUtils.class.getDeclaredMethod("parseResetPlan", String.class);
        parse.setAccessible(true);
        List<Object> answers = new ArrayList<>();
        for (Object asked : json.readValue(System.in, List.class)) {
            List<String> groups = (List<String>) ((List<?>) asked).get(0);
            OffsetsUtils.OffsetsUtilsOptions options = new OffsetsUtils.OffsetsUtilsOptions(groups, List.of(), 1000L);
            Map<String, Map<String, Object>> plan = new TreeMap<>();
            Map<?, ?> read = (Map<?, ?>) parse.invoke(new OffsetsUtils(null, null, options), ((List<?>) asked).get(1));
            read.forEach((group, offsets) -> ((Map<?, ?>) offsets).forEach((place, at) ->
                plan.computeIfAbsent((String) group, any -> new TreeMap<>()).put(
                    place.toString(), ((org.apache.kafka.clients.consumer.OffsetAndMetadata) at).offset())));
            answers.add(plan);
        }
        System.out.println("plans " + json.writeValueAsString(answers));
    }
}
"""


def test_kafkas_own_tool_reads_the_csv_we_write(tmp_path):
    groups = ["g", "a,b", 'q"uote', " blank ", "é😀\u2028", "#x", "g:1\t2", "'s'", '"', "\\n", "null"]
    one = Positions([Position.of_kafka("g", "t.x_1-2", 2**31 - 1, 2**63 - 1), Position.of_kafka("g", "t", 0, 0)])
    many = Positions(Position.of_kafka(group, "t", n, 7 * n) for n, group in enumerate(groups))
    asked = [(["g"], write_positions(one, "csv")), (groups, write_positions(many, "csv"))]
    (tmp_path / "Plans.java").write_text(ORACLE)
    class_path = ":".join(str(jar) for jar in fetch_jars("kafka"))
    command = [java(), "-cp", class_path, str(tmp_path / "Plans.java")]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    parsed = json.loads(done.stdout.partition("plans ")[2].partition("\n")[0])
    assert parsed == [
        {"g": {"t.x_1-2-2147483647": 2**63 - 1, "t-0": 0}},
        {group: {f"t-{n}": 7 * n} for n, group in enumerate(groups)},
    ]


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm():
    assert len(read_positions(b"\xef\xbb\xbft,0,5\r\nt,1,6\r\n", "file", owner="o")) == 2


@pytest.mark.parametrize("text", ['{"offsets":[' + PAIR + "]}", "t,0,5\n", "t 0 5\n", '{"t":{"0":5}}'])
def test_a_file_that_does_not_name_the_owner_needs_one(text):
    assert "does not name the owner of these positions" in faults_of(text, owner=None)


def test_of_several_owners_the_one_asked_for_is_taken():
    text = "a,t,0,5\nb,t,0,6\n"
    assert read(text, owner="b") == Positions([Position.of_kafka("b", "t", 0, 6)])
    assert "no positions of 'c' in it, only of a, b" in faults_of(text, owner="c")
    assert read(f'{{"offsets":[{PAIR}],"b":[{PAIR}]}}', owner=None).owners == ["b", "offsets"]


def test_kcat_lines_are_a_log_in_which_the_last_record_of_a_key_counts():
    lines = '["c",{"p":1}]\t{"o":1}\n["c",{"p":2}]\t{"o":1}\n["c",{"p":1}]\t{"o":2}\n["c",{"p":2}]\tNULL\n'
    expected = [Position("c", Map({"p": 1}), Map({"o": 2})), Position("c", Map({"p": 2}), None)]
    assert read(lines, owner=None) == Positions(expected)
    for separator in (":", "|", " ", " -> ", "#", "::"):
        assert read(lines.replace("\t", separator), owner=None) == Positions(expected)


def test_rpk_takes_any_blanks_and_passes_over_empty_lines():
    assert read("t 0 5\n\ns\t1\t6\n").owners == ["o"]


@pytest.mark.parametrize("form", ["csv", "rpk", "yelp", "spark"])
def test_forms_of_kafka_offsets_refuse_other_positions_by_name(form):
    source = Positions([Position("c", Map({"table": "t"}), Map({"incrementing": 5}))])
    with pytest.raises(Invalid, match=r'c \{"table":"t"\}: the form \w+ holds Kafka offsets only'):
        write_positions(source, form)
    with pytest.raises(Invalid, match="cannot delete a position"):
        write_positions(Positions([Position.of_kafka("g", "t", 0, None)]), form)
    with pytest.raises(Invalid, match="-5 is not a Kafka offset"):
        write_positions(Positions([Position.of_kafka("g", "t", 0, -5)]), form)


@pytest.mark.parametrize("form", ["connect", "rpk", "yelp", "spark"])
def test_forms_of_one_owner_refuse_several(form):
    with pytest.raises(Invalid, match="holds the positions of one owner, but these are of 2: a, b"):
        write_positions(Positions(Position.of_kafka(name, "t", 0, 5) for name in "ab"), form)


def test_a_group_with_a_line_break_cannot_be_csv():
    with pytest.raises(Invalid, match="reads line by line"):
        write_positions(Positions(Position.of_kafka(name, "t", 0, 5) for name in ("a\nb", "c")), "csv")


def test_a_form_that_is_not_known_is_named_with_the_near_ones():
    with pytest.raises(Invalid) as caught:
        write_positions(Positions(), "kip-199")
    assert caught.value.hint == "did you mean kip199?"


@pytest.mark.parametrize("form", FORMS)
def test_no_positions_are_written_as_an_empty_text_of_the_form(form):
    text = write_positions(Positions(), form)
    assert text == "" or json.loads(text) in ({}, {"offsets": []}, {"groupid": "", "offsets": {}})


def test_a_history_in_the_form_of_kip199_ends_at_its_last_pairs():
    history = (
        '{"c":[{"partition":{"p":1},"offset":{"o":1}},{"partition":{"p":2},"offset":{"o":1}},'
        '{"partition":{"p":1},"offset":{"o":2}},{"partition":{"p":2},"offset":null}]}'
    )
    assert "is given twice" in faults_of(history, owner=None)
    assert read_pairs_in_order(history.encode(), "file") == Positions(
        [Position("c", Map({"p": 1}), Map({"o": 2})), Position("c", Map({"p": 2}), None)]
    )
    assert read_pairs_in_order(b"{}", "file") == read_pairs_in_order(b'{"c":[]}', "file") == Positions()


@given(any_positions(NAMES))
def test_an_export_is_a_history_too(positions):
    assert read_pairs_in_order(write_positions(positions, "kip199").encode(), "file") == positions


@pytest.mark.parametrize("text", ["", "[]", '{"c":5}', '{"c":[{"partition":{"p":1}}]}', '{"c":[],"c":[]}'])
def test_a_malformed_history_is_refused(text):
    with pytest.raises(Invalid):
        read_pairs_in_order(text.encode(), "file")


def test_the_page_on_forms_names_every_form():
    page = (Path(__file__).parent.parent.parent / "docs" / "formats.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(FORMS)
