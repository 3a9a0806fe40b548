"""The JSON text of a row, as Jackson writes it to bytes.

Spark's own `to_json` is Jackson too, but writes characters; Jackson's writer of bytes, which Connect uses, escapes whatever is
beyond the basic plane as a pair of surrogates. Numbers that Spark has no type for are set in as text.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import groupby
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from playhead.connect.javajson import encode_string
from playhead.pipeline.records.encode.javacalls import escape_surrogates

_OPTIONS = {"ignoreNullFields": "false"}
_LEADS = (0xF0, 0xF1, 0xF2, 0xF3, 0xF4)  # the first byte of every character beyond the basic plane, and no other byte

Member = tuple[str, Column, bool]  # name, value, whether the value is JSON text already


def write_object(members: Sequence[Member]) -> Column:
    if not any(is_text for _, _, is_text in members):
        return _object((name, value) for name, value, _ in members)
    parts: list[Column] = []
    for is_text, group in groupby(members, key=lambda member: member[2]):
        if is_text:
            parts.extend(
                F.concat(F.lit(f"{encode_string(name)}:"), F.coalesce(value, F.lit("null"))) for name, value, _ in group
            )
        else:
            whole = _object((name, value) for name, value, _ in group)
            parts.append(F.substring(whole, F.lit(2), F.length(whole) - 2))
    return F.concat(F.lit("{"), F.concat_ws(",", *parts), F.lit("}"))


def _object(members: Iterable[tuple[str, Column]]) -> Column:
    return F.to_json(F.struct(*(value.alias(name) for name, value in members)), _OPTIONS)


def escape_beyond_basic_plane(text: Column, is_plain: Column) -> Column:
    """Nothing is done where `is_plain` knows that all of it is ASCII, and little where no such character is in it."""
    raw = text.cast("binary")
    has_lead = reduce(or_, (F.contains(raw, F.lit(bytes([lead]))) for lead in _LEADS))
    return F.when(~is_plain & has_lead, escape_surrogates(text)).otherwise(text)
