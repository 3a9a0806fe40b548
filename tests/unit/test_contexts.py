"""Which setting is in force, and who said so; secrets are never among what is shown."""

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.config import Setting, load_files, open_context, save_context
from playhead.config.contexts import as_value, parse_duration, user_file
from playhead.config.secrets import is_sensitive
from playhead.errors import ConfigInvalid, Invalid
from playhead.model import Secret

CANARY = "canary-91c2"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory below a project, and a config folder, both empty and only this test's."""
    for name in [name for name in os.environ if name.startswith("PLAYHEAD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    work = tmp_path / "project" / "deep" / "er"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def project(text: str) -> Path:
    return write(Path.cwd() / "playhead.toml", text)


def test_flag_beats_environment_beats_file_beats_default(monkeypatch):
    assert (open_context().get("timeout"), open_context().settings["timeout"].origin) == ("30s", "default")
    path = project('current = "a"\n[contexts.a]\ntimeout = "1m"\n')
    assert open_context().settings["timeout"] == Setting("1m", f"{path}:3")
    monkeypatch.setenv("PLAYHEAD_TIMEOUT", "2m")
    assert open_context().settings["timeout"] == Setting("2m", "$PLAYHEAD_TIMEOUT")
    flagged = open_context(None, {"timeout": "3m"})
    assert flagged.settings["timeout"] == Setting("3m", "--timeout")
    assert flagged.timeout_seconds == 180


def test_an_empty_variable_says_nothing(monkeypatch):
    monkeypatch.setenv("PLAYHEAD_TIMEOUT", "")
    assert open_context().settings["timeout"].origin == "default"


def test_the_file_is_found_upwards_and_the_nearest_counts(home):
    far = write(home / "project" / "playhead.toml", '[contexts.far]\nconnect = "http://far"\n')
    assert [file.path for file in load_files()] == [far]
    near = write(home / "project" / "deep" / "playhead.toml", '[contexts.near]\nconnect = "http://near"\n')
    assert [file.path for file in load_files()] == [near]


def test_the_users_file_is_read_too_and_the_nearer_context_wins_whole():
    write(
        user_file(), 'current = "b"\n[contexts.a]\nconnect = "http://u"\ntimeout = "9s"\n[contexts.b]\ntimeout = "8s"\n'
    )
    project('[contexts.a]\nconnect = "http://p"\n')
    context = open_context("a")
    assert context.connect_urls == ["http://p"]
    assert context.get("timeout") == "30s"
    assert open_context().name == "b"


def test_playhead_config_names_the_only_file(home, monkeypatch):
    project('current = "a"\n[contexts.a]\ntimeout = "5s"\n')
    only = write(home / "other.toml", 'current = "x"\n[contexts.x]\ntimeout = "6s"\n')
    monkeypatch.setenv("PLAYHEAD_CONFIG", str(only))
    assert (open_context().name, open_context().get("timeout")) == ("x", "6s")
    monkeypatch.setenv("PLAYHEAD_CONFIG", str(home / "nowhere.toml"))
    with pytest.raises(ConfigInvalid, match=r"nowhere\.toml: .*No such file"):
        open_context()


def test_the_context_is_chosen_by_name_then_variable_then_file(monkeypatch):
    project('current = "a"\n' + "".join(f'[contexts.{n}]\nbootstrap-servers = "{n}:1"\n' for n in "abc"))
    assert open_context().get("bootstrap-servers") == "a:1"
    monkeypatch.setenv("PLAYHEAD_CONTEXT", "b")
    assert open_context().name == "b"
    assert open_context("c").name == "c"


def test_a_context_that_is_not_there_is_answered_with_the_right_spelling():
    project("[contexts.production]\n")
    with pytest.raises(Invalid, match=r"^context 'producton' does not exist$") as caught:
        open_context("producton")
    assert caught.value.hint == "did you mean production?"


def test_without_any_file_a_named_context_is_answered_with_where_we_looked():
    with pytest.raises(Invalid, match=r"^context 'a' does not exist$") as caught:
        open_context("a")
    assert str(user_file().parent) in (caught.value.hint or "")


def test_every_fault_is_reported_at_once_with_file_and_line():
    path = project(
        'curent = "a"\ncurrent = 5\n\n[contexts.a]\nconect = "http://x"\nconnect = "host:8083"\n'
        'timeout = "soon"\nkafka = "x"\n\n[contexts.a.connect-ca]\nx = 1\n[contexts.b]\nbootstrap-servers = 2020-01-01\n'
    )
    other = write(user_file(), "[contexts.u]\ntimeout = -1\n")
    with pytest.raises(ConfigInvalid) as caught:
        open_context()
    reported = {(fault.where, fault.line): fault.what for fault in caught.value.faults}
    assert reported == {
        (str(path), 1): "unknown key 'curent'; did you mean current?",
        (str(path), 2): "'current' must be the name of a context",
        (str(path), 5): "unknown key 'conect'; did you mean connect or connect-ca or connect-key?",
        (str(path), 6): "'host:8083' is not a Connect URL; write it like http://host:8083",
        (str(path), 7): "'soon' is not a duration; write it like 500ms, 30s, 2m or 1h",
        (str(path), 8): "'kafka' must be a table",
        (str(path), 11): "'connect-ca' must be a value, not a table",
        (str(path), 13): "'bootstrap-servers' must be a string, a number, true or false, or a list of strings",
        (str(other), 2): "'-1' is not a duration; write it like 500ms, 30s, 2m or 1h",
    }
    assert f"{path}:5: unknown key 'conect'" in caught.value.what


@pytest.mark.parametrize("text", ["contexts = 5\n", "contexts.a = 5\n"])
def test_a_context_must_be_a_table(text):
    path = project(text)
    with pytest.raises(ConfigInvalid, match=rf"^{path}:1: .*must be a table"):
        open_context()


def test_broken_toml_is_reported_with_its_line():
    path = project('[contexts.a]\nconnect = "http://x"\nconnect =\n')
    with pytest.raises(ConfigInvalid) as caught:
        open_context()
    assert [(fault.where, fault.line) for fault in caught.value.faults] == [(str(path), 3)]


def test_an_origin_is_the_right_line_after_multi_line_strings_odd_comments_and_quoted_keys():
    path = project(
        "# one\u2028\x85 still one\n"
        '[contexts."my.own"]  # [not this]\nbootstrap-servers = [\n  "a:1",\n  "b:2",\n]\n\n[contexts."my.own".kafka]\n'
        '"sasl.jaas.config" = """\n[contexts.fake]\nclient.id = x\n"""\n"client.id" = \'me\'\n'
    )
    context = open_context("my.own")
    origins = {key: setting.origin for key, setting in context.settings.items() if setting.origin != "default"}
    assert origins == {
        "bootstrap-servers": f"{path}:3",
        "kafka.sasl.jaas.config": f"{path}:9",
        "kafka.client.id": f"{path}:13",
    }
    assert context.get("bootstrap-servers") == "a:1,b:2"


def test_a_relative_path_counts_from_the_file_that_names_it(home, monkeypatch):
    write(
        home / "project" / "playhead.toml",
        '[contexts.a]\nworker-config = "conf/w.properties"\nconnect-ca = "/ca.pem"\n',
    )
    context = open_context("a")
    assert context.path("worker-config") == home / "project" / "conf" / "w.properties"
    assert context.path("connect-ca") == Path("/ca.pem")
    assert open_context("a", {"worker-config": "w.properties"}).path("worker-config") == Path("w.properties")
    monkeypatch.setenv("HOME", str(home))
    assert open_context(None, {"command-config": "~/c.properties"}).path("command-config") == home / "c.properties"


def test_tables_have_dotted_keys_and_minus_x_overrides_them():
    path = project('[contexts.a.kafka]\n"client.id" = "me"\nsession.timeout.ms = 5\n"x.y" = true\n')
    context = open_context("a", {"kafka.client.id": "you"})
    assert context.table("kafka") == {
        "client.id": Setting("you", "-X"),
        "session.timeout.ms": Setting("5", f"{path}:3"),
        "x.y": Setting("true", f"{path}:4"),
    }
    assert context.table("spark") == {}


def test_references_are_resolved_only_where_the_value_is_used(monkeypatch):
    project('[contexts.a]\nconnect = "${env:URL}"\nconnect-password = "${env:PASSWORD}"\ntimeout = "${env:TIME}"\n')
    context = open_context("a")  # nothing is set yet, and nothing was asked for
    monkeypatch.setenv("URL", "http://one, http://two")
    monkeypatch.setenv("PASSWORD", CANARY)
    monkeypatch.setenv("TIME", "7s")
    assert context.connect_urls == ["http://one", "http://two"]
    assert context.get("connect-password") == CANARY
    assert context.timeout_seconds == 7
    assert context.settings["connect-password"].shown == "${env:PASSWORD}"


def test_a_secret_is_in_nothing_that_is_shown(monkeypatch):
    project(
        f'[contexts.a]\nconnect = "http://u:{CANARY}@one:1,https://{CANARY}@two/x"\nconnect-password = "{CANARY}"\n'
        f'[contexts.a.kafka]\n"sasl.jaas.config" = "password={CANARY}"\n"ssl.key.password" = "${{x}}{CANARY}"\n'
        f'[contexts.a.spark]\n"spark.hadoop.fs.s3a.secret.key" = "{CANARY}"\n'
    )
    monkeypatch.setenv("PLAYHEAD_CONNECT_TOKEN", CANARY)
    context = open_context("a", {"kafka.sasl.password": CANARY})
    texts = [repr(context), str(context), f"{context}", repr(load_files())]
    for setting in context.settings.values():
        texts += [
            setting.shown,
            repr(setting),
            str(setting),
            f"{setting}",
            f"{setting.value}" * isinstance(setting.value, Secret),
        ]
    assert [text for text in texts if CANARY in text] == []
    assert context.settings["connect"].shown == "http://***@one:1,https://***@two/x"
    assert context.settings["connect-token"].shown == "***"
    assert sum(CANARY in setting.text for setting in context.settings.values()) == 7


@pytest.mark.parametrize("url", [f"htp://u:{CANARY}@host", f"u:{CANARY}@host:8083", f"http://ok,u:{CANARY}@host"])
def test_a_refused_url_is_shown_without_its_password(url):
    project(f'[contexts.a]\nconnect = "{url}"\n')
    for name, flags in ((None, {"connect": url}), ("a", {})):
        with pytest.raises(Invalid, match=r"\*\*\*@host.*is not a Connect URL") as caught:
            open_context(name, flags)
        assert CANARY not in str(caught.value)


SECRETS = [
    *[
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.truststore.password",
        "sasl.password",
        "sasl.jaas.config",
        "basic.auth.user.info",
    ],
    *[
        "schema.registry.basic.auth.user.info",
        "connect-token",
        "connect-password",
        "connection.password",
        "sasl.oauthbearer.client.secret",
    ],
    *[
        "ssl.keystore.key",
        "ssl.key.pem",
        "aws.secret.access.key",
        "spark.hadoop.fs.s3a.access.key",
        "fs.azure.account.key.x.net",
        "api.key",
    ],
    *["private.key", "SSL.KEY.PASSWORD", "azure.credentials", "bearer.token", "proxy.authorization"],
]
OPEN = [
    *[
        "ssl.key.location",
        "group.initial.key",
        "sasl.mechanism",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.username",
        "client.id",
    ],
    *[
        "key.converter",
        "ssl.keystore.location",
        "ssl.truststore.location",
        "connect",
        "connect-key",
        "connect-cert",
        "connect-username",
    ],
    *[
        "bootstrap-servers",
        "message.key.columns",
        "partition.key",
        "ssl.keystore.type",
        "monkey",
        "private.key.location",
    ],
]


@pytest.mark.parametrize("key", SECRETS)
def test_the_value_of_a_secret_key_is_wrapped(key):
    assert is_sensitive(key)
    assert as_value(key, CANARY) == Secret(CANARY)


@pytest.mark.parametrize("key", OPEN)
def test_an_open_key_is_left_readable(key):
    assert not is_sensitive(key)
    assert as_value(key, "x") == "x"


@pytest.mark.parametrize("text", ["${env:X}", "${file:/a:b}", "${dir:/a:b}"])
def test_a_reference_to_a_secret_may_be_shown(text):
    assert as_value("sasl.password", text) == text


@pytest.mark.parametrize("text", ["${hunter2}", "${my:hunter2}", "${env:A}hunter2", "x${env:A}", "${env:A}${env:B}"])
def test_what_only_looks_like_a_reference_is_a_secret(text):
    assert as_value("sasl.password", text) == Secret(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("2m", 120), ("1h", 3600), ("1.5", 1.5), (" 5 s ", 5)]
)
def test_a_duration_is_read_in_its_unit(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "0s", "-1s", "5 days", "s", "1e3", "nan", "1s2"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(Invalid, match="is not a duration"):
        parse_duration(text)


@given(st.integers(1, 10**6), st.sampled_from(["ms", "s", "m", "h"]))
def test_a_duration_written_is_read_back(number, unit):
    assert parse_duration(f"{number}{unit}") == pytest.approx(number * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit])


def test_saving_and_opening_gives_back_the_same_settings():
    settings = {
        "bootstrap-servers": "a:1",
        "kafka.client.id": "me",
        "connect": "http://c",
        "spark.spark.master": "local[2]",
    }
    path = save_context("my.own", settings)
    context = open_context()
    assert path == user_file()
    assert context.name == "my.own"
    assert {k: s.text for k, s in context.settings.items() if s.origin != "default"} == settings
    assert set(tomllib.loads(path.read_text())) == {"current", "contexts"}


def test_a_context_named_by_a_flag_is_not_led_away_by_the_environment(tmp_path, monkeypatch):
    """After `eval "$(playhead lab env)"` a command for production must still go to production."""
    Path("playhead.toml").write_text('[contexts.prod]\nbootstrap-servers = "prod:1"\nconnect = "http://prod:2"\n')
    monkeypatch.setenv("PLAYHEAD_BOOTSTRAP_SERVERS", "lab:1")
    monkeypatch.setenv("PLAYHEAD_CONNECT", "http://lab:2")
    monkeypatch.setenv("PLAYHEAD_WORKER_CONFIG", "/lab/worker.properties")
    monkeypatch.setenv("PLAYHEAD_CONNECT_TOKEN", "needed")
    context = open_context("prod")
    assert (context.get("bootstrap-servers"), context.connect_urls) == ("prod:1", ["http://prod:2"])
    assert context.get("worker-config") is None
    assert context.get("connect-token") == "needed"
    assert open_context(None, {}).get("bootstrap-servers") == "lab:1"
