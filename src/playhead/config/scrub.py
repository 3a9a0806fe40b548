"""Masks secrets in texts from outside: error messages of workers, brokers and databases, traces.

Masks known secrets, also escaped, and what looks like a secret: userinfo of URLs, values of keys named like one, credentials in
headers, private keys. A server prints resolved configs in some errors, so a text may hold secrets that are in no file of ours.
"""

import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

from playhead.config.contexts import Context
from playhead.config.secrets import (
    MASK,
    ORACLE,
    USERINFO,
    SecretKeys,
    Span,
    is_open_value,
    is_reference,
    is_secret_name,
    is_sensitive,
    json_spans,
    merged,
    token_spans,
)
from playhead.errors import Invalid

_IN_MAP = re.compile(r"(?<=[{ ])([\w.-]+)=((?>\$\{[^}]*\}|.){0,2000}?)(?=, [\w.-]+=|\})")
_IN_TEXT = re.compile(r"""(?<![\w.-])([\w.-]+)\s*=\s*("[^"]*"|'[^']*'|["'][^\r\n]*|(?>\$\{[^}]*\}|[^\s,;&})])+)""")
# Kafka's reader of JAAS strings quotes the word at which it failed, which may be a part of the password.
_IN_JAAS_ERROR = re.compile(r"(?<=')[^'\r\n]*(?=' in JAAS config)")


class Scrub:
    def __init__(self, secrets: Iterable[str] = ()) -> None:
        texts = {form for secret in secrets for form in _forms(secret.strip()) if form}
        ordered = sorted(texts, key=len, reverse=True)
        # A short secret must match a whole word. Otherwise it would match inside many words.
        words = [re.escape(text) if len(text) > 3 else rf"(?<!\w){re.escape(text)}(?!\w)" for text in ordered]
        self._known = re.compile("|".join(words)) if words else None

    def __call__(self, text: str) -> str:
        text = self.without_known(text)
        text = USERINFO.sub(f"://{MASK}@", text)
        text = ORACLE.sub(lambda m: m.group(0).replace(m.group(1), MASK), text)
        text = _IN_JAAS_ERROR.sub(MASK, text)
        text = _masked(text, token_spans(text))
        text = _IN_MAP.sub(_without_value, text)
        text = _IN_TEXT.sub(_without_value, text)
        return _masked(text, json_spans(text))

    def without_known(self, text: str) -> str:
        """For a text of our own: only the given secrets are masked."""
        return self._known.sub(MASK, text) if self._known else text


def secrets_of(context: Context) -> set[str]:
    """The secret values of a context, references resolved where they can be."""
    keys = SecretKeys()
    found: set[str] = set()
    for key, setting in context.settings.items():
        text = setting.text
        if is_sensitive(key):
            try:
                text = context.get(key) or ""
            except Invalid:
                continue  # not resolved, so not sent anywhere
        found |= {text} if is_sensitive(key) else keys.literals({key: text})
    return found


def scrub_of(*parts: tuple[SecretKeys, Mapping[str, str]]) -> Scrub:
    return Scrub({text for keys, config in parts for text in keys.literals(config)})


def _masked(text: str, spans: list[Span]) -> str:
    for start, end in reversed(merged(spans)):
        if not is_reference(text[start:end]) and text[start:end] != "[hidden]":
            text = text[:start] + MASK + text[end:]
    return text


def _without_value(match: re.Match[str]) -> str:
    """`name=value` with the value masked, if the name is that of a secret."""
    name, value = match.group(1), match.group(2)
    if not is_secret_name(name) or is_reference(value) or is_open_value(name, value) or value == "[hidden]":
        return match.group(0)
    return match.group(0)[: match.start(2) - match.start()] + MASK


def _forms(secret: str) -> set[str]:
    return {secret, quote(secret, safe=""), quote(secret), unquote(secret), json.dumps(secret)[1:-1]} - {"", MASK}
