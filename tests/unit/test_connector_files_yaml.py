"""The YAML form: `common`, templates, what wins, and every mistake with its line."""

import pytest

from playhead.model import Engine, Map, Origin, Position, Positions, WantedState
from unit.connector_files import bare, config_of, faults, yaml

SHARED = """\
common:
  connector.class: x.Source
  tasks.max: 1
  only.common: a
connectors:
  one:
    engine: spark
    state: STOPPED
    config:
      tasks.max: 2
      own: b
  two:
    config:
      only.common: null
"""


def test_what_stands_at_a_connector_wins_over_common_and_null_takes_a_common_key_away():
    one, two = yaml(SHARED)
    assert one.config == {"connector.class": "x.Source", "tasks.max": "2", "only.common": "a", "own": "b"}
    assert (one.engine, one.state) == (Engine.SPARK, WantedState.STOPPED)
    assert two.config == {"connector.class": "x.Source", "tasks.max": "1"}
    assert (two.engine, two.state, two.offsets) == (Engine.CONNECT, None, None)


def test_every_key_knows_which_line_and_part_set_it():
    one, two = yaml(SHARED)
    assert {key: str(origin) for key, origin in one.origins.items()} == {
        "connector.class": "stdin:2 (common)",
        "tasks.max": "stdin:10 (connector one)",
        "only.common": "stdin:4 (common)",
        "own": "stdin:11 (connector one)",
    }
    assert set(two.origins) == set(two.config)
    assert two.origin == Origin("stdin", 12, "connector two")


TEMPLATE = """\
common: {connector.class: x.JdbcSourceConnector, note: '{{kept}} {"a": {"b": 1}}'}
connectors:
  log_{table}:
    for: {table: [login, 7]}
    state: paused
    config:
      topic.prefix: "log_{table}"
      query: "select '{{}}' from {table} where x = '${env:{X}'"
      list: [a, "{table}"]
      password: ${file:/s.properties:pw}
    offsets:
    - partition: {protocol: "1", table: "public.{table}"}
      offset: {incrementing: 5, text: "5", f: 1.0, b: true, n: null, h: 0x10}
"""


def test_a_template_becomes_one_connector_for_each_value():
    login, seven = yaml(TEMPLATE)
    assert (login.name, seven.name) == ("log_login", "log_7")
    assert seven.config == {
        "connector.class": "x.JdbcSourceConnector",
        "note": '{{kept}} {"a": {"b": 1}}',
        "topic.prefix": "log_7",
        "query": "select '{}' from 7 where x = '${env:{X}'",
        "list": "a,7",
        "password": "${file:/s.properties:pw}",
    }
    assert seven.state is WantedState.PAUSED
    assert seven.offsets == Positions(
        [
            Position(
                "log_7",
                Map({"protocol": "1", "table": "public.7"}),
                Map({"incrementing": 5, "text": "5", "f": 1.0, "b": True, "n": None, "h": 16}),
            )
        ]
    )
    assert str(seven.origins["topic.prefix"]) == "stdin:7 (template log_{table})"
    assert str(seven.origins["note"]) == "stdin:1 (common)"


def test_several_fields_give_every_combination_the_last_one_fastest():
    text = "connectors:\n  '{a}{b}':\n    for: {a: [x, y], b: [1, 2]}\n    config: {connector.class: c}\n"
    assert [spec.name for spec in yaml(text)] == ["x1", "x2", "y1", "y2"]


def test_a_list_of_rows_gives_exactly_these_and_a_lone_field_in_offsets_keeps_its_type():
    text = """\
connectors:
  log_{table}:
    for: [{table: a, start: 5}, {table: b, start: "6"}]
    config: {connector.class: c, start: "{start}"}
    offsets: [{partition: {t: "{table}"}, offset: {incrementing: "{start}"}}]
"""
    a, b = yaml(text)
    assert a.offsets == Positions([Position("log_a", Map({"t": "a"}), Map({"incrementing": 5}))])
    assert b.offsets == Positions([Position("log_b", Map({"t": "b"}), Map({"incrementing": "6"}))])
    assert a.config["start"] == "5"


def test_a_template_without_fields_is_one_connector_whose_braces_are_doubled():
    text = "connectors:\n  'a{{b}}':\n    for: {}\n    config: {connector.class: c, k: '{{x}} ${y}'}\n"
    (spec,) = yaml(text)
    assert (spec.name, spec.config["k"]) == ("a{b}", "{x} ${y}")


def test_documents_of_one_stream_have_their_own_common():
    text = "common: {connector.class: x}\nconnectors: {a: {config: {}}}\n---\nconnectors: {b: {config: {connector.class: y}}}\n"
    assert [(spec.name, spec.connector_class) for spec in yaml(text)] == [("a", "x"), ("b", "y")]


def test_no_connectors_are_no_fault_when_the_file_says_so():
    assert yaml("connectors: {}") == []


def test_anchors_aliases_and_merges_are_understood_and_the_tables_own_key_wins():
    text = """\
connectors:
  a:
    config: &base
      connector.class: x
      k: 1
      l: 2
  b:
    config:
      k: 3
      <<: *base
  c:
    config: {<<: [{l: 9}, *base], '<<': literal}
"""
    _, b, c = yaml(text)
    assert b.config == {"connector.class": "x", "k": "3", "l": "2"}
    assert str(b.origins["l"]) == "stdin:6 (connector b)"
    assert c.config == {"connector.class": "x", "k": "1", "l": "9", "<<": "literal"}


def test_a_file_of_nested_aliases_does_not_grow():
    layers = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]\n" for i in range(1, 12))
    reported = faults(f"x0: &x0 [a]\n{layers}")
    assert len(reported) == 13  # twelve unknown keys, and no connectors


ONE = "connectors:\n  a:\n    config:\n      connector.class: x\n"
HINT = "write it like connectors: {orders_src: {config: {...}}}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ONE + "conectors: {}\n", ["5: unknown key 'conectors'; did you mean connectors?"]),
        ("defaults: {}\n" + ONE, ["1: unknown key 'defaults'; there is: common, connectors"]),
        (ONE + "    stat: running\n", ["5: unknown key 'stat' in connector 'a'; did you mean state?"]),
        (ONE + "    engine: sparks\n", ["5: 'engine' is 'sparks', which is not supported; did you mean spark?"]),
        (
            ONE + "    state: [running]\n",
            ["5: 'state' is a list, which is not supported; there is: paused, running, stopped"],
        ),
        (ONE + "      k: 1\n      k: 2\n", ["6: the key 'k' is given twice, here and in line 5"]),
        (ONE + "  a:\n    config: {connector.class: y}\n", ["5: the key 'a' is given twice, here and in line 2"]),
        (
            ONE + "      k: !!str 1\n      l: !x {a: b}\n",
            [
                "5: a YAML tag ('!...') is not supported; write the plain value",
                "6: a YAML tag ('!...') is not supported; write the plain value",
                "6: the value of 'l' is a table, and Connect takes only text; write the whole key on one line: l.a: ...",
            ],
        ),
        (ONE + "      k:\n", ["5: 'k' has no value; write \"\" for an empty text, or leave the key out"]),
        (ONE + "      k: {t}\n", ["5: the value of 'k' is a table, and Connect takes only text; quote it: \"{t}\""]),
        (
            ONE + "      k: [a, [b]]\n      l: [~]\n",
            ["5: the list 'k' holds an item that is a list", "6: the list 'l' holds an item that is empty"],
        ),
        (
            ONE + "      k: [a, 'b,c']\n",
            ["5: an item of the list 'k' has a comma in it and would become two; write the whole value as one text"],
        ),
        (ONE + "      name: b\n", ["5: the 'name' in the config of 'a' is another one; leave it out"]),
        (ONE + "      ? [a]\n      : b\n", ["5: a key must be text; a value that begins with a brace must be quoted"]),
        ("connectors:\n  a:\n    config: {k: 1}\n", ["2: connector 'a' has no 'connector.class'"]),
        ("connectors:\n  a:\n    state: paused\n", ["2: connector 'a' has no 'config'"]),
        (
            "connectors:\n  a:\n    connector.class: x\n    topic: t\n",
            [
                "3: connector 'a' has no 'config'; put 'connector.class' and the other keys of the connector under config:"
            ],
        ),
        ("connectors:\n  a:\n    config: x\n", ["3: the 'config' of 'a' must be a table of keys, not text"]),
        ("connectors:\n  a: x\n", ["2: connector 'a' is text; it needs a config: {...}"]),
        ("connectors:\n  - a\n", [f"1: 'connectors' is a list; {HINT}"]),
        ("connectors:\n", [f"1: 'connectors' is empty; {HINT}"]),
        ("common: {k: v}\n", ["1: there is no 'connectors'"]),
        ("common: [k]\n" + ONE, ["1: 'common' must be a table of keys, but is a list"]),
        ("common: {k: }\n" + ONE, ["1: 'k' has no value; write \"\" for an empty text, or leave the key out"]),
        ("common: {name: x}\n" + ONE, ["1: 'name' cannot be common to all connectors"]),
        (
            "name: a\nconfig: {connector.class: x}\n",
            [
                "1: this is a single connector without 'connectors' and a name; in YAML write connectors: NAME: {config: {...}}, "
                "or save Connect's own body as .json"
            ],
        ),
        ("", ["the file is empty; write connectors: with a connector below it"]),
        ("just text\n", ["1: the document is text; write connectors: with a connector below it"]),
        ("connectors:\n  a: b: c\n", ["2: this is not YAML: mapping values are not allowed here"]),
        (
            "connectors: {a: {config: {k: log_{t}}}}\n",
            ["1: this is not YAML: expected ',' or '}', but got '{'; quote a value with braces: \"log_{table}\""],
        ),
        ("connectors:\n  a: \x01\n", ["2: this is not YAML: the character U+0001 must be escaped in double quotes"]),
        ("%YAML 1.1\n---\n" + ONE, ["2: only YAML 1.2 is supported; leave the %YAML line out"]),
        ("connectors: *x\n", ["1: the alias *x has no anchor before it"]),
        (
            "common: &x {}\nconnectors: {}\n---\nconnectors: *x\n",
            ["4: the alias *x has no anchor before it"],
        ),
        ("connectors: &x {a: *x}\n", ["1: the anchor &x contains itself"]),
        (
            "connectors: {a: {config: {<<: x}}}\n",
            ["1: '<<' takes a table of keys, or a list of them", "1: connector 'a' has no 'connector.class'"],
        ),
        ("connectors: " + "[" * 30 + "]" * 30, ["1: more than 20 levels"]),
        ("x: &x 1\nl: [" + "*x," * 1001 + "]\n", ["2: more than 1000 aliases; shared keys belong into 'common'"]),
    ],
)
def test_a_mistake_in_yaml_is_reported_with_its_line(text, expected):
    assert faults(text) == expected


def template(each: str, name: str = "log_{table}", value: str = "x", more: str = "") -> str:
    return (
        f"connectors:\n  '{name}':\n    for: {each}\n    config:\n      connector.class: x\n      k: '{value}'\n{more}"
    )


SINGLE = "write {{ and }} for braces that stay; a field is {name}; inside ${...} nothing is filled in"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            template("{table: [a]}", value="{tabel}"),
            ["6: the value of 'k': there is no field {tabel}; did you mean table?"],
        ),
        (
            template("{table: [a]}", name="{tables}_{table}"),
            ["2: the name '{tables}_{table}': there is no field {tables}; did you mean table?"],
        ),
        (template("{table: [a]}", value="{ x"), [f"6: the value of 'k': has a single '{{'; {SINGLE}"]),
        (template("{table: [a]}", value="${file:/{table}.p:k}"), [f"6: the value of 'k': has a single '}}'; {SINGLE}"]),
        (template("{}"), ["2: the name 'log_{table}': there is no field {table}; 'for' names none"]),
        (
            template("{table: [a, b]}", name="log"),
            ["2: the name 'log' is the same for all 2 connectors; put {table} into it"],
        ),
        (template("{table: a}"), ["3: the values of 'table' must be a list, not text; table: [a, b]"]),
        (
            template("{table: []}"),
            ["3: the list of 'table' is empty, so there would be no connector; remove the template"],
        ),
        (template("[]"), ["3: 'for' has no rows, so there would be no connector; remove the template"]),
        (template("{table: [a, a]}"), ["3: 'a' is twice in the list of 'table'"]),
        (
            template("{table: [~, [a]]}"),
            [
                "3: a value of 'table' is empty; only text and numbers can be filled in",
                "3: a value of 'table' is a list; only text and numbers can be filled in",
            ],
        ),
        (template("{a-b: [a]}"), ["3: 'a-b' cannot be the name of a field; use letters, digits and _"]),
        (template("tables"), ["3: 'for' is text; write it like for: {table: [orders, items]}"]),
        (template("[{table: a}, {tabel: b}]"), ["3: all rows of 'for' need the same fields: table"]),
        (
            template("{table: [a], n: [1, 2]}"),
            ["2: the template creates the connector 'log_a' more than once; put every field of 'for' into its name"],
        ),
        (template("[{table: a}, b]"), ["3: a row of 'for' must be a table of fields, not text"]),
        (
            template(f"{{table: {list(range(101))}, n: {list(range(100))}}}"),
            ["3: 'for' creates 10100 connectors, which is more than 10000"],
        ),
        (
            template("{table: [a]}", more="      '{table}.x': y\n"),
            ["7: the key '{table}.x' has a field; only names and values are filled"],
        ),
        (
            template("{table: [a]}", more="    offsets: [{partition: {t: '{x}'}, offset: null}]\n"),
            ["7: a value of 'offsets': there is no field {x}; there is: table"],
        ),
        (
            "common: {p: '{table}'}\n" + template("{table: [a]}"),
            [
                "1: the common value of 'p' has a field of 'for'; "
                "nothing is filled in there; set it in the config of 'log_{table}'"
            ],
        ),
        (
            "connectors:\n  log_{table}:\n    config: {connector.class: x}\n",
            [
                "2: the name 'log_{table}' has a field, but the connector has no 'for'; "
                "add for: {table: [...]}, or, if the braces belong to the name, for: {} and double them"
            ],
        ),
    ],
)
def test_a_mistake_in_a_template_is_reported_once_with_its_line(text, expected):
    assert faults(text) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("x", "6: connector 'a': offsets: must be a list, not text"),
        ("[]", "6: connector 'a': offsets: the list is empty"),
        ("[{partition: {a: 1}}]", "6: connector 'a': offsets[0].offset: is missing; write null to delete a position"),
        (
            "\n    - {partition: {a: 1}, offset: null}\n    - {partition: {a: [1]}, offset: null}",
            "8: connector 'a': offsets[1].partition.a: a list is not allowed; Connect takes only flat values here",
        ),
        (
            "\n    - {partition: {a: 1}, offset: null}\n    - {partition: {a: 1}, offset: {b: 1}}",
            "8: connector 'a': offsets[1].partition: is given twice, here and at offsets[0].partition",
        ),
        (
            "[{partition: {kafka_topic: t, kafka_partition: 0}, offset: {kafka_offset: -1}}]",
            "6: connector 'a': offsets[0].offset.kafka_offset: -1 is below 0",
        ),
    ],
)
def test_a_start_position_obeys_the_rules_of_positions(written, expected):
    assert faults("\n" + ONE + f"    offsets: {written}\n") == [expected]


def test_all_faults_of_a_file_come_at_once_in_the_order_of_their_lines():
    text = """\
commn: {}
connectors:
  a:
    engine: flink
    config: {connector.class: x, k: {b: c}}
  b_{t}:
    for: {t: [1]}
    config: {connector.class: x, k: "{u}"}
  c:
    state: asleep
    config: {connector.class: !!str x}
"""
    lines = [int(fault.split(":")[0]) for fault in faults(text)]
    assert lines == [1, 4, 5, 8, 10, 11]


def test_a_reference_is_never_touched():
    value = "${file:/x:y} ${env:A}${vault:secret/data/x:k} $${a:b} ${topic}"
    assert config_of(f"connectors:\n  a:\n    config: {{connector.class: x, k: '{value}'}}\n")["k"] == value
    (spec,) = yaml(template("{table: [a]}", value=value))
    assert spec.config["k"] == value


def test_a_comment_or_the_order_of_keys_changes_nothing():
    plain = "connectors:\n  a:\n    config: {connector.class: x, b: 1}\n"
    commented = "# c\nconnectors: # d\n  # e\n  a:\n    config:\n      b: 1 # f\n      connector.class: x\n"
    assert bare(yaml(plain)) == bare(yaml(commented))
