"""No literal secret leaves a config: not by its key, its type, a URL, a JAAS string or an error text. References stay visible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.config.scrub import Scrub
from playhead.config.secrets import MASK, SecretKeys, is_reference, masked_config

CANARY = "c4n4ry"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="%s";'


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("connection.password", CANARY, MASK),
        ("connection.password", "${file:/run/s.properties:db}", "${file:/run/s.properties:db}"),
        ("connection.password", "${env:A}${vault:b:c}", "${env:A}${vault:b:c}"),
        ("connection.password", f"x{CANARY}${{env:A}}", f"{MASK}${{env:A}}"),
        ("connection.url", f"jdbc:postgresql://db/shop?user=app&password={CANARY}", f"jdbc:postgresql://db/shop?user=app&password={MASK}"),
        ("connection.url", f"jdbc:sqlserver://db;user=app;Password={CANARY};x=1", f"jdbc:sqlserver://db;user=app;Password={MASK};x=1"),
        ("connection.url", f"jdbc:sqlserver://db;pwd={{a;{CANARY}}};x=1", f"jdbc:sqlserver://db;pwd={MASK};x=1"),
        ("connection.url", f"jdbc:oracle:thin:scott/{CANARY}@//db:1521/x", f"jdbc:oracle:thin:scott/{MASK}@//db:1521/x"),
        ("connection.url", "jdbc:postgresql://db/shop?password=${env:PW}&ssl=true", "jdbc:postgresql://db/shop?password=${env:PW}&ssl=true"),
        ("connection.uri", f"mongodb://app:{CANARY}@m1:27017,m2:27017/x?a=b@c", f"mongodb://app:{MASK}@m1:27017,m2:27017/x?a=b@c"),
        ("connection.uri", f"mongodb://app:a/{CANARY}@m1", f"mongodb://app:{MASK}@m1"),
        ("registry", f"http://{CANARY}@host,http://u:{CANARY}@other", f"http://{MASK}@host,http://u:{MASK}@other"),
        ("hub", f"Endpoint=sb://x;SharedAccessKeyName=app;SharedAccessKey={CANARY}=", f"Endpoint=sb://x;SharedAccessKeyName=app;SharedAccessKey={MASK}"),
        ("producer.override.sasl.jaas.config", JAAS % CANARY, JAAS % MASK),
        ("x.login", JAAS % CANARY, JAAS % MASK),
        ("x.login", JAAS % "${file:/run/s:db}", JAAS % "${file:/run/s:db}"),
        ("sasl.jaas.config", f"{JAAS % CANARY} odd {CANARY}", MASK),
        ("sasl.jaas.config", CANARY, MASK),
    ],
)  # fmt: skip
def test_only_the_secret_part_is_masked(key, value, shown):
    assert masked_config({key: value}) == {key: shown}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topic", "orders"),
        ("connection.url", "jdbc:postgresql://db:5432/shop?application=a@b"),
        ("query", "select token, password from t where password=secret"),
        ("value.converter.basic.auth.credentials.source", "USER_INFO"),
        ("transforms.token.type", "org.apache.kafka.connect.transforms.MaskField$Value"),
        ("ssl.keystore.password", ""),
        ("delegation.token.enabled", "true"),
        ("table.whitelist", "*"),
    ],
)
def test_what_is_no_secret_stays_visible(key, value):
    assert masked_config({key: value}) == {key: value}


def test_the_types_of_the_worker_decide_over_the_name():
    keys = SecretKeys.of_types({"pin": "PASSWORD", "tokens": "LIST", "access.key.id": "STRING"})
    config = {"pin": "1234", "tokens": "a,b", "access.key.id": "AKIA"}
    assert {key: keys.masked(key, value) for key, value in config.items()} == {
        "pin": MASK,
        "tokens": "a,b",
        "access.key.id": MASK,
    }


@pytest.mark.parametrize(
    ("key", "value", "is_mask"),
    [
        ("connection.password", "******", True),
        ("connection.password", "*", True),
        ("connection.password", "[hidden]", True),
        ("anything", "********", True),
        ("connection.url", "jdbc:postgresql://db/x?password=****", True),
        ("connection.url", "http://app:****@db", True),
        ("sasl.jaas.config", JAAS % "****", True),
        ("topics.regex", "*", False),
        ("connection.password", "${env:STARS}", False),
        ("connection.password", CANARY, False),
    ],
)
def test_a_mask_is_distinguished_from_a_value(key, value, is_mask):
    assert SecretKeys().is_masked(key, value) is is_mask


def test_a_scrub_takes_known_secrets_out_in_every_spelling():
    scrub = Scrub(["p@ss w/rd", 'quo"te'])
    assert "p@ss" not in scrub("login p@ss w/rd, p%40ss%20w%2Frd and p%40ss%20w/rd failed")
    assert scrub(r'{"a": "quo\"te"} quo"te') == f'{{"a": "{MASK}"}} {MASK}'


@pytest.mark.parametrize(
    "text",
    [
        f"Connector config {{connection.user=app, connection.password={CANARY} and more, topic=x}} contains no connector type",
        f"Caused by: X: cannot reach jdbc:postgresql://db/shop?user=a&password={CANARY}&ssl=true",
        f"http://app:{CANARY}@registry:8081/subjects failed",
        f'could not log in with {JAAS % CANARY}',
        f'{{"connection.password": "{CANARY}"}}',
        f"jdbc:oracle:thin:scott/{CANARY}@db",
    ],
)  # fmt: skip
def test_a_scrub_finds_secrets_that_it_was_not_given(text):
    assert CANARY not in Scrub()(text)


def test_a_scrub_leaves_other_words_alone():
    text = "Caused by: ConfigException: password authentication failed for user app, topic=orders, password=${env:PW}"
    assert Scrub(["to"])(text) == text


def test_a_value_without_a_literal_is_a_reference():
    assert is_reference("${file:a:b}")
    assert not is_reference("x${file:a:b}")
    assert not is_reference("${HOME}")
    assert not is_reference("")


PLAIN = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="${}*"), min_size=4, max_size=30
)


@given(secret=PLAIN)
def test_no_literal_of_a_password_key_survives_masking_and_scrubbing(secret):
    keys = SecretKeys({"pin"})
    config = {"pin": secret, "topic": "t"}
    assert keys.masked("pin", secret) == MASK
    scrubbed = Scrub(keys.literals(config))(f"failed with <{secret}>")
    assert scrubbed == f"failed with <{MASK}>" or secret not in scrubbed


@given(value=PLAIN)
def test_replacing_the_secret_parts_by_a_reference_leaves_no_literal(value):
    keys = SecretKeys()
    for key, text in (("connection.password", value), ("url", f"jdbc:postgresql://h/d?password={value}&x=1")):
        replaced = keys.replaced(key, text, lambda _: "${env:X}")
        assert keys.replaced(key, replaced, lambda _: "!") == replaced
