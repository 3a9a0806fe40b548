"""What in a setting is secret, by its name and by its value. Everything that is shown or stored is masked by this.

Secrets are: values of keys that the worker types PASSWORD; values of keys named like one; passwords in URLs (userinfo,
parameters, Oracle's `user/password@`); options of a JAAS string; credentials in HTTP headers; and, under any name, what can be
nothing else: PEM private keys, JWTs, bearer and basic credentials, access keys of clouds. A random text is secret under a name
that leaves it open (`my.key`). `${provider:...}` references reveal nothing and stay visible, and so do names of topics, tables,
classes, columns and files. A mask that a server returns in place of a secret (`******`, `[hidden]`) is recognised and never sent
back.
"""

import math
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

MASK = "***"
Span = tuple[int, int]

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SENSITIVE = re.compile(
    r"password|passphrase|passwd|passcode|secret|token(?!\.endpoint|i[sz])|jaas|credential|user\.info|authorization|\.pem$"
    r"|(^|[._-])(pass|pwd|creds?)$"
    r"|(access|account|api|encryption|hmac|keystore|license|master|private|shared|signing|subscription)[._-]?key(?!\w|\.location)"
    r"|(app|application|consumer|integration|security)[._-]?key$",
    re.IGNORECASE,
)
# They hold a credential, or only say of which kind it is or where it is.
_VAGUE = re.compile(r"(^|[._-])(auth|bearer|cookie|auth[._-]?(header|string|data|value|code))$", re.IGNORECASE)
# Named like a secret, but holds only its place, its kind or its limits.
_HARMLESS = re.compile(
    r"credentials?\.(source|provider(\.class)?)$|plugin\.version$"
    r"|[._-](type|class|classname|location|path|file|filename|dir|directory|name|field|fields|column|columns|topic|topics|table|ms"
    r"|seconds|minutes|interval|timeout|expiry|ttl|size|length|count|algorithm|mechanism|mode|format|encoding|policy|enabled"
    r"|required|version|uri|url|endpoint|issuer|audience|scope|regex|pattern)$",
    re.IGNORECASE,
)
_SHORT_NAMES = frozenset({"pwd", "pass", "passwd", "sharedaccesskey", "sharedaccesssignature", "sig"})
_NOT_SECRET = frozenset({"true", "false", "null", "none", ""})
_KINDS = _NOT_SECRET | {
    "anonymous", "api_key", "apikey", "authorization", "aws", "azure", "basic", "bearer", "cookie", "custom", "default", "digest",
    "disabled", "enabled", "gcp", "header", "iam", "jwt", "kerberos", "key", "ldap", "mtls", "ntlm", "oauth", "oauth2", "off",
    "on", "password", "plain", "query", "sasl", "sasl_inherit", "simple", "ssl", "static", "tls", "token", "url",
    "user_info", "x509",
}  # fmt: skip

_REFERENCE = re.compile(r"\$\{[^}]*:[^}]*\}")
_MASKED = re.compile(
    r"\*{3,}|[\u2022\u25cf]{3,}|[\[(<{](hidden|redacted|masked|sensitive|sensitive value)[\])>}]", re.IGNORECASE
)
_STARS = re.compile(r"\*+")
_PATH = re.compile(r"(?:\.{0,2}/|~/|file:|[A-Za-z]:\\)[\w./\\ ~-]+")
_CLASS = re.compile(r"(?:[a-z_]\w*\.){2,}[A-Z]\w*(?:\$\w+)?")
# A password may hold an unescaped / or ?, against the rules; `host:5432/` is no password.
USERINFO = re.compile(r"://(?:([^\s/?#]*)@|([^\s/?#:@]+:(?!\d+(?:[/?#,]|$))\S*)@)")
_DATABASE = re.compile(
    r"(?:^|[\s'\":=])(?:postgres|postgresql|mysql|mariadb|sqlserver|oracle|db2)(?:\+\w+)?$", re.IGNORECASE
)
ORACLE = re.compile(r"jdbc:oracle:\w+:[^/\s@]+/(\"[^\"]*\"|[^\s@]+)@", re.IGNORECASE)
_ADDRESS = re.compile(
    r"\s*(jdbc:|[a-z][\w+.-]*://|-[DX]|[\w. -]+=[^;,&=]*[;,&]\s*[\w. -]+=|[\w.-]+=\S+\s*$)", re.IGNORECASE
)
_PARAMETER = re.compile(r"(?:^|[?&;,\s(])([\w.-]+)=((?:\$\{[^}]*\}|\{[^}]*\}|(?!,\s*[\w.-]+=)[^&;\s{}])*)")
_IN_JSON = re.compile(r"""\\?(["'])([\w.-]+)\\?\1\s*:\s*\\?(["'])((?:\\.|(?!\\?\3)[^\\])*)\\?\3""")
_MODULE = re.compile(r"\s*[\w.$]+\s+(required|requisite|sufficient|optional)\b", re.IGNORECASE)
_LOGIN_MODULE = re.compile(r"LoginModule\s[^=]*=")
_OPTION = re.compile(r"""\s*([\w.$-]+)\s*=\s*("(?:\\.|[^"\\\r\n])*"|'(?:\\.|[^'\\\r\n])*'|[^\s;"']+)""")
_OPEN_OPTIONS = frozenset(
    {
        "username", "principal", "keytab", "usekeytab", "storekey", "useticketcache", "servicename", "clientid", "scope", "debug",
        "refreshkrb5config",
    }
)  # fmt: skip
_JAAS_WORD = re.compile(r"""[^\s"'=;]{3,}""")
_JAAS_OPEN = re.compile(r"[\w.$]*LoginModule|required|requisite|sufficient|optional|password|\w+Secret", re.IGNORECASE)

_HEADER_VALUE = r"((?:(?!\s*(?:[|\r\n]|,\s*[\w-]+\s*:)).)+)"
HEADER = re.compile(
    r"(?<![\w-])(?:(?:proxy-)?authorization|(?:set-)?cookie|(?:x-[\w-]*)?api-?key|x-[\w-]*(?:token|secret|auth|key)[\w-]*)"
    r"[\"']?\s*:\s*" + _HEADER_VALUE,
    re.IGNORECASE,
)
_ANY_HEADER = re.compile(r"(?:^|[|,;\r\n])\s*([\w-]+)\s*:\s*" + _HEADER_VALUE)
_HEADERS_NAME = re.compile(r"headers?(\.list)?$", re.IGNORECASE)
_SCHEME = re.compile(r"\b(?:bearer|basic|token|apikey|splunk|negotiate)\s+([A-Za-z0-9+/=._~:-]{6,})", re.IGNORECASE)
_TOKENS = re.compile(
    r"(?s:-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:.*?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|.*))"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)*"
    r"|(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"
    r"|(?<!\w)(?:gh[pousr]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{35}|[rs]k_(?:live|test)_\w{16,}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|dapi[0-9a-f]{32}|hv[bs]\.[\w-]{20,})"
    r"|(?<=hooks\.slack\.com/services/)\S+"
)
_AWS_SECRET = re.compile(r"(?<![\w/+=.-])[A-Za-z0-9/+]{40}(?![\w/+=.-])")
_SMELLS = re.compile(
    r"(^|[._-])(\w*key|hash|salt|seed|sig|signature|sas|sid|dsn|pin|hook|webhook|code|license|login)$", re.IGNORECASE
)
_RANDOM = re.compile(r"[A-Za-z0-9+/=_.-]{16,}")
_TURN = re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")


def is_sensitive(name: str) -> bool:
    """True for the name of a setting whose value is secret, whatever it is."""
    spread = _HUMP.sub(".", name)
    return bool(_SENSITIVE.search(name) or _SENSITIVE.search(spread)) and not _HARMLESS.search(spread)


def is_secret_name(name: str) -> bool:
    """As `is_sensitive`, for names of parameters and words before a `=`, which are shorter."""
    return is_sensitive(name) or name.lower() in _SHORT_NAMES or _VAGUE.search(name) is not None


def is_open_value(name: str, value: str) -> bool:
    """True if a value under a secret name reveals nothing: a switch or, under a vague name, the kind or place of a secret."""
    text = value.strip().strip("\"'").lower()
    if text in _NOT_SECRET:
        return True
    return not is_sensitive(name) and name.lower() not in _SHORT_NAMES and _says_where(value)


def is_reference(value: str) -> bool:
    """True when nothing of the value is literal."""
    return bool(_REFERENCE.search(value)) and not _REFERENCE.sub("", value).strip()


def token_spans(value: str) -> list[Span]:
    """What is a credential by its form, under any name."""
    spans = [match.span(1) for match in HEADER.finditer(value)]
    spans += [match.span(1) for match in _SCHEME.finditer(value) if _is_credential(match.group(1))]
    spans += [match.span() for match in _TOKENS.finditer(value)]
    spans += [match.span() for match in _AWS_SECRET.finditer(value) if _is_mixed(match.group())]
    return spans


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
        if _MODULE.match(value) or _LOGIN_MODULE.search(value):
            found = _jaas_spans(value)
        elif self._is_secret(key, value):
            found = [(0, len(value))]
        else:
            found = merged(
                [*_address_spans(value), *_json_spans(value), *_header_spans(key, value), *token_spans(value)]
            )
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
        """Every secret text of a config, for a scrub. Of a JAAS string that is not valid also each word: errors quote them."""
        found = {value[a:b] for key, value in config.items() for a, b in self.spans(key, value)}
        words = {word for text in found if _LOGIN_MODULE.search(text) for word in _JAAS_WORD.findall(text)}
        found |= {word for word in words if not _JAAS_OPEN.fullmatch(word) and word.lower() not in _OPEN_OPTIONS}
        return found | {text[1:-1] for text in found if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'"}

    def _is_secret(self, key: str, value: str) -> bool:
        if key in self.passwords:
            return bool(value.strip())
        if key in self.plain:
            return False
        if is_sensitive(key):
            return value.strip().lower() not in _NOT_SECRET
        if _VAGUE.search(key):
            return not _says_where(value) and not any(True for _ in _header_spans("headers", value))
        return bool(_SMELLS.search(_HUMP.sub(".", key))) and _is_random(value.strip())


def masked_config(
    config: Mapping[str, str | None], password_keys: Collection[str] = (), plain_keys: Collection[str] = ()
) -> dict[str, str]:
    """The config with every literal secret as ***. Use it for everything that is shown or stored."""
    keys = SecretKeys(password_keys, plain_keys)
    return {key: keys.masked(key, value) for key, value in config.items() if value is not None}


def merged(spans: list[Span]) -> list[Span]:
    """In order, those that overlap as one."""
    joined: list[Span] = []
    for start, end in sorted(set(spans)):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _literal(value: str, span: Span) -> Iterator[Span]:
    """A span without the references in it."""
    start, end = span
    for reference in _REFERENCE.finditer(value, *span):
        if value[start : reference.start()].strip(" \"':"):
            yield start, reference.start()
        start = reference.end()
    if value[start:end].strip(" \"':"):
        yield start, end


def _address_spans(value: str) -> list[Span]:
    spans = [span for match in USERINFO.finditer(value) for span in _password_spans(match)]
    spans += [match.span(1) for match in ORACLE.finditer(value)]
    if _ADDRESS.match(value):
        covered = max((end for _, end in spans), default=0)
        spans += [
            match.span(2)
            for match in _PARAMETER.finditer(value, covered)
            if is_secret_name(match.group(1)) and not is_open_value(match.group(1), match.group(2))
        ]
    return spans


def _password_spans(match: re.Match[str]) -> list[Span]:
    """The password of `user:password`. A user alone may be a token, except for a database."""
    group = 1 if match.group(1) is not None else 2
    start, end = match.span(group)
    colon = match.group(group).find(":")
    if colon < 0 and _DATABASE.search(match.string, 0, match.start()):
        return []
    return [(start + colon + 1, end)]


def _json_spans(value: str) -> list[Span]:
    return json_spans(value) if value.lstrip().startswith(("{", "[")) else []


def json_spans(text: str) -> list[Span]:
    """Values of secret names in JSON, also in JSON that is a string of another."""
    spans = []
    at = 0
    while pair := _IN_JSON.search(text, at):
        name, value = pair.group(2), pair.group(4)
        is_secret = is_secret_name(name) and not is_open_value(name, value)
        if is_secret:
            spans.append(pair.span(4))
        at = pair.end() if is_secret else pair.start(4)
    return spans


def _header_spans(key: str, value: str) -> list[Span]:
    """Values of secret headers, in a setting that holds headers."""
    if not _HEADERS_NAME.search(key):
        return []
    return [match.span(2) for match in _ANY_HEADER.finditer(value) if is_secret_name(match.group(1))]


def _jaas_spans(value: str) -> list[Span]:
    """The options that are not known to be harmless. The whole value if it is not a valid JAAS string."""
    module = _MODULE.match(value)
    if not module:
        return [(0, len(value))]
    at = module.end()
    spans = []
    while option := _OPTION.match(value, at):
        at = option.end()
        start, end = option.span(2)
        quoted = value[start] in "\"'"
        if option.group(1).lower() not in _OPEN_OPTIONS:
            spans.append((start + 1, end - 1) if quoted else (start, end))
    return spans if value[at:].strip() in (";", "") else [(0, len(value))]


def _says_where(value: str) -> bool:
    text = value.strip()
    return text.lower() in _KINDS or bool(_PATH.fullmatch(text) or _CLASS.fullmatch(text))


def _is_credential(text: str) -> bool:
    """Not the next word of a sentence: `Bearer token`, `Basic authentication`."""
    if any(character.isdigit() for character in text) or len(text) >= 32:
        return True
    try:
        return ":" in b64decode(text, validate=True).decode()
    except ValueError:
        return False


def _is_random(text: str) -> bool:
    """No word, name or path that a person would write: letters and digits take turns."""
    return (
        bool(_RANDOM.fullmatch(text))
        and not _says_where(text)
        and len(_TURN.findall(text)) >= 4
        and _entropy(text) > 2.8
    )


def _is_mixed(text: str) -> bool:
    """As the random text of an AWS secret key: both cases and digits, hardly a letter twice."""
    if text.startswith("/") and "+" not in text:
        return False  # a path
    has_digit = any(character.isdigit() for character in text)
    return has_digit and text.lower() != text and text.upper() != text and _entropy(text) > 4.4


def _entropy(text: str) -> float:
    """Bits per character."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())
