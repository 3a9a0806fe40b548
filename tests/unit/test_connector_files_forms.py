"""Four forms of connector files, one kind of value: what each takes, how values become text, which files are read."""

from pathlib import Path

import pytest

from playhead.connectors.files import read_specs
from playhead.errors import ConfigInvalid
from playhead.model import Engine, Map, Origin, Position, Positions, WantedState
from unit.connector_files import bare, config_of, faults, file_faults

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_the_same_connector_in_four_forms_is_the_same_connector():
    json, yaml, properties, python = (
        bare(read_specs([EXAMPLES / f"same_connector.{ending}"])) for ending in ("json", "yaml", "properties", "py")
    )
    assert json == yaml == properties == python
    assert json[0].config["transforms.drop.headers"] == "trace,span"
    assert json[0].config["value.converter.schemas.enable"] == "false"


def test_the_tables_of_the_examples_are_the_same_in_yaml_and_in_python():
    assert bare(read_specs([EXAMPLES / "jdbc_tables.yaml"])) == bare(read_specs([EXAMPLES / "jdbc_tables.py"]))


def test_all_other_examples_are_read_together():
    specs = read_specs([EXAMPLES / name for name in ("jdbc_tables.yaml", "s3_sinks.yaml", "file_source.yaml")])
    written = {f"code_{table}" for table in ("countries", "currencies", "units")}
    written |= {f"log_{table}" for table in ("login", "purchase", "chat")}
    assert {topic for spec in specs for topic in spec.config.get("topics", "").split(",") if topic} == written
    assert specs[-1].config["transforms"] == "line,origin,time"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("true", "true"),
        ("True", "true"),
        ("FALSE", "false"),
        ('"True"', "True"),
        ("1", "1"),
        ("1.0", "1.0"),
        ("1e3", "1e3"),
        ("0x10", "0x10"),
        ("007", "007"),
        ("+1", "+1"),
        ("1_000", "1_000"),
        ("2024-01-02", "2024-01-02"),
        ("12:30", "12:30"),
        ("null value", "null value"),
        ('""', ""),
        ("'~'", "~"),
        ("[a, 1, true, 1.50]", "a,1,true,1.50"),
        ("[]", ""),
        ("${file:/a b.properties:key}", "${file:/a b.properties:key}"),
        ('\'{{topic}}-{"a": {"b": 1}}\'', '{{topic}}-{"a": {"b": 1}}'),
        ("|-\n        select 1\n         from t", "select 1\n from t"),
        ("😀 é", "😀 é"),
    ],
)
def test_a_yaml_value_becomes_the_text_connect_keeps(written, text):
    found = config_of(f"connectors:\n  a:\n    config:\n      connector.class: x\n      k: {written}\n")
    assert found["k"] == text


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("true", "true"),
        ("1", "1"),
        ("1.0", "1.0"),
        ("1E+3", "1E+3"),
        ("-0.50", "-0.50"),
        ('"yes"', "yes"),
        ('["a", 1, false]', "a,1,false"),
        ('"\\ud83d\\ude00\\n"', "😀\n"),
        ('"${env:X}"', "${env:X}"),
    ],
)
def test_a_json_value_becomes_the_text_connect_keeps(written, text):
    (spec,) = read_specs(["-"], stdin=f'{{"name": "a", "config": {{"connector.class": "x", "k": {written}}}}}'.encode())
    assert spec.config["k"] == text


def test_json_may_be_a_body_a_plain_map_or_a_list_of_them():
    body = b'{"name": "a", "config": {"connector.class": "x", "name": "a"}}'
    plain = b'{"name": "a", "connector.class": "x"}'
    assert bare(read_specs(["-"], stdin=body)) == bare(read_specs(["-"], stdin=plain))
    two = read_specs(["-"], stdin=b"\xef\xbb\xbf [" + body + b"," + plain.replace(b'"a"', b'"b"') + b"]")
    assert [(spec.name, spec.config) for spec in two] == [(n, {"connector.class": "x"}) for n in ("a", "b")]


def test_what_connect_answers_can_be_saved_and_read_and_its_own_word_for_the_state_counts():
    (spec,) = read_specs(
        ["-"],
        stdin=b'{"name": "a", "config": {"connector.class": "x"}, "tasks": [{"connector": "a", "task": 0}],'
        b' "type": "source", "initial_state": "STOPPED"}',
    )
    assert (spec.state, spec.config) == (WantedState.STOPPED, {"connector.class": "x"})


def test_json_takes_engine_state_and_offsets_beside_the_config():
    (spec,) = read_specs(
        ["-"],
        stdin=b'{"name": "a", "engine": "spark", "state": "paused", "config": {"connector.class": "x"},'
        b' "offsets": [{"partition": {"p": 1}, "offset": {"o": 1.0}}]}',
    )
    assert (spec.engine, spec.state) == (Engine.SPARK, WantedState.PAUSED)
    assert spec.offsets == Positions([Position("a", Map({"p": 1}), Map({"o": 1.0}))])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{\n "name": "a",\n "name": "b",\n "connector.class": "x"}',
            ["3: the key 'name' is given twice, here and in line 2"],
        ),
        ('{"name": "a"\n "b": 1}', ["2: this is not JSON: A ',' or '}' is expected (column 2)"]),
        ('{"name": "a",\n}', ["2: this is not JSON: A key in double quotes is expected (column 1)"]),
        ('{"name": NaN}', ["1: this is not JSON: Not a usable number (column 10)"]),
        (
            '{"name": "a", "config": {"connector.class": "x"}}\nx',
            ["2: this is not JSON: Extra text after the end of the JSON (column 1)"],
        ),
        (
            "[1,\n2]",
            [
                "1: every item of the list must be a connector: an object",
                "2: every item of the list must be a connector: an object",
            ],
        ),
        ('{"connector.class":\n "x"}', ["1: the connector has no 'name'"]),
        (
            '{"name": "a",\n"connector.class": null}',
            [
                "1: connector 'a' has no 'connector.class'",
                "2: 'connector.class' has no value; write \"\" for an empty text, or leave the key out",
            ],
        ),
        (
            '{"name": "a", "connector.class": "x",\n"k": {"v": 1}}',
            ["2: the value of 'k' is a table, and Connect takes only text; write the whole key on one line: k.v: ..."],
        ),
        (
            '{"name": "a",\n"config": {"connector.class": "x"},\n"stat": "running"}',
            ["3: unknown key 'stat'; did you mean state?"],
        ),
        (
            '{"name": "a", "config": {"connector.class": "x",\n"name": "b"}}',
            ["2: the 'name' in the config of 'a' is another one; leave it out"],
        ),
        (
            '{"name": "a", "config": {"connector.class": "x"},\n"state": "paused",\n"initial_state": "PAUSED"}',
            ["3: 'state' and 'initial_state' say the same thing; keep one of them"],
        ),
        ('{"name": "a", "connector.class": "x", "k": "\\ud800"}', ["1: the value of 'k' is not Unicode text"]),
        ('{"name": ["a"], "connector.class": "x"}', ["1: 'name' is a list"]),
        ("[" * 60, ["1: this is not JSON: Too many levels (column 52)"]),
    ],
)
def test_a_fault_in_json_has_its_line(text, expected):
    assert faults(text) == expected


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("", "is empty"),
        (" a", "begins or ends with a blank, which Connect cuts off"),
        ("a\\tb", "holds a control character, which Connect refuses"),
    ],
)
def test_a_name_connect_would_change_or_refuse_is_a_fault(name, what):
    (fault,) = faults(f'{{"name": "{name}", "connector.class": "x"}}')
    assert fault.endswith(what)


@pytest.mark.parametrize("name", ["a/b", "50%", "a b", 'say "hi"', "übér😀", "a.b-c_d", "a\xa0", "{a}"])
def test_other_names_are_taken_as_they_are(name):
    quoted = name.replace('"', '\\"')
    assert read_specs(["-"], stdin=f'{{"name": "{quoted}", "connector.class": "x"}}'.encode())[0].name == name


def test_properties_follow_javas_rules():
    text = (
        "# a comment\n! another\nname : a\nconnector.class=x\nquery=select \\\n    1\n"
        "accent=\xe9 \\u00e9\nblank key\ntwice=1\ntwice=2\n"
    )
    (spec,) = read_specs(["-"], stdin=text.replace("name : a", "name=a").encode("iso-8859-1").replace(b"\xe9", b"e"))
    assert spec.config == {
        "connector.class": "x", "query": "select 1", "accent": "e é", "blank": "key", "twice": "2",
    }  # fmt: skip
    assert spec.origins["query"] == Origin("stdin", 5, "connector a")


def test_properties_are_read_as_latin_1_as_java_does(tmp_path):
    path = tmp_path / "a.properties"
    path.write_bytes(b"name=a\nconnector.class=x\nk=\xe9\n")
    assert read_specs([path])[0].config["k"] == "é"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("connector.class=x\n", ["1: the connector has no 'name'"]),
        ("\n\nnam=a\nconnector.class=x\n", ["3: the connector has no 'name'"]),
        ("name=a\n", ["1: connector 'a' has no 'connector.class'"]),
        ("name=a\nconnector.class=\n", ["2: connector 'a' has no 'connector.class'"]),
        ("name=a\nk=\\u12\n", ["2: malformed escape: four hexadecimal digits must follow '\\u'"]),
    ],
)
def test_a_fault_in_properties_has_its_line(text, expected):
    assert faults(text) == expected


def test_files_folders_and_stdin_are_read_in_order_and_each_file_once(tmp_path):
    for name in ("b.json", "a.yaml", "c.yml", "d.properties"):
        form = {
            "json": '{{"name": "{0}", "connector.class": "x"}}',
            "properties": "name={0}\nconnector.class=x\n",
        }.get(name[2:], "connectors: {{{0}: {{config: {{connector.class: x}}}}}}")
        (tmp_path / name).write_text(form.format(name[0]))
    (tmp_path / "e.py").write_text("raise SystemExit('a folder must not run me')")
    (tmp_path / ".f.yaml").write_text("not: mine")
    (tmp_path / "g.txt").write_text("not mine")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "h.yaml").write_text("not: mine")
    specs = read_specs(["-", tmp_path, str(tmp_path / "a.yaml"), "-"], stdin=b'{"name": "z", "connector.class": "x"}')
    assert [spec.name for spec in specs] == ["z", "a", "b", "c", "d"]
    assert [spec.origin.where for spec in specs][:2] == ["stdin", str(tmp_path / "a.yaml")]


def test_a_file_without_an_ending_of_ours_is_recognised_by_its_text(tmp_path):
    path = tmp_path / "63"
    path.write_text("name=a\nconnector.class=x\n")
    assert read_specs([path])[0].name == "a"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("  \n{", "json"),
        ("[", "json"),
        ("# c\n! d\nname = a", "properties"),
        ("connection.url=jdbc:x", "properties"),
        ("connectors: {}", "yaml"),
        ("common:\n  k: a=b", "yaml"),
        ("---\n", "yaml"),
        ("name: a=b", "yaml"),
        ("", "yaml"),
    ],
)
def test_the_first_line_shows_the_form(text, form):
    from playhead.connectors.files.read import form_of

    assert form_of(text) == form


def test_files_that_cannot_be_read_are_reported_together_with_the_faults_of_the_others(tmp_path):
    (tmp_path / "bad.json").write_bytes(b'{\n"name": "\xff"}')
    (tmp_path / "two.json").write_text("{")
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "x.py").write_text("")
    reported = file_faults(tmp_path / "missing.yaml", tmp_path / "bad.json", tmp_path / "two.json", empty)
    assert reported == [
        "empty: no connector file (.json, .yaml, .yml, .properties) is in this folder; "
        "a Python file runs only when it is named itself",
        "missing.yaml: No such file or directory",
        "bad.json:2: the file is not UTF-8 text",
        "two.json:1: this is not JSON: A key in double quotes is expected (column 2)",
    ]


def test_stdin_that_was_not_given_is_a_fault():
    with pytest.raises(ConfigInvalid, match="nothing was given on stdin"):
        read_specs(["-"])


def test_no_fault_repeats_a_value_which_may_be_a_password():
    canary = "hunter2{canary"
    texts = [
        f"connectors:\n  a_{{t}}:\n    for: {{t: [x]}}\n    config:\n      password: '{canary}'\n",
        f"connectors:\n  a:\n    config:\n      password: {{x: '{canary}'}}\n      password: '{canary}'\n",
        f"connectors:\n  a:\n    config: {{password: [['{canary}']]}}\n",
        f"connectors:\n  a:\n    config: {{password: ['{canary},']}}\n",
        f'{{"name": "a", "password": {{"x": "{canary}"}}}}',
        f'{{"name": "a", "password": "{canary}\\ud800"}}',
        f"name=a\npassword={canary}\\u12\n",
        f"connectors: '{canary}'",
        f"connectors: [a: '{canary}'",
        f'connectors: {{a: {{config: {{p: "{canary}\\q"}}}}}}',
    ]
    for text in texts:
        assert "hunter2" not in "\n".join(faults(text)), text


def test_the_yaml_of_the_documentation_is_read():
    page = (EXAMPLES.parent / "docs" / "connector-files.md").read_text()
    first = page.partition("```yaml\n")[2].partition("```")[0]
    specs = read_specs(["-"], stdin=first.encode())
    assert [spec.name for spec in specs] == ["code_tables", "log_login", "log_purchase", "log_chat"]
