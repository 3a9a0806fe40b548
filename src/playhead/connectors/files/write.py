"""Writes connectors to a file that reads back to the same connectors, whatever their values are.

Text is bare only if every YAML version reads it as this text. Otherwise it is in double quotes, in which every character can be
escaped. Secrets are written as they are in the specs: the caller must replace them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from playhead.connectors.files.body import CLASS
from playhead.connectors.files.templates import escape
from playhead.model import ConnectorSpec, Engine
from playhead.model.position import Map, Scalar

_BARE = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*(?::[A-Za-z0-9_./-]+)*", re.ASCII)
MANY_READINGS = {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "none", "nan", "inf"}
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_LONGEST_KEY = 512  # YAML looks for the colon of a key within 1024 characters; an escape takes up to ten


def write_specs(specs: Sequence[ConnectorSpec], form: Literal["yaml", "json"]) -> str:
    """In the order given; keys of a config by name, the class first."""
    return _json(specs) if form == "json" else _yaml(specs)


def _config(spec: ConnectorSpec) -> list[tuple[str, str]]:
    return sorted(spec.config.items(), key=lambda item: (item[0] != CLASS, item[0]))


def _json(specs: Sequence[ConnectorSpec]) -> str:
    bodies = []
    for spec in specs:
        body: dict[str, object] = {"name": spec.name}
        if spec.engine is not Engine.CONNECT:
            body["engine"] = spec.engine.value
        if spec.state is not None:
            body["state"] = spec.state.value
        body["config"] = dict(_config(spec))
        if spec.offsets:
            body["offsets"] = [
                {"partition": p.partition.to_dict(), "offset": None if p.offset is None else p.offset.to_dict()}
                for p in spec.offsets
            ]
        bodies.append(body)
    return json.dumps(bodies[0] if len(bodies) == 1 else bodies, indent=2, ensure_ascii=False) + "\n"


def _yaml(specs: Sequence[ConnectorSpec]) -> str:
    if not specs:
        return "connectors: {}\n"
    return "connectors:\n" + "".join(line for spec in specs for line in _connector(spec))


def _connector(spec: ConnectorSpec) -> list[str]:
    # A name with braces is written as a template without fields, so that no two names are written alike.
    is_template = "{" in spec.name or "}" in spec.name
    text = escape if is_template else str
    lines = [f"  {_key(text(spec.name), 2)}\n"]
    if is_template:
        lines.append("    for: {}\n")
    if spec.engine is not Engine.CONNECT:
        lines.append(f"    engine: {spec.engine.value}\n")
    if spec.state is not None:
        lines.append(f"    state: {spec.state.value}\n")
    lines.append("    config:\n" if spec.config else "    config: {}\n")
    lines += [f"      {_key(key, 6)} {quoted(text(value))}\n" for key, value in _config(spec)]
    if spec.offsets:
        lines.append("    offsets:\n")
        for position in spec.offsets:
            offset = "null" if position.offset is None else _flow(position.offset, escaped=is_template)
            lines.append(f"    - partition: {_flow(position.partition, escaped=is_template)}\n      offset: {offset}\n")
    return lines


def _key(key: str, indent: int) -> str:
    return f"{quoted(key)}:" if len(key) < _LONGEST_KEY else f"? {quoted(key)}\n{' ' * indent}:"


def _flow(fields: Map | Mapping[str, Scalar], *, escaped: bool) -> str:
    return "{" + ", ".join(f"{in_quotes(key)}: {_scalar(value, escaped)}" for key, value in fields.items()) + "}"


def _scalar(value: Scalar, escaped: bool) -> str:
    if isinstance(value, str):
        return in_quotes(escape(value) if escaped else value)
    if isinstance(value, float):
        number = repr(value)  # to YAML 1.1 a number with an exponent is one only with a dot before it
        return number if "." in number else number.replace("e", ".0e")
    return json.dumps(value)


def quoted(text: str) -> str:
    return text if _BARE.fullmatch(text) and text.lower() not in MANY_READINGS else in_quotes(text)


def in_quotes(text: str) -> str:
    return '"' + "".join(map(_character, text)) + '"'


def _character(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
