"""Which settings are masked, line by line: by name, by form, and by a random value under a name that leaves it open.

What people need to read in a plan stays visible: the second table. A line of either is `key`, `value`, and what is shown.
"""

import pytest
from confluent_kafka import KafkaError
from sqlalchemy.exc import OperationalError

from playhead.config.contexts import as_value
from playhead.config.scrub import Scrub
from playhead.config.secrets import MASK, SecretKeys, masked_config
from playhead.connectors.export import exported
from playhead.connectors.plan.model import Running
from playhead.kafka.faults import fault_of as kafka_fault_of
from playhead.model import Secret
from playhead.model.connector import WantedState
from playhead.pipeline.spark_faults import fault_in
from playhead.sql.faults import fault_of as sql_fault_of

C = "c4n4ry"
PEM = f"-----BEGIN PRIVATE KEY-----\nMIIE{C}\nabc\n-----END PRIVATE KEY-----"
RSA = f"-----BEGIN RSA PRIVATE KEY----- MIIE{C} -----END RSA PRIVATE KEY-----"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIE\n-----END CERTIFICATE-----"
# In pieces, so that no scanner of repositories takes these for real ones.
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N"
AWS_ID = "AKIA" + "IOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY1"[:18]
HEX = "9f8a7b6c5d4e3f2a" + "1b0c9d8e7f6a5b4c"
UUID = "8c5b1d2e-4f3a-4b6c-9d7e-1a2b3c4d5e6f"
BASIC = "YWRtaW46aHVudGVyMg=="  # admin:hunter2

MASKED = [
    ("bearer", C, MASK),
    ("http.bearer", C, MASK),
    ("auth", C, MASK),
    ("sink.auth", f"user:{C}", MASK),
    ("http.auth.header", C, MASK),
    ("db.pass", C, MASK),
    ("dbPass", C, MASK),
    ("ftp.pwd", C, MASK),
    ("mq.passwd", C, MASK),
    ("vault.creds", C, MASK),
    ("session.cookie", C, MASK),
    ("salesforce.consumer.key", C, MASK),
    ("salesforce.consumerKey", C, MASK),
    ("datadog.app.key", C, MASK),
    ("datadog.application_key", C, MASK),
    ("azure.subscription-key", C, MASK),
    ("pubsub.shared.key", C, MASK),
    ("confluent.license.key", C, MASK),
    ("webhook.hmac.key", C, MASK),
    ("clientSecret", C, MASK),
    ("apiKey", C, MASK),
    ("connection.password", f"/{C}", MASK),
    ("http.headers", f"Authorization: Bearer {C}|X-Api-Key: {C}", f"Authorization: {MASK}|X-Api-Key: {MASK}"),
    ("headers", f"Content-Type: text/json|X-Auth-Token:{C}", f"Content-Type: text/json|X-Auth-Token:{MASK}"),
    ("http.request.headers", f"Accept: */*, Api-Token: {C}", f"Accept: */*, Api-Token: {MASK}"),
    ("any", f"Authorization: Basic {C}", f"Authorization: {MASK}"),
    ("any", f"cookie: sid={C}", f"cookie: {MASK}"),
    ("any", PEM, MASK),
    ("topic", PEM, MASK),
    ("note", f"key is {RSA} ok", f"key is {MASK} ok"),
    ("any", f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{C} and no end", MASK),
    ("any", f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{C}\\n-----END OPENSSH PRIVATE KEY-----", MASK),
    ("any", f"{CERTIFICATE}\n{PEM}", f"{CERTIFICATE}\n{MASK}"),
    ("any", JWT, MASK),
    ("any", f"x {JWT} y", f"x {MASK} y"),
    ("any", f"Bearer {HEX}", f"Bearer {MASK}"),
    ("any", f"Basic {BASIC}", f"Basic {MASK}"),
    ("any", AWS_ID, MASK),
    ("any", AWS_SECRET, MASK),
    ("any", f"{AWS_ID}:{AWS_SECRET}", f"{MASK}:{MASK}"),
    ("any", "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", MASK),
    ("any", "xoxb" + "-123456789012-abcdefGHIJKL", MASK),
    ("any", "https://hooks.slack.com/services/" + f"T0/B0/{C}", f"https://hooks.slack.com/services/{MASK}"),
    ("endpoint", f"https://app:{C}@host/x", f"https://app:{MASK}@host/x"),
    ("endpoints", f"http://a:{C}@one,http://b:{C}@two", f"http://a:{MASK}@one,http://b:{MASK}@two"),
    ("proxy", f"socks5://{C}@host", f"socks5://{MASK}@host"),
    ("ledger", f"postgresql://app:{C}@host/shop", f"postgresql://app:{MASK}@host/shop"),
    ("any", f"https://{C}@postgresql/x", f"https://{MASK}@postgresql/x"),
    ("target", f"AccountName=a;AccountKey={C};Suffix=x", f"AccountName=a;AccountKey={MASK};Suffix=x"),
    ("jdbc.properties", f"user=app,password={C}", f"user=app,password={MASK}"),
    ("properties", f"password={C}", f"password={MASK}"),
    ("jvm.options", f"-Xmx1g -Dkey.password={C}", f"-Xmx1g -Dkey.password={MASK}"),
    ("keyfile", f'{{"type": "service", "private_key": "{C}"}}', f'{{"type": "service", "private_key": "{MASK}"}}'),
    ("login", f"o.a.PlainLoginModule requird user=a password={C}", MASK),
    ("my.key", HEX, MASK),
    ("partner_key", UUID, MASK),
    ("x.signature", "q1W2e3R4t5Y6u7I8o9P0", MASK),
]
VISIBLE = [
    ("ledger", "postgresql://playhead@127.0.0.1:5432/lab"),
    ("connection.url", "jdbc:postgresql://app@host/shop"),
    ("target", "postgresql+psycopg://app@host/shop"),
    ("topic", "orders"),
    ("topics", "orders,customers.v2,shop.public.orders_2024"),
    ("topics.regex", "shop\\..*"),
    ("topic.prefix", "a1-b2-c3-d4-e5-"),
    ("name", "orders-src-2024-11-16"),
    ("connector.class", "io.confluent.connect.jdbc.JdbcSourceConnector"),
    ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ("value.converter.schema.registry.url", "http://registry:8081"),
    ("header.converter", "org.apache.kafka.connect.storage.SimpleHeaderConverter"),
    ("table.whitelist", "public.orders,public.tokens,public.passwords"),
    ("table.name.format", "auth_${topic}"),
    ("query", "select token, password from t where password=secret"),
    ("query", "select * from users where auth = 'basic' and key = 9"),
    ("incrementing.column.name", "id"),
    ("message.key.columns", "shop.orders:id;shop.tokens:token_id"),
    ("pk.fields", "order_id,line_no"),
    ("partition.key", "customer_id"),
    ("record.key", "order_line_2024"),
    ("primary.key", "customer2_region"),
    ("session.key", "session_id"),
    ("consumer.key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"),
    ("consumer.override.group.id", "orders-2024"),
    ("transforms", "mask,route,token"),
    ("transforms.token.type", "org.apache.kafka.connect.transforms.MaskField$Value"),
    ("transforms.token.fields", "password,token"),
    ("transforms.route.regex", "(.*)_secret"),
    ("transforms.route.replacement", "$1"),
    ("file", "/var/data/orders.txt"),
    ("ssl.keystore.location", "/etc/ssl/client.p12"),
    ("ssl.key.location", "/etc/ssl/client.key"),
    ("gcp.credentials.path", "/etc/gcp/key.json"),
    ("credentials.file", "/etc/c.properties"),
    ("password.file", "/run/secrets/db"),
    ("secret.name", "prod/orders/db"),
    ("token.expiry.ms", "3600000"),
    ("tokenizer.language", "english"),
    ("sasl.oauthbearer.token.endpoint.url", "https://login/oauth2/token"),
    ("auth", "basic"),
    ("auth", "none"),
    ("http.auth", "/etc/http/auth.conf"),
    ("auth", "com.shop.security.HeaderAuth"),
    ("http.auth.type", "bearer"),
    ("auth.mode", "IAM"),
    ("bearer.auth.credentials.source", "STATIC_TOKEN"),
    ("value.converter.basic.auth.credentials.source", "USER_INFO"),
    ("sasl.mechanism", "SCRAM-SHA-512"),
    ("security.protocol", "SASL_SSL"),
    ("passive.mode", "true"),
    ("compass.direction", "north"),
    ("delegation.token.enabled", "true"),
    ("description", "Basic authentication, Bearer tokens and cookies"),
    ("http.headers", "Content-Type: application/json|Accept: */*"),
    ("http.api.url", "https://api.shop.example:8443/v1/orders?page=1&key=id"),
    ("connection.url", "jdbc:postgresql://db:5432/shop?user=app&sslmode=require"),
    ("s3.bucket.name", "shop-lake-2024-eu1a"),
    ("s3.region", "eu-central-1"),
    ("any", "5f4dcc3b5aa765d61d8327deb882cf99"),
    ("commit", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
    ("any", CERTIFICATE),
    ("snapshot.select.statement.overrides", "shop.keys,shop.auth"),
    ("any", "OrdersFromTheWarehouseToTheShippingDesk1"),
    ("timestamp", "2026-11-16T08:00:00Z"),
    ("tasks.max", "8"),
    ("database.server.id", "184054"),
    ("auth", "${file:/run/s.properties:auth}"),
    ("http.headers", "Authorization: ${file:/run/s.properties:auth}"),
]


@pytest.mark.parametrize(("key", "value", "shown"), MASKED)
def test_a_secret_is_masked(key, value, shown):
    assert masked_config({key: value}) == {key: shown}


@pytest.mark.parametrize(("key", "value"), VISIBLE)
def test_what_people_need_to_read_stays_visible(key, value):
    assert masked_config({key: value}) == {key: value}


def test_the_tables_are_long_enough_to_mean_something():
    assert min(len(MASKED), len(VISIBLE)) >= 40


@pytest.mark.parametrize(("key", "value", "shown"), MASKED)
def test_what_is_masked_once_stays_as_it_is(key, value, shown):
    assert SecretKeys().masked(key, shown) == shown


@pytest.mark.parametrize("text", [PEM, JWT, AWS_ID, f"Authorization: Bearer {C}", f"Bearer {HEX}"])
def test_a_setting_of_a_context_is_secret_by_its_form(text):
    assert as_value("kafka.any", text) == Secret(text)


@pytest.mark.parametrize(
    "text",
    [
        f"rejected: password={C}",
        f"rejected: password='{C} and more'",
        f'rejected: db.password = "{C}" (500)',
        f'{{"password": "{C}"}}',
        f'{{"error": "{{\\"password\\": \\"{C}\\"}}"}}',
        f"{{'api_key': '{C}'}}",
        f"request had Authorization: Bearer {C}",
        f"-H 'X-Api-Key: {C}'",
        f"cannot read {PEM} at line 3",
        f"auth={C}",
        f"bearer={C}, topic=x",
        f"salesforce.consumer.key={C}",
        f'Module required username="u" password="{C} is not closed',
        f"Value not specified for key '{C}' in JAAS config",
        f"Invalid login module control flag '{C}' in JAAS config",
    ],
)
def test_an_error_text_is_scrubbed_without_knowing_the_secret(text):
    scrubbed = Scrub()(text)
    assert C not in scrubbed
    assert MASK in scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "Basic authentication failed for user app",
        "Bearer token is missing",
        "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [orders]",
        "Unexpected token: expected }",
        "Connector orders not found; topic=orders, tasks.max=3, auth=basic",
        "Failed to find any class that implements Connector and which name matches x.Y",
        'relation "public.tokens" does not exist',
        "http://worker:8083/connectors/orders/status",
    ],
)
def test_an_error_text_without_a_secret_is_left_alone(text):
    assert Scrub()(text) == text


def test_every_word_of_a_malformed_jaas_string_is_known_to_the_scrub():
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password=hun ter2word;'
    literals = SecretKeys().literals({"sasl.jaas.config": jaas})
    scrubbed = Scrub(literals)("unknown word ter2word after hun in PlainLoginModule required username")
    assert scrubbed == "unknown word *** after *** in PlainLoginModule required username"


def test_an_exported_header_becomes_a_reference_and_keeps_its_name():
    config = {"connector.class": "X", "http.headers": f"Authorization: Bearer {C}|Accept: */*|X-Api-Key: {C}2"}
    running = Running("web", config, WantedState.RUNNING)
    spec, replaced = exported(running, SecretKeys())
    assert spec.config["http.headers"] == (
        "Authorization: ${env:WEB_HTTP_HEADERS_2}|Accept: */*|X-Api-Key: ${env:WEB_HTTP_HEADERS}"
    )
    assert [item.key for item in replaced] == ["http.headers"]


def test_errors_of_kafka_and_of_databases_are_scrubbed():
    refused = KafkaError(KafkaError.INVALID_CONFIG, f"Invalid value for sasl.password={C} {HEX}")
    assert kafka_fault_of(refused, "creating", [HEX]).what == (
        "creating: Invalid value for sasl.password=*** *** (INVALID_CONFIG)"
    )
    broken = OperationalError("select 1", None, Exception(f"cannot reach host=db password={C} for {HEX}"))
    assert sql_fault_of(broken, "reading", Scrub([HEX])).what == "reading: cannot reach host=db password=*** for ***"
    assert fault_in(f"java.sql.SQLException: jdbc:postgresql://db/x?password={C}", "planning").what == (
        "planning: jdbc:postgresql://db/x?password=***"
    )
