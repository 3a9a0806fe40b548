"""A secret leaves through reveal() and through nothing else."""

import copy
import json
import logging
import pickle
import traceback
from dataclasses import asdict, dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.model import Secret

CANARY = "canary-3b1f"


@dataclass(frozen=True)
class Holder:
    value: Secret


def test_every_way_to_make_text_of_it_gives_stars():
    secret = Secret(CANARY)
    shown = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r}",
        "%s" % secret,
        "{}".format(secret),  # noqa: UP032
        secret.__format__(""),
    ]
    assert set(shown) == {"***"}
    assert f"{secret:>6}" == "   ***"
    assert str([secret]) == "[***]"
    assert repr(Holder(secret)) == "Holder(value=***)"


def test_it_is_revealed_only_by_asking():
    assert Secret(CANARY).reveal() == CANARY


def test_a_log_line_shows_stars(caplog):
    with caplog.at_level(logging.WARNING):
        logging.getLogger("test").warning("using %s", Secret(CANARY))
    assert caplog.messages == ["using ***"]


@pytest.mark.parametrize(
    "write", [pickle.dumps, copy.copy, copy.deepcopy, json.dumps, msgspec.json.encode, msgspec.to_builtins]
)
def test_what_would_write_it_in_clear_is_refused_without_telling_it(write):
    with pytest.raises(TypeError) as caught:
        write(Secret(CANARY))
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_dataclass_turned_into_a_dict_does_not_copy_it():
    with pytest.raises(TypeError, match="cannot be pickled"):
        asdict(Holder(Secret(CANARY)))


def test_it_has_no_dict_to_look_into():
    assert not hasattr(Secret(CANARY), "__dict__")


@given(st.text(st.characters()), st.text(st.characters()))
def test_secrets_are_equal_when_their_text_is(one, other):
    assert (Secret(one) == Secret(other)) is (one == other)
    assert Secret(one) == Secret(one)
    assert hash(Secret(one)) == hash(Secret(one))


def test_a_secret_is_not_equal_to_its_text():
    assert Secret(CANARY) != CANARY
