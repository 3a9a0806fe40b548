"""Finds the secret parts of a connector's config and masks them in everything that is shown or stored.

Secrets are: values of keys that the worker types PASSWORD, values of keys named like one, passwords in URLs (userinfo,
parameters, Oracle's `user/password@`), and options of a JAAS string. `${provider:...}` references reveal nothing and stay
visible. A mask that a server returns in place of a secret (`******`, `[hidden]`) is recognised and never sent back.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from playhead.config.contexts import is_sensitive

MASK = "***"
Span = tuple[int, int]
_REFERENCE = re.compile(r"\$\{[^}]*:[^}]*\}")
_MASKED = re.compile(
    r"\*{3,}|[\u2022\u25cf]{3,}|[\[(<{](hidden|redacted|masked|sensitive|sensitive value)[\])>}]", re.IGNORECASE
)
_STARS = re.compile(r"\*+")
# Named like a secret, but holds only its location or its kind.
_HARMLESS = re.compile(r"credentials?\.(source|provider(\.class)?)$|\.(type|class|plugin\.version)$", re.IGNORECASE)
# A password may hold an unescaped / or ?, against the rules; `host:5432/` is no password.
_USERINFO = re.compile(r"://(?:([^\s/?#]*)@|([^\s/?#:@]+:(?!\d+(?:[/?#,]|$))\S*)@)")
_ORACLE = re.compile(r"jdbc:oracle:\w+:[^/\s@]+/(\"[^\"]*\"|[^\s@]+)@", re.IGNORECASE)
_ADDRESS = re.compile(r"\s*(jdbc:|[a-z][\w+.-]*://|[\w ]+=[^;=]*;\s*[\w ]+=)", re.IGNORECASE)
_PARAMETER = re.compile(r"(?:^|[?&;,\s(])([\w.-]+)=((?:\$\{[^}]*\}|\{[^}]*\}|[^&;\s{}])*)")
_SHORT_NAMES = frozenset({"pwd", "pass", "passwd", "sharedaccesskey", "sharedaccesssignature", "sig"})
_MODULE = re.compile(r"\s*[\w.$]+\s+(required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION = re.compile(r"""\s*([\w.$-]+)\s*=\s*("(?:\\.|[^"\\\r\n])*"|'(?:\\.|[^'\\\r\n])*'|[^\s;"']+)""")
_OPEN_OPTIONS = frozenset(
    {
        "username", "principal", "keytab", "usekeytab", "storekey", "useticketcache", "servicename", "clientid", "scope", "debug",
        "refreshkrb5config",
    }
)  # fmt: skip
_IN_MAP = re.compile(r"(?<=[{ ])([\w.-]+)=((?>\$\{[^}]*\}|.)*?)(?=, [\w.-]+=|\})")
_IN_TEXT = re.compile(r"""([\w.-]+)\s*=\s*("[^"]*"|'[^']*'|(?>\$\{[^}]*\}|[^\s,;&})])+)""")
_IN_JSON = re.compile(r'"([\w.-]+)"\s*:\s*"((?:\\.|[^"\\])*)"')
_NOT_SECRET = frozenset({"true", "false", "null", "none", ""})


def is_reference(value: str) -> bool:
    """True when nothing of the value is literal."""
    return bool(_REFERENCE.search(value)) and not _REFERENCE.sub("", value).strip()


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """`passwords`: keys the worker types PASSWORD. `plain`: keys of a type that is never secret, whatever their name."""

    passwords: Collection[str] = field(default_factory=frozenset)
    plain: Collection[str] = field(default_factory=frozenset)

    @classmethod
    def of_types(cls, types: Mapping[str, str]) -> "SecretKeys":
        """From the worker's definitions: key -> type. A STRING may be a secret that the plugin does not mark."""
        passwords = frozenset(key for key, kind in types.items() if kind == "PASSWORD")
        plain = frozenset(key for key, kind in types.items() if kind not in ("PASSWORD", "STRING"))
        return cls(passwords, plain)

    def spans(self, key: str, value: str) -> list[Span]:
        """The spans of literal secrets in the value, in order."""
        if _MODULE.match(value):
            found = _jaas_spans(value)
        elif self._is_secret(key, value):
            found = [(0, len(value))]
        else:
            found = list(_address_spans(value))
        return [piece for span in found for piece in _literal(value, span)]

    def has_literal(self, key: str, value: str) -> bool:
        return bool(self.spans(key, value))

    def is_masked(self, key: str, value: str) -> bool:
        """True when the value, or its secret part, is a mask."""
        if _MASKED.fullmatch(value.strip()):
            return True
        texts = [value[start:end].strip("\"' ") for start, end in self.spans(key, value)]
        return any(_MASKED.fullmatch(text) or _STARS.fullmatch(text) for text in texts)

    def masked(self, key: str, value: str) -> str:
        return self.replaced(key, value, lambda _: MASK)

    def replaced(self, key: str, value: str, by: Callable[[str], str]) -> str:
        for start, end in reversed(self.spans(key, value)):
            value = value[:start] + by(value[start:end]) + value[end:]
        return value

    def literals(self, config: Mapping[str, str]) -> set[str]:
        """Every secret text of a config, for a scrub."""
        found = {value[a:b] for key, value in config.items() for a, b in self.spans(key, value)}
        return found | {text[1:-1] for text in found if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'"}

    def _is_secret(self, key: str, value: str) -> bool:
        if key in self.passwords:
            return bool(value.strip())
        named = is_sensitive(key) and not _HARMLESS.search(key)
        return named and key not in self.plain and value.strip().lower() not in _NOT_SECRET


def masked_config(
    config: Mapping[str, str | None], password_keys: Collection[str] = (), plain_keys: Collection[str] = ()
) -> dict[str, str]:
    """The config with every literal secret as ***. Use it for everything that is shown or stored."""
    keys = SecretKeys(password_keys, plain_keys)
    return {key: keys.masked(key, value) for key, value in config.items() if value is not None}


def _literal(value: str, span: Span) -> Iterator[Span]:
    """A span without the references in it."""
    start, end = span
    for reference in _REFERENCE.finditer(value, *span):
        if value[start : reference.start()].strip(" \"':"):
            yield start, reference.start()
        start = reference.end()
    if value[start:end].strip(" \"':"):
        yield start, end


def _address_spans(value: str) -> Iterator[Span]:
    spans = [_password_span(match) for match in _USERINFO.finditer(value)]
    spans += [match.span(1) for match in _ORACLE.finditer(value)]
    if _ADDRESS.match(value):
        covered = max((end for _, end in spans), default=0)
        spans += [
            match.span(2)
            for match in _PARAMETER.finditer(value, covered)
            if is_secret_name(match.group(1)) and match.group(2)
        ]
    yield from sorted(set(spans))


def _password_span(match: re.Match[str]) -> Span:
    """The password of `user:password`. A user alone may be a token."""
    group = 1 if match.group(1) is not None else 2
    start, end = match.span(group)
    colon = match.group(group).find(":")
    return (start + colon + 1, end) if colon >= 0 else (start, end)


def _jaas_spans(value: str) -> list[Span]:
    """The options that are not known to be harmless. The whole value if it is not a valid JAAS string."""
    module = _MODULE.match(value)
    at = module.end() if module else 0
    spans = []
    while option := _OPTION.match(value, at):
        at = option.end()
        start, end = option.span(2)
        quoted = value[start] in "\"'"
        if option.group(1).lower() not in _OPEN_OPTIONS:
            spans.append((start + 1, end - 1) if quoted else (start, end))
    return spans if value[at:].strip() in (";", "") else [(0, len(value))]


def is_secret_name(name: str) -> bool:
    return is_sensitive(name) or name.lower() in _SHORT_NAMES


class Scrub:
    """Masks secrets in texts from outside: error messages, traces.

    Masks known secrets, also escaped, and what looks like a secret: userinfo of URLs, values of keys named like one.
    The worker prints resolved configs in some errors, so a text may hold secrets that are in no file of ours.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        texts = {form for secret in secrets for form in _forms(secret.strip()) if form}
        ordered = sorted(texts, key=len, reverse=True)
        # A short secret must match a whole word. Otherwise it would match inside many words.
        words = [re.escape(text) if len(text) > 3 else rf"(?<!\w){re.escape(text)}(?!\w)" for text in ordered]
        self._known = re.compile("|".join(words)) if words else None

    def __call__(self, text: str) -> str:
        if self._known:
            text = self._known.sub(MASK, text)
        text = _USERINFO.sub(f"://{MASK}@", text)
        text = _ORACLE.sub(lambda m: m.group(0).replace(m.group(1), MASK), text)
        for pattern in (_IN_MAP, _IN_TEXT, _IN_JSON):
            text = pattern.sub(_without_value, text)
        return text


def _without_value(match: re.Match[str]) -> str:
    name, value = match.group(1), match.group(2)
    if not is_secret_name(name) or is_reference(value) or value.strip("\"'").lower() in _NOT_SECRET | {"[hidden]"}:
        return match.group(0)
    start, end = match.start(2) - match.start(), match.end(2) - match.start()
    return match.group(0)[:start] + MASK + match.group(0)[end:]


def _forms(secret: str) -> set[str]:
    return {secret, quote(secret, safe=""), quote(secret), unquote(secret), json.dumps(secret)[1:-1]} - {"", MASK}


def scrub_of(*parts: tuple[SecretKeys, Mapping[str, str]]) -> Scrub:
    return Scrub({text for keys, config in parts for text in keys.literals(config)})
