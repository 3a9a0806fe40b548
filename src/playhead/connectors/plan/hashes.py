"""Hashes of configs: whether a config is the one that was seen earlier, without keeping its secrets.

They are salted. The hash of a config with a literal secret is slow to compute, so that the secret cannot be guessed from it. The
`name` that a worker adds and blanks around values do not count.
"""

import hashlib
from collections.abc import Mapping
from hmac import compare_digest

import msgspec

from playhead.connectors.plan.model import normalised

_SLOW, _QUICK = "scrypt", "sha256"


def hash_of(config: Mapping[str, str], salt: bytes, *, slow: bool) -> str:
    return _hash(_SLOW if slow else _QUICK, config, salt)


def is_hash_of(found: str, config: Mapping[str, str], salt: bytes) -> bool:
    return compare_digest(found, _hash(found.partition(":")[0], config, salt))


def _hash(kind: str, config: Mapping[str, str], salt: bytes) -> str:
    text = msgspec.json.encode({key: value.strip() for key, value in normalised(config).items()}, order="sorted")
    if kind == _SLOW:
        return f"{_SLOW}:" + hashlib.scrypt(text, salt=salt, n=2**14, r=8, p=1).hex()
    return f"{_QUICK}:" + hashlib.sha256(salt + text).hexdigest()
