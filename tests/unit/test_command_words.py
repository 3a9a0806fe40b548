"""Words that people try on every noun: they read, or are answered; no suggestion names a verb that changes something."""

import re

import click
import pytest

from playhead.cli.main import COMMANDS, root

TRIED = ("get", "ls", "status", "diff", "create", "cat", "describe", "show", "list")
CHANGING = {
    "connectors": {"apply", "pause", "resume", "stop", "restart", "delete", "watch", "log-level", "export"},
    "topics": {"create", "alter", "delete"},
    "offsets": {"set", "reset", "delete", "copy", "import", "apply", "undo", "export", "convert"},
    "groups": {"reset", "delete"},
    "runs": {"stop"},
    "lab": {"up", "down"},
    "config": {"use-context"},
}
TYPOS = (
    "lst",
    "sets",
    "rest",
    "rset",
    "delet",
    "restar",
    "ap",
    "aply",
    "stopp",
    "puase",
    "sow",
    "unddo",
    "alte",
    "u",
    "rum",
)


def group_of(noun: str) -> tuple[click.Group, click.Context]:
    context = click.Context(root, info_name="playhead")
    group = root.get_command(context, noun)
    assert isinstance(group, click.Group)
    return group, click.Context(group, info_name=noun, parent=context)


def answer_of(noun: str, *words: str) -> tuple[str | None, str]:
    """The verb that these words run, or what is said to them."""
    group, context = group_of(noun)
    try:
        name, _, _ = group.resolve_command(context, list(words))
    except click.UsageError as error:
        return None, error.format_message()
    return name, ""


def test_the_nouns_of_these_tests_are_all_nouns_and_their_verbs_exist():
    context = click.Context(root)
    assert set(CHANGING) == {name for name in COMMANDS if isinstance(root.get_command(context, name), click.Group)}
    for noun, verbs in CHANGING.items():
        group, context = group_of(noun)
        assert verbs <= set(group.list_commands(context))


@pytest.mark.parametrize("word", TRIED)
@pytest.mark.parametrize("noun", CHANGING)
def test_a_word_that_people_try_reads_or_is_answered(noun, word):
    verb, said = answer_of(noun, word, "orders")
    if verb is None:
        assert word in ("diff", "create"), said
        assert re.search(r"playhead [a-z]+ |playhead\.toml|--help", said), said
    else:
        assert verb not in CHANGING[noun] or (noun, word) == ("topics", "create")


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("connectors get", "list"),
        ("connectors get orders", "show"),
        ("connectors get --connect http://a:8083", "list"),
        ("connectors get --connect http://a:8083 orders", "show"),
        ("connectors status", "list"),
        ("connectors status orders", "show"),
        ("connectors ls", "list"),
        ("connectors cat orders", "show"),
        ("connectors diff -f orders.yaml", "plan"),
        ("offsets diff orders.json", "diff"),
        ("offsets get -o json", "list"),
        ("topics cat orders", "records"),
        ("topics get orders", "show"),
        ("groups status billing", "show"),
        ("runs ls", "list"),
        ("config ls", "contexts"),
        ("config get", "view"),
        ("lab status", "status"),
        ("lab ls", "status"),
        ("lab cat connect", "logs"),
    ],
)
def test_the_verb_that_a_word_means(words, verb):
    assert answer_of(*words.split())[0] == verb


def test_create_says_how():
    assert "playhead connectors apply -f FILE" in answer_of("connectors", "create", "orders")[1]
    assert "--create" in answer_of("offsets", "create")[1]
    assert "playhead groups reset" in answer_of("groups", "create")[1]
    assert "playhead run FILE" in answer_of("runs", "create")[1]


@pytest.mark.parametrize("typo", TYPOS)
@pytest.mark.parametrize("noun", CHANGING)
def test_a_suggestion_never_changes_anything(noun, typo):
    verb, said = answer_of(noun, typo)
    assert verb is None
    suggested = re.findall(r"[a-z-]+", said.partition("did you mean")[2])
    assert set(suggested).isdisjoint(CHANGING[noun])


def test_a_misspelt_reading_verb_is_suggested():
    assert answer_of("connectors", "lst") == (None, "no such command 'lst'; did you mean list?")
    assert answer_of("topics", "recods")[1].endswith("did you mean records?")


def test_of_the_root_only_nouns_are_suggested():
    context = click.Context(root, info_name="playhead")
    with pytest.raises(click.UsageError, match=r"did you mean runs\?$"):
        root.resolve_command(context, ["runn"])
    with pytest.raises(click.UsageError, match=r"the noun comes first: playhead connectors get$"):
        root.resolve_command(context, ["get", "connectors"])


def test_the_words_are_not_listed():
    for noun in CHANGING:
        group, context = group_of(noun)
        assert not {"get", "ls", "cat", "describe"} & set(group.list_commands(context))
