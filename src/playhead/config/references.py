"""`${provider:path:key}` references, as Kafka's ConfigTransformer knows them.

References stay references in everything that is shown, stored or sent. They are resolved only when a client of our own is
made, and only by the providers whose rule is plain: Kafka's file, directory and environment providers. Others (vaults) only
the worker can resolve, and we say so. One pass, as in Kafka: a resolved value is not looked at again.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from playhead.config.java_properties import parse_properties
from playhead.errors import Invalid

_REFERENCE = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
_KAFKA = "org.apache.kafka.common.config.provider."
_KINDS = {
    _KAFKA + "FileConfigProvider": "file",
    _KAFKA + "DirectoryConfigProvider": "dir",
    _KAFKA + "EnvVarConfigProvider": "env",
}
# In playhead.toml no providers are declared: these names mean what everybody expects.
PLAIN_PROVIDERS = {"file": "file", "dir": "dir", "env": "env"}


def declared_providers(properties: Mapping[str, str]) -> dict[str, str]:
    """Provider name -> kind, from `config.providers` and `config.providers.NAME.class` of a worker or client file."""
    names = [name.strip() for name in properties.get("config.providers", "").split(",") if name.strip()]
    return {name: _KINDS.get(properties.get(f"config.providers.{name}.class", ""), "other") for name in names}


def has_reference(value: str) -> bool:
    return _REFERENCE.search(value) is not None


def resolve(value: str, providers: Mapping[str, str] = PLAIN_PROVIDERS) -> str:
    """`value` with its references replaced. A provider that is not declared leaves the text as it is, as in Kafka."""

    def replaced(match: re.Match[str]) -> str:
        provider, path, key = match.group(1), match.group(3) or "", match.group(4)
        kind = providers.get(provider)
        if kind is None:
            return match.group(0)
        found = _lookup(kind, path, key, match.group(0))
        if found is None:
            raise Invalid(f"the reference {match.group(0)} leads to nothing")
        return found

    return _REFERENCE.sub(replaced, value)


def _lookup(kind: str, path: str, key: str, text: str) -> str | None:
    if kind == "env":
        if path:
            raise Invalid(
                f"the reference {text} has a path, which the environment has not", "write it like ${env:NAME}"
            )
        return os.environ.get(key)
    if kind == "other":
        raise Invalid(f"only the worker can resolve {text}", "give the value with -X or in a --command-config file")
    try:
        if kind == "dir":
            return (Path(path) / Path(key).name).read_text("utf-8")
        if not path:  # ${file:/run/secret}: the whole file is the value
            return Path(key).read_text("utf-8").rstrip("\n")
        # FileConfigProvider reads its targets as UTF-8, unlike the worker file itself.
        entries = parse_properties(Path(path).read_text("utf-8"), path)
    except OSError as error:
        raise Invalid(f"the reference {text} leads to nothing: {error.strerror}") from None
    except ValueError:  # not UTF-8, or no path at all; the bytes may be a secret and are not told
        raise Invalid(f"the reference {text} does not lead to a text file") from None
    return next((entry.value for entry in entries if entry.key == key), None)
