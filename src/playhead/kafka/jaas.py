"""`sasl.jaas.config`: one login module with its options, in Java's syntax.

librdkafka does not support JAAS. Kafka's own modules are translated into librdkafka settings. Any other module is code that only
a JVM can run, and two of them (JNDI, LDAP) are known attack tools: they are refused by name.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from playhead.errors import Invalid

_MODULE = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION = re.compile(r"""\s*([\w.$-]+)\s*=\s*("(?:\\.|[^"\\\r\n])*"|'(?:\\.|[^'\\\r\n])*'|[^\s;"']+)""")
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    name: str
    options: dict[str, str]


def parse_jaas(text: str) -> LoginModule:
    """The single module of a JAAS string. The text is secret and never part of an error message."""
    module = _MODULE.match(text)
    if not module:
        raise Invalid("sasl.jaas.config does not start with a login module and 'required'")
    options: dict[str, str] = {}
    at = module.end()
    while option := _OPTION.match(text, at):
        options[option.group(1)] = _unquoted(option.group(2))
        at = option.end()
    rest = text[at:].strip()
    if rest[:1] != ";":
        raise Invalid("sasl.jaas.config is malformed: the options of its login module must end with a ';'")
    if rest[1:].strip():
        raise Invalid("sasl.jaas.config names more than one login module; Kafka accepts exactly one")
    return LoginModule(module.group(1), options)


def _unquoted(value: str) -> str:
    return _ESCAPE.sub(_unescaped, value[1:-1]) if value[0] in "\"'" else value


def _unescaped(escape: re.Match[str]) -> str:
    """Same escapes as in the tokenizer of Kafka's JAAS reader (java.io.StreamTokenizer): C's letters and octal numbers."""
    code = escape.group(1)
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)


def _user_and_password(options: dict[str, str]) -> dict[str, str]:
    return {"sasl.username": options.get("username", ""), "sasl.password": options.get("password", "")}


def _kerberos(options: dict[str, str]) -> dict[str, str]:
    names = {
        "keyTab": "sasl.kerberos.keytab",
        "principal": "sasl.kerberos.principal",
        "serviceName": "sasl.kerberos.service.name",
    }
    return {new: options[old] for old, new in names.items() if old in options}


def _oauth(options: dict[str, str]) -> dict[str, str]:
    settings = {"sasl.oauthbearer.method": "oidc"}
    names = {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    }
    settings |= {new: options[old] for old, new in names.items() if old in options}
    extensions = [f"{k.removeprefix('extension_')}={v}" for k, v in options.items() if k.startswith("extension_")]
    if extensions:
        settings["sasl.oauthbearer.extensions"] = ",".join(extensions)
    return settings


_KAFKA = "org.apache.kafka.common.security."
_MODULES: dict[str, Callable[[dict[str, str]], dict[str, str]]] = {
    _KAFKA + "plain.PlainLoginModule": _user_and_password,
    _KAFKA + "scram.ScramLoginModule": _user_and_password,
    _KAFKA + "oauthbearer.OAuthBearerLoginModule": _oauth,
    "com.sun.security.auth.module.Krb5LoginModule": _kerberos,
}


def jaas_settings(text: str) -> dict[str, str]:
    """The librdkafka settings that mean the same as this JAAS string."""
    module = parse_jaas(text)
    translate = _MODULES.get(module.name)
    if translate is None:
        raise Invalid(
            f"the login module {module.name} runs only inside a JVM",
            "use PLAIN, SCRAM, GSSAPI or OAUTHBEARER, or set librdkafka settings with -X",
        )
    return translate(module.options)
