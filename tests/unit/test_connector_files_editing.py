"""Edits of a YAML file: what was asked for changes, every other byte stays. The oracles are known bytes and ruamel's loader."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from playhead.connectors.files.documents import read_yaml
from playhead.connectors.files.edit import YamlEdit, edit_yaml
from playhead.connectors.files.nodes import Page
from playhead.model import ConnectorSpec, WantedState
from unit.test_connector_files_writing import TEXTS

FILE = """\
# Who to call: the data team.
common:                       # for all of them
  connection.url: jdbc:postgresql://db/shop   # the replica

  tasks.max: 1
connectors:

  # the code tables
  codes:
    state: running            # since May
    config:
      connector.class: 'x.Source'    # aiven's
      batch.size: 100         # more is slower
      # poll.interval.ms: 5000
      query: |   # one SQL
        select *
          from t

      mode: "bulk"
      tables:
      - countries   # 200 rows
      - units
      # - currencies

  orders: {config: {connector.class: x.Source, topic: "o", list: [a, b], more: 'it''s'}}   # short
# the end
"""


def edited(text: str, name: str, settings: Mapping[str, str | None], state: str | None = None, new=()) -> str:
    page = Page("f.yaml")
    after = edit_yaml(page, text, [YamlEdit(name, settings, state)] if name else [], new)
    assert page.faults == []
    return after


def faults(text: str, name: str, settings: Mapping[str, str | None]) -> list[str]:
    page = Page("f.yaml")
    edit_yaml(page, text, [YamlEdit(name, settings)])
    return [str(fault) for fault in page.faults]


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    old, new = before.split("\n"), after.split("\n")
    return [line for line in old if line not in new], [line for line in new if line not in old]


def specs(text: str) -> dict[str, ConnectorSpec]:
    page = Page("f.yaml")
    found = read_yaml(page, text)
    assert page.faults == []
    return {spec.name: spec for spec in found}


@pytest.mark.parametrize(
    ("name", "settings", "gone", "come"),
    [
        ("codes", {"batch.size": "500"}, ["      batch.size: 100         # more is slower"],
         ["      batch.size: 500         # more is slower"]),
        ("codes", {"batch.size": "yes"}, ["      batch.size: 100         # more is slower"],
         ['      batch.size: "yes"         # more is slower']),
        ("codes", {"connector.class": "y'z"}, ["      connector.class: 'x.Source'    # aiven's"],
         ["      connector.class: 'y''z'    # aiven's"]),
        ("codes", {"mode": "a\nb"}, ['      mode: "bulk"'], ['      mode: "a\\nb"']),
        ("codes", {"batch.size": None}, ["      batch.size: 100         # more is slower"], []),
        ("codes", {"tasks.max": "3"}, [], ['      tasks.max: "3"']),
        ("codes", {"tasks.max": None}, [], ["      tasks.max: null"]),
        ("codes", {"query": "select 1\n  from u\n"}, ["        select *", "          from t"],
         ["        select 1", "          from u"]),
        ("codes", {"query": "select 1"}, ["      query: |   # one SQL", "        select *", "          from t"],
         ["      query: |-   # one SQL", "        select 1"]),
        ("codes", {"query": " x"}, ["      query: |   # one SQL", "        select *", "          from t"],
         ['      query: " x"']),
        ("codes", {"tables": "countries,units,x y"}, [], ["      - x y"]),
        ("codes", {"tables": "units"}, ["      - countries   # 200 rows"], []),
        ("codes", {"tables": "states,units"}, ["      - countries   # 200 rows"], ["      - states   # 200 rows"]),
        ("codes", {"tables": ""}, ["      tables:", "      - countries   # 200 rows", "      - units"],
         ['      tables: ""']),
        ("orders", {"topic": "p", "list": "a,b,c d", "more": "is it, or {not}"},
         ['  orders: {config: {connector.class: x.Source, topic: "o", list: [a, b], more: \'it\'\'s\'}}   # short'],
         ['  orders: {config: {connector.class: x.Source, topic: "p", list: [a, b, c d], more: \'is it, or {not}\'}}   # short']),
        ("orders", {"connector.class": "a,b", "topic": None, "new": "1"},
         ['  orders: {config: {connector.class: x.Source, topic: "o", list: [a, b], more: \'it\'\'s\'}}   # short'],
         ['  orders: {config: {connector.class: "a,b", list: [a, b], more: \'it\'\'s\', new: "1"}}   # short']),
    ],
)  # fmt: skip
def test_only_the_value_that_differs_is_written(name, settings, gone, come):
    after = edited(FILE, name, settings)
    assert changed_lines(FILE, after) == (gone, come)
    before = specs(FILE)[name].config
    wanted = {k: v for k, v in {**before, **settings}.items() if v is not None}
    assert specs(after)[name].config == wanted


def test_the_state_is_edited_in_its_place_and_every_comment_stays():
    after = edited(FILE, "codes", {"batch.size": "7", "new.key": "x"}, "paused")
    assert changed_lines(FILE, after) == (
        ["    state: running            # since May", "      batch.size: 100         # more is slower"],
        [
            "    state: paused            # since May",
            "      batch.size: 7         # more is slower",
            "      new.key: x",
        ],
    )
    assert re.findall(r"#.*", after) == re.findall(r"#.*", FILE)


@pytest.mark.parametrize(
    ("config", "gone", "left"),
    [
        ("{a: 1, b: 2, c: 3}", "a", "{b: 2, c: 3}"),
        ("{a: 1, b: 2, c: 3}", "b", "{a: 1, c: 3}"),
        ("{a: 1, b: 2, c: 3}", "c", "{a: 1, b: 2}"),
        ("{a: 1, b: 2, c: 3}", "ab", "{c: 3}"),
        ("{a: 1, b: 2, c: 3}", "bc", "{a: 1}"),
        ("{a: 1, b: 2, c: 3}", "ac", "{b: 2}"),
        ("{a: 1, b: 2, c: 3,}", "abc", "{,}"),
        ("{a: 1, # first\n      b: 2, c: 3}", "b", "{a: 1, # first\n      c: 3}"),
        ("{a: 1, # first\n      b: 2, c: 3}", "bc", "{a: 1, # first\n      }"),
    ],
)
def test_keys_in_braces_go_with_their_comma(config, gone, left):
    text = f"common: {{connector.class: x}}\nconnectors:\n  n:\n    config: {config}\n"
    after = edit_yaml(Page("f"), text, [YamlEdit("n", dict.fromkeys(gone))])
    assert after == text.replace(config, left)
    if left != "{,}":  # not YAML any more; what reads the edit again refuses it
        assert YAML(typ="safe").load(after)["connectors"]["n"]["config"].keys() == set("abc") - set(gone)


def test_a_config_without_any_key_left_is_still_a_config():
    text = "common: {connector.class: x}\nconnectors:\n  n:\n    config:   # mine\n      a: 1\n      # b: 2\n"
    after = edited(text, "n", {"a": None})
    assert after == "common: {connector.class: x}\nconnectors:\n  n:\n    config: {}   # mine\n      # b: 2\n"
    assert specs(after)["n"].config == {"connector.class": "x"}


def test_an_empty_value_and_a_null_are_filled_in():
    text = "common: {a: 1, b: 2, connector.class: x}\nconnectors:\n  n:\n    config:\n      a:   # gone\n      b: null # too\n"
    assert edited(text, "n", {"a": "7", "b": "8"}) == text.replace("a:   #", "a: 7   #").replace("b: null", "b: 8")


def test_line_endings_and_a_missing_last_one_are_kept_in_order():
    text = "connectors:\r\n  n:\r\n    config:\r\n      connector.class: x   # c\r\n      b: 2"
    after = edited(text, "n", {"connector.class": "yy", "z": "1"})
    assert after == text.replace(": x", ": yy") + '\r\n      z: "1"\r\n'


def test_new_connectors_follow_the_last_one_and_say_only_what_common_does_not():
    spec = ConnectorSpec(
        "new one", {"connector.class": "x.Source", "tasks.max": "1", "b": "true"}, state=WantedState.PAUSED
    )
    after = edited(FILE, "orders", {"topic": "p"}, new=[spec])
    block = """\
  "new one":
    state: paused
    config:
      connector.class: x.Source
      b: "true"
      connection.url: null
# the end
"""
    assert after == FILE.replace('topic: "o"', 'topic: "p"').replace("# the end\n", block)
    assert specs(after)["new one"].config == spec.config


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("connectors: {}   # none yet\n", 'connectors:   # none yet\n  one:\n    config:\n      connector.class: x\n'),
        ("connectors: {m: {config: {connector.class: y}}}\n",
         "connectors: {m: {config: {connector.class: y}}, one: {config: {connector.class: x}}}\n"),
        ("{connectors: {}}\n", "{connectors: {one: {config: {connector.class: x}}}}\n"),
        ("connectors:\n    m:\n        config: {connector.class: y}\n\n---\nconnectors:\n    o: {config: {connector.class: y}}\n",
         "connectors:\n    m:\n        config: {connector.class: y}\n\n---\nconnectors:\n    o: {config: {connector.class: y}}\n"
         "    one:\n      config:\n        connector.class: x\n"),
    ],
)  # fmt: skip
def test_a_new_connector_finds_its_place_in_any_shape_of_file(text, after):
    assert edited(text, "", {}, new=[ConnectorSpec("one", {"connector.class": "x"})]) == after
    assert specs(after)["one"].config == {"connector.class": "x"}


def test_what_is_shared_is_refused_with_its_line():
    text = """\
connectors:
  a:
    config: &base
      connector.class: x
  b:
    config:
      <<: *base
      url: &url there
      other: *url
  c:
    config: *base
"""
    assert faults(text, "a", {"connector.class": "yy"}) == [
        "f.yaml:3: the block of 'a' is shared by an anchor or an alias; write it out"
    ]
    assert faults(text, "c", {"connector.class": "yy"}) == [
        "f.yaml:11: the block of 'c' is shared by an anchor or an alias; write it out"
    ]
    assert faults(text, "b", {"connector.class": None, "url": "x"}) == [
        "f.yaml:4: 'connector.class' of 'b' comes from '<<'; write it out",
        "f.yaml:8: the value of 'url' is shared by the anchor &url; write it out",
    ]
    after = edited(text, "b", {"connector.class": "yy", "other": "here"})
    assert after == text.replace("other: *url\n", "other: here\n      connector.class: yy\n")


VALUES = st.dictionaries(
    st.sampled_from(["batch.size", "query", "mode", "tables", "topic", "list", "more", "tasks.max", "extra", "a b"]),
    st.none() | TEXTS,
)  # fmt: skip


@given(st.sampled_from(["codes", "orders"]), VALUES)
def test_any_edit_reads_back_and_touches_no_other_connector(name, wanted):
    before = specs(FILE)
    held = before[name].config
    settings = {key: text for key, text in wanted.items() if text is not None or key in held}
    after = edited(FILE, name, settings)
    found = specs(after)
    assert found[name].config == {k: v for k, v in {**held, **settings}.items() if v is not None}
    assert {n: s for n, s in found.items() if n != name} == {n: s for n, s in before.items() if n != name}
    loaded = YAML(typ="safe").load(after)["connectors"][name]["config"]
    assert {
        key: loaded[key] for key, text in settings.items() if text and isinstance(loaded[key], str)
    }.items() <= settings.items()
