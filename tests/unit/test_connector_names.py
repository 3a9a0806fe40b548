"""Which connectors a word means, and what a trace says."""

import pytest

from playhead.connectors.names import choose_names, find_names
from playhead.connectors.traces import cause_first, cause_of, find_verdict
from playhead.errors import Invalid, NotFound, PlayheadError

KNOWN = ["orders-a", "orders-b", "users", "odd[1]", "odd1"]


def test_a_pattern_means_every_connector_it_matches_and_each_only_once():
    assert find_names(["users", "orders-*", "orders-a"], KNOWN) == ["users", "orders-a", "orders-b"]
    assert find_names(["orders-?"], KNOWN) == ["orders-a", "orders-b"]
    assert find_names(["ORDERS-*", "*"], ["ORDERS-x"]) == ["ORDERS-x"]


def test_a_name_that_exists_is_that_connector_even_if_it_looks_like_a_pattern():
    assert find_names(["odd[1]"], KNOWN) == ["odd[1]"]
    assert find_names(["odd[1]"], ["odd1"]) == ["odd1"]


def test_no_word_at_all_means_all_of_them_only_where_that_is_meant():
    assert choose_names([], KNOWN) == sorted(KNOWN)
    assert choose_names(["users"], KNOWN) == ["users"]
    assert find_names([], KNOWN) == []


def test_a_word_that_means_nothing_is_answered_with_near_names():
    with pytest.raises(NotFound, match="connector 'user' does not exist") as caught:
        find_names(["user"], KNOWN)
    assert caught.value.hint == "did you mean users?"
    with pytest.raises(NotFound, match="connector like 'orderz-\\*' does not exist") as caught:
        find_names(["orderz-*"], KNOWN)
    assert "orders-a" in str(caught.value.hint)


def test_all_unknown_words_are_reported_at_once():
    with pytest.raises(PlayheadError) as caught:
        find_names(["users", "user", "zz*"], KNOWN)
    assert [line.split(";")[0] for line in caught.value.what.splitlines()] == [
        "connector 'user' does not exist",
        "connector like 'zz*' does not exist",
    ]
    assert caught.value.exit_code == 1


def test_an_empty_name_is_a_mistake_of_the_user():
    with pytest.raises(Invalid, match="must not be empty"):
        find_names([""], KNOWN)


# Traces

NESTED = """org.apache.kafka.connect.errors.ConnectException: Tolerance exceeded in error handler
\tat org.apache.kafka.connect.runtime.X.y(X.java:1)
Caused by: org.apache.kafka.connect.errors.DataException: Converting byte[] to Kafka Connect data failed
\tat a.b.C.d(C.java:2)
Caused by: org.apache.kafka.common.errors.SerializationException: com.fasterxml.X: Unexpected character: ConfigException
\t... 12 more
"""


def chain(*thrown: str) -> str:
    return "\nCaused by: ".join(f"{one}\n\tat x.Y.z(Y.java:1)" for one in thrown)


def test_the_last_cause_is_the_cause():
    said = (
        "org.apache.kafka.common.errors.SerializationException: com.fasterxml.X: Unexpected character: ConfigException"
    )
    assert cause_of(NESTED) == said
    assert str(cause_first(NESTED)).splitlines()[:2] == [f"Caused by: {said}", NESTED.splitlines()[0]]
    assert cause_of("java.lang.RuntimeException\n\tat x") == "java.lang.RuntimeException"
    assert cause_first("java.lang.RuntimeException\n\tat x") == "java.lang.RuntimeException\n\tat x"
    assert (cause_of(None), cause_of(""), cause_of("\n"), cause_first(None)) == (None, None, None, None)


@pytest.mark.parametrize(
    ("thrown", "why"),
    [
        (["java.lang.ClassNotFoundException: com.acme.Sink"], "class"),
        (["org.apache.kafka.connect.errors.ConnectException: Failed to find any class that implements X"], "class"),
        (["a.B: c", "java.lang.NoClassDefFoundError: org/x/Y"], "class"),
        (["a.B: c", "org.apache.kafka.common.errors.SaslAuthenticationException: no"], "authentication"),
        (
            ["a.B: c", "org.postgresql.util.PSQLException: FATAL: password authentication failed for user"],
            "authentication",
        ),
        (["a.B: c", "java.sql.SQLException: Access denied for user 'x'@'y'"], "authentication"),
        (["a.B: c", "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized"], "access"),
        (["org.apache.kafka.common.errors.TransactionalIdAuthorizationException: no"], "access"),
        (["a.B: c", "org.apache.kafka.common.config.ConfigException: Missing x"], "configuration"),
        (["a.B: c", "org.apache.kafka.common.errors.ProducerFencedException: There is a newer producer"], "fenced"),
        (["org.apache.kafka.common.errors.InvalidProducerEpochException: Producer attempted"], "fenced"),
    ],
)
def test_causes_that_a_restart_cannot_cure_are_distinguished(thrown, why):
    verdict = find_verdict(chain(*thrown))
    assert verdict is not None and why in verdict.why
    assert verdict.fenced == (why == "fenced")


@pytest.mark.parametrize(
    "trace",
    [
        None,
        "",
        NESTED,  # the word stands in a message, which comes from a record
        "java.lang.RuntimeException",
        chain("org.apache.kafka.connect.errors.RetriableException: x", "java.net.ConnectException: Connection refused"),
        "a.B: x\n\tat org.apache.kafka.common.config.ConfigException.<init>(ConfigException.java:1)",
    ],
)
def test_anything_else_may_be_tried_again(trace):
    assert find_verdict(trace) is None


def test_fenced_counts_before_everything_else():
    trace = chain(
        "org.apache.kafka.common.errors.ProducerFencedException: newer",
        "org.apache.kafka.common.config.ConfigException: x",
    )
    verdict = find_verdict(trace)
    assert verdict is not None and verdict.fenced
