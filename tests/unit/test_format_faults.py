"""What is wrong in a file of positions is refused with its line or JSON path, and nothing of it is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import Invalid
from playhead.offsets.formats.forms import FORMS, read_positions
from unit.format_checks import PAIR, faults_of


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "$: the object is empty"),
        ('{"offsets":[]}', "$.offsets: the list is empty"),
        ('{"offsets":null}', "$.offsets: must be a list, not null"),
        ('{"offsets":"x"}', "$.offsets: must be a list, not text"),
        ('{"offsets":5}', "$.offsets: must be a list, not a number"),
        (f"[{PAIR}]", "$: must be an object"),
        ('{"offsets":[5]}', "$.offsets[0]: must be an object, not a number"),
        ('{"offsets":[{"offset":{"o":1}}]}', "$.offsets[0].partition: is missing"),
        ('{"offsets":[{"partition":{"p":1}}]}', "$.offsets[0].offset: is missing; write null to delete"),
        ('{"offsets":[{"partition":null,"offset":{}}]}', "$.offsets[0].partition: must be an object, not null"),
        ('{"offsets":[{"partition":{"p":1},"offset":[1]}]}', "$.offsets[0].offset: must be an object, not a list"),
        (
            f'{{"offsets":[{PAIR},{PAIR}]}}',
            "$.offsets[1].partition: is given twice, here and at $.offsets[0].partition",
        ),
        (f'{{"offsets":[{PAIR}],"more":1}}', "$.more: is unknown"),
        ('{"offsets":[{"partition":{"p":1},"offset":null,"note":"x"}]}', "$.offsets[0].note: is unknown"),
        ('{"offsets":[{"partition":{"p":{"x":1}},"offset":null}]}', "$.offsets[0].partition.p: a dict is not allowed"),
        ('{"offsets":[{"partition":{"p":1},"offset":{"o":[1]}}]}', "$.offsets[0].offset.o: a list is not allowed"),
        (
            '{"offsets":[{"partition":{"p":1},"offset":{"o":9223372036854775808}}]}',
            "$.offsets[0].offset.o: 9223372036854775808 does not fit into 64 bits",
        ),
        ('{"offsets":[{"partition":{"p":1},"offset":{"o":1e999}}]}', "$.offsets[0].offset.o: inf cannot be written"),
        ('{"offsets":[{"partition":{"p":1},"offset":{"o":NaN}}]}', "NaN is not JSON"),
        ('{"offsets":[{"partition":{"p":"\\ud800"},"offset":null}]}', "$.offsets[0].partition.p:"),
        ('{"offsets":[{"partition":{"p":1,"p":2},"offset":null}]}', "$.offsets[0].partition.p: is given twice"),
        ('{"offsets":[],"offsets":[]}', "$.offsets: is given twice"),
        ('{"offsets":[{"partition":{"p":1},\n"offset":{"o":1}]}', "file:2: "),
        ('{"a":[], "b":[' + PAIR + "]}", "$.a: the list is empty"),
        ('{"a":5,"b":"x"}', "none of the known forms"),
        ('{"a":[' + PAIR + '],"":[' + PAIR + "]}", "$.: '' is not a name"),
        ("[" * 100_000, "must be an object"),
        ('{"a":' * 100_000, "not usable JSON"),
        ('{"offsets":[{"partition":{"p":' + "9" * 5000 + '},"offset":null}]}', "not usable JSON"),
    ],
)
def test_a_malformed_body_is_refused_with_the_json_path(text, said):
    assert said in faults_of(text)


SINK = '{{"offsets":[{{"partition":{},"offset":{}}}]}}'
PLACE = '{"kafka_topic":"t","kafka_partition":0}'


@pytest.mark.parametrize(
    ("partition", "offset", "said"),
    [
        (PLACE, '{"kafka_offset":"5"}', '$.offsets[0].offset.kafka_offset: must be a whole number, not "5"'),
        (PLACE, '{"kafka_offset":5.0}', "$.offsets[0].offset.kafka_offset: must be a whole number, not 5.0"),
        (PLACE, '{"kafka_offset":true}', "$.offsets[0].offset.kafka_offset: must be a whole number, not true"),
        (PLACE, '{"kafka_offset":null}', "$.offsets[0].offset.kafka_offset: must be a whole number, not null"),
        (PLACE, '{"kafka_offset":-1}', "$.offsets[0].offset.kafka_offset: -1 is below 0"),
        (PLACE, "{}", "$.offsets[0].offset.kafka_offset: is missing"),
        (PLACE, '{"kafka_offset":5,"more":1}', "$.offsets[0].offset.more: does not belong"),
        ('{"kafka_topic":"t"}', '{"kafka_offset":5}', "$.offsets[0].partition.kafka_partition: is missing"),
        (
            '{"kafka_topic":"t","kafka_partition":"0"}',
            "null",
            "$.offsets[0].partition.kafka_partition: must be a whole",
        ),
        ('{"kafka_topic":"t","kafka_partition":2147483648}', "null", "2147483648 is too large"),
        (
            '{"kafka_topic":"a b","kafka_partition":0}',
            "null",
            '$.offsets[0].partition.kafka_topic: "a b" is not the name',
        ),
        (
            '{"kafka_topic":null,"kafka_partition":0}',
            "null",
            "$.offsets[0].partition.kafka_topic: null is not the name",
        ),
        ('{"kafka_topic":"t","kafka_partition":0,"x":1}', "null", "$.offsets[0].partition.x: does not belong"),
    ],
)
def test_the_position_of_a_sink_must_be_kafkas(partition, offset, said):
    assert said in faults_of(SINK.format(partition, offset))


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("csv", "topic,partition,offset\nt,0,5\n", "file:1: this is a header"),
        ("csv", "group,topic,partition,offset\ng,t,0,5\n", "file:1: this is a header"),
        ("csv", "t,0\n", "file:1: a line must be"),
        ("csv", "t,0,5\n\nt,1,5\n", "file:2: this is not a line of 3 columns"),
        ("csv", "t,0,5\nWarn: Partition 0 from topic t is empty.\n", "file:2: this is not a line of 3 columns"),
        ("csv", "t,0,5\ng,t,1,5\n", "file:2: this is not a line of 3 columns"),
        ("csv", 't,0,5\n"t,1,5\n', "file:2: this is not a line of 3 columns"),
        ("csv", "t,0,5\nt,0,6\n", "file:2: this partition is given twice, here and in line 1"),
        ("csv", "t,0,-5\n", "file:1: the offset -5 is below 0"),
        ("csv", "t,x,5\n", "file:1: the partition 'x' is not a whole number"),
        ("csv", "t,0,5.0\n", "file:1: the offset '5.0' is not a whole number"),
        ("csv", "t,0,9223372036854775808\n", "file:1: the offset 9223372036854775808 is too large"),
        ("csv", "t,2147483648,5\n", "file:1: the partition 2147483648 is too large"),
        ("csv", "t,٣,5\n", "is not a whole number"),
        ("csv", "t t,0,5\n", "file:1: 't t' is not the name of a topic"),
        ("csv", ",t,0,5\n", "file:1: the group has no name"),
        ("rpk", "TOPIC PARTITION OFFSET\nt 0 5\n", "file:1: this is a header"),
        ("rpk", "t 0\n", "file:1: 't 0' is not topic, partition and offset"),
        ("rpk", "t 0 5 6\n", "is not topic, partition and offset"),
        ("rpk", "t 0 5\nt 0 5\n", "file:2: this partition is given twice"),
        ("yelp", '{"groupid":"g"}', "$.offsets: is missing"),
        ("yelp", '{"groupid":5,"offsets":{"t":{"0":5}}}', "$.groupid: must be the name of a group"),
        ("yelp", '{"groupid":"g","offsets":{"t":{"0":"5"}}}', '$.offsets.t.0: must be a whole number, not "5"'),
        ("yelp", '{"groupid":"g","offsets":{"t":{"zero":5}}}', "$.offsets.t.zero: 'zero' is not the number"),
        ("yelp", '{"groupid":"g","offsets":{}}', "$.offsets: names no topic"),
        ("spark", '{"t":{"0":-2}}', "$.t.0: -2 stands for the earliest record"),
        ("spark", '{"t":{"0":-1}}', "$.t.0: -1 stands for the latest record"),
        ("spark", '{"t":{"0":-3}}', "$.t.0: -3 is below 0"),
        ("spark", '{"t":{"0":{"x":1}}}', "$.t.0: must be a whole number, not an object"),
        ("spark", '{"t":{"00":5}}', "$.t.00: '00' is not the number"),
        ("spark", '{"t":{"0":5,"0":6}}', "$.t.0: is given twice"),
        ("spark", '{"t":{}}', "$.t: names no partition"),
        ("spark", '{"t t":{"0":5}}', "$.t t: this is not the name of a topic"),
        ("kcat", '["c",{"p":1}]\t{"o":1}\nfoo\t{}\n', "file:2: the key is not JSON"),
        ("kcat", '["c"]\t{"o":1}\n', "file:1: the key must be a list"),
        ("kcat", '["c",{"p":{"x":1}}]\t{"o":1}\n', "file:1: key[1].p: a dict is not allowed"),
        ("kcat", '["c",null]\t{"o":1}\n', "file:1: key[1]: must be an object, not null"),
        ("kcat", '["c",{"p":1}]\t{"o":1\n', "file:1: the value is not JSON"),
        ("kcat", '["c",{"p":1}]\t{"o":99999999999999999999}\n', "file:1: value.o: 99999999999999999999 does not fit"),
        ("kcat", '["c",{"p":1}]\t[1]\n', "file:1: after the key comes"),
        ("kcat", '["c",{"p":1}]\t5\n', "file:1: after the key comes"),
        ("kcat", '["c",{"p":1}]\n', "file:1: after the key comes"),
        ("kcat", '["c",{"p":1}]\t{"o":1}\n["c",{"p":2}]|{"o":1}\n', "file:2: after the key comes"),
        ("kcat", '["c",{"p":1,"q":2}]\t{}\n["c",{"q":2,"p":1}]\t{}\n', "file:2: the key equals that of line 1"),
        ("kcat", '["c",{"p":1}]\t{}\n\n["c",{"p":2}]\t{}\n', "file:2: the key is not JSON"),
    ],
)
def test_a_malformed_line_or_tree_is_refused_with_its_place(form, text, said):
    owner = None if form in ("kcat", "yelp") or text.startswith((",", "group,")) else "o"
    assert said in faults_of(text, form, owner)
    assert said in faults_of(text, None, owner), "and so it is when the form is recognised"


def test_all_faults_of_a_file_are_named_at_once():
    said = faults_of("t,x,5\nt,0,y\n" + "".join(f"t,{n},z\n" for n in range(50)), "csv")
    assert "file:1: the partition 'x'" in said
    assert "file:2: the offset 'y'" in said
    assert said.endswith("... and 32 more")


@pytest.mark.parametrize(
    ("data", "said"), [(b"", "is empty"), (b" \n\n", "is empty"), (b"t,0,\xff", "byte 4 is not UTF-8")]
)
def test_what_is_no_text_is_refused(data, said):
    with pytest.raises(Invalid, match=said):
        read_positions(data, "file")


@pytest.mark.parametrize("form", [None, *FORMS])
@given(data=st.binary(max_size=60) | st.text('[]{}":,0123456789-.eEtpo \n\\nul', max_size=60).map(str.encode))
def test_no_input_makes_a_reader_fail_otherwise(form, data):
    try:
        positions = read_positions(data, "file", form, "o")
    except Invalid:
        return
    assert len(positions) > 0
