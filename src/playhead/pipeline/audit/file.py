"""An audit as JSON: what `playhead audit -o json` prints, and `playhead repair` reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from playhead.errors import Invalid, NotFound
from playhead.pipeline.audit.model import FORMAT, Audit, Pair


def audit_fields(audit: Audit) -> dict[str, Any]:
    """For people and machines; the verdict first."""
    word = {0: "clean", 1: "findings", 3: "not compared"}[audit.exit_code]
    pairs = [{**_plain(pair), "verdict": pair.verdict, "findings": pair.findings} for pair in audit.pairs]
    return {
        "playhead_audit": FORMAT,
        "verdict": word,
        "id": audit.id,
        "made": audit.made,
        "cluster": audit.cluster,
        "hash_version": audit.hash_version,
        "pairs": pairs,
    }


def _plain(pair: Pair) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(pair)
    return found


def audit_of_fields(fields: Mapping[str, Any], where: str) -> Audit:
    version = fields.get("playhead_audit")
    if version != FORMAT:
        what = (
            "is not the JSON of an audit"
            if version is None
            else f"is of version {version}, and this Playhead reads {FORMAT}"
        )
        raise Invalid(f"{where} {what}", "playhead audit NAME -o json > AUDIT.json")
    try:
        pairs = [msgspec.convert(_without(pair, "verdict", "findings"), Pair) for pair in fields["pairs"]]
        return Audit(fields["id"], fields["made"], fields["cluster"], fields["hash_version"], pairs)
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise Invalid(f"{where} is not a complete audit: {error}", "playhead audit NAME -o json > AUDIT.json") from None


def _without(pair: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in pair.items() if name not in names}


def read_audit(path: Path) -> Audit:
    try:
        fields = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise NotFound("file", str(path)) from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Invalid(f"{path} is not the JSON of an audit", "playhead audit NAME -o json > AUDIT.json")
    return audit_of_fields(fields, str(path))
