"""References are resolved as Kafka's own providers do it, once, and only where a provider is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.config import resolve
from playhead.config.references import PLAIN_PROVIDERS, declared_providers, has_reference
from playhead.errors import ConfigInvalid, Invalid

KAFKA = "org.apache.kafka.common.config.provider."


def test_an_environment_variable_is_put_in(monkeypatch):
    monkeypatch.setenv("DB_USER", "ann")
    assert resolve("${env:DB_USER}") == "ann"
    assert resolve("jdbc:${env:DB_USER}@db") == "jdbc:ann@db"


def test_several_references_in_one_value_are_all_put_in(monkeypatch):
    monkeypatch.setenv("A", "1")
    monkeypatch.setenv("B", "2")
    assert resolve("${env:A}-${env:B}-${env:A}") == "1-2-1"


def test_a_resolved_value_is_not_looked_at_again(monkeypatch):
    monkeypatch.setenv("A", "${env:B}")
    monkeypatch.setenv("B", "never")
    assert resolve("${env:A}") == "${env:B}"


def test_a_key_of_a_properties_file_is_read_as_utf_8(tmp_path):
    (tmp_path / "db.properties").write_text("user=ann\npassword=p\\u00e4ß\n", encoding="utf-8")
    assert resolve(f"${{file:{tmp_path}/db.properties:password}}") == "päß"


def test_a_file_without_a_key_is_the_value_itself(tmp_path):
    (tmp_path / "token").write_text("abc\n")
    assert resolve(f"${{file:{tmp_path}/token}}") == "abc"


def test_a_file_in_a_directory_is_a_value_and_keeps_its_bytes(tmp_path):
    (tmp_path / "password").write_text("abc\n")
    assert resolve(f"${{dir:{tmp_path}:password}}") == "abc\n"


def test_a_key_cannot_climb_out_of_its_directory(tmp_path):
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "inside").mkdir()
    with pytest.raises(Invalid, match="cannot be resolved"):
        resolve(f"${{dir:{tmp_path}/inside:../outside}}")


@pytest.mark.parametrize(
    "text", ["${vault:secret/db:password}", "${unknown:x}", "${env}", "$env:HOME", "{env:HOME}", "$$"]
)
def test_what_no_provider_is_known_for_stays_as_it_is(text):
    assert resolve(text) == text


def test_only_the_given_providers_resolve(monkeypatch):
    monkeypatch.setenv("A", "1")
    assert resolve("${env:A}", {}) == "${env:A}"
    assert resolve("${e:A} ${env:A}", {"e": "env"}) == "1 ${env:A}"


@pytest.mark.parametrize(
    "reference", ["${env:NOT_THERE_AT_ALL}", "${file:/no/such/file:key}", "${file:/no/such}", "${dir:/no:x}"]
)
def test_a_reference_that_leads_to_nothing_is_named(reference):
    with pytest.raises(Invalid) as caught:
        resolve(reference)
    assert f"the reference {reference} cannot be resolved" in caught.value.what


def test_a_key_its_file_does_not_have_is_named_without_the_other_values(tmp_path):
    path = tmp_path / "db.properties"
    path.write_text("password=canary")
    with pytest.raises(Invalid) as caught:
        resolve(f"${{file:{path}:pasword}}")
    assert f"${{file:{path}:pasword}} cannot be resolved" in caught.value.what
    assert "canary" not in caught.value.what


def test_a_file_that_is_no_text_is_refused_without_its_bytes(tmp_path):
    (tmp_path / "key").write_bytes(b"canary\xff\xfe")
    for reference in (f"${{file:{tmp_path}/key}}", f"${{file:{tmp_path}/key:a}}", f"${{dir:{tmp_path}:key}}"):
        with pytest.raises(Invalid, match="is not to a UTF-8 text file") as caught:
            resolve(reference)
        assert "canary" not in str(caught.value)


def test_a_malformed_properties_file_is_named_with_its_line(tmp_path):
    (tmp_path / "db.properties").write_text("a=1\nb=\\u12")
    with pytest.raises(ConfigInvalid, match=r"db\.properties:2: malformed escape"):
        resolve(f"${{file:{tmp_path}/db.properties:a}}")


def test_an_environment_reference_with_a_path_is_refused_as_in_kafka(monkeypatch):
    monkeypatch.setenv("B", "1")
    with pytest.raises(Invalid, match="has a path"):
        resolve("${env:A:B}")


def test_a_provider_only_the_worker_has_is_refused_with_a_way_out():
    with pytest.raises(Invalid, match=r"^only the worker can resolve \$\{vault:a:b\}$") as caught:
        resolve("${vault:a:b}", {"vault": "other"})
    assert caught.value.hint
    assert "--command-config" in caught.value.hint


def test_declared_providers_are_known_by_their_class():
    declared = declared_providers(
        {
            "config.providers": "f, e,d ,vault,unset",
            "config.providers.f.class": KAFKA + "FileConfigProvider",
            "config.providers.e.class": KAFKA + "EnvVarConfigProvider",
            "config.providers.d.class": KAFKA + "DirectoryConfigProvider",
            "config.providers.vault.class": "com.example.Vault",
            "config.providers.other.class": KAFKA + "FileConfigProvider",
        }
    )
    assert declared == {"f": "file", "e": "env", "d": "dir", "vault": "other", "unset": "other"}


def test_no_declaration_is_no_provider():
    assert declared_providers({}) == {}
    assert declared_providers({"config.providers": " , "}) == {}


@given(st.text(st.sampled_from("${}:ab/")))
def test_a_text_changes_only_where_it_has_a_reference(text):

    assert resolve(text, {}) == text
    if not has_reference(text):
        assert resolve(text, PLAIN_PROVIDERS) == text


@pytest.mark.parametrize(
    ("text", "has"), [("${a:b}", True), ("x${a:b:c}y", True), ("${a}", False), ("$a:b", False), ("", False)]
)
def test_a_reference_is_known_by_its_colon(text, has):
    assert has_reference(text) is has
