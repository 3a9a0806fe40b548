"""The contents of rows as JSON texts: their data, the key in them, and the fields in which two differ."""

from collections.abc import Callable, Sequence

import msgspec

from playhead.pipeline.audit.row_hash import canonical_json

Key = str


def difference(left: bytes | None, right: bytes | None) -> str | None:
    """The fields that differ, if both rows are JSON objects; else None."""
    a, b = (fields_of(row) for row in (left, right))
    if a is None or b is None:
        return None
    names = [name for name in dict.fromkeys([*a, *b]) if canonical_json(a.get(name)) != canonical_json(b.get(name))]
    shown = ", ".join(f"{name}: {_text(a.get(name))} -> {_text(b.get(name))}" for name in names[:5])
    return shown + (f", and {len(names) - 5} more" if len(names) > 5 else "") or None


def _text(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def fields_of(row: bytes | None) -> dict[str, object] | None:
    value = payload_of(row)
    return value if isinstance(value, dict) else None


def payload_of(row: bytes | None) -> object:
    """The data of a JSON record, without the schema that JsonConverter may write beside it. None: it is not JSON."""
    try:
        value = msgspec.json.decode(row or b"null")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        return value["payload"]
    return value


def key_of_fields(names: Sequence[str]) -> Callable[[bytes | None], Key | None]:
    """The key of a row that is a JSON object: the values of these fields."""

    def key(row: bytes | None) -> Key | None:
        fields = fields_of(row)
        if not names or fields is None or any(fields.get(name) is None for name in names):
            return None
        return "/".join(_plain(fields[name]) for name in names)

    return key


def key_of_row(row: bytes | None) -> Key | None:
    """Where no key is named: the field `id`, or the first whose name ends in it."""
    fields = fields_of(row)
    if fields is None:
        return None
    names = [name for name in fields if name.lower() == "id"] or [n for n in fields if n.lower().endswith("_id")]
    value = fields.get(names[0]) if names else None
    return None if value is None else _plain(value)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
