"""`${provider:path:key}` references, as Kafka's ConfigTransformer defines them.

References are shown, stored and sent unresolved. They are resolved only when one of our own clients is created, and only for
Kafka's file, directory and environment providers. Only the worker can resolve others (vaults); this is reported as an error.
One pass, as in Kafka: a resolved value is not resolved again.
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
# playhead.toml declares no providers: these names have their usual meaning.
PLAIN_PROVIDERS = {"file": "file", "dir": "dir", "env": "env"}


def declared_providers(properties: Mapping[str, str]) -> dict[str, str]:
    """Provider name -> kind, from `config.providers` and `config.providers.NAME.class` of a worker or client file."""
    names = [name.strip() for name in properties.get("config.providers", "").split(",") if name.strip()]
    return {name: _KINDS.get(properties.get(f"config.providers.{name}.class", ""), "other") for name in names}


def has_reference(value: str) -> bool:
    return _REFERENCE.search(value) is not None


def resolve(value: str, providers: Mapping[str, str] = PLAIN_PROVIDERS) -> str:
    """`value` with its references replaced. References to undeclared providers are kept, as in Kafka."""

    def replaced(match: re.Match[str]) -> str:
        provider, path, key = match.group(1), match.group(3) or "", match.group(4)
        kind = providers.get(provider)
        if kind is None:
            return match.group(0)
        found = _lookup(kind, path, key, match.group(0))
        if found is None:
            raise Invalid(f"the reference {match.group(0)} cannot be resolved")
        return found

    return _REFERENCE.sub(replaced, value)


def _lookup(kind: str, path: str, key: str, text: str) -> str | None:
    if kind == "env":
        if path:
            raise Invalid(f"the reference {text} has a path, which env does not support", "write it like ${env:NAME}")
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
        raise Invalid(f"the reference {text} cannot be resolved: {error.strerror}") from None
    except ValueError:  # not UTF-8, or not a valid path; the bytes may be a secret and are not shown
        raise Invalid(f"the reference {text} is not to a UTF-8 text file") from None
    return next((entry.value for entry in entries if entry.key == key), None)
