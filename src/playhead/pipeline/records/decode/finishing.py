"""A column as it stands in the JSON (`pieces`) -> the column: logical types, defaults, a second check of what is accepted.

There a missing member is null, and an integer that a float cannot hold is its neighbour. Whatever is not certainly
right is None here: then the records are checked one by one.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.decimals import to_text, unscaled_of_bytes
from playhead.pipeline.records.decode.exact import default_array
from playhead.pipeline.records.javacalendar import DAY_MILLIS
from playhead.pipeline.records.octets import decode_base64, to_decimals
from playhead.pipeline.records.schema import TIME, Schema

_EXACT_TO = {"float": 2**24, "double": 2**53}
# Whole numbers that a float may not hold; in a string, too, which does no harm.
_LONG_NUMBERS = {"float": r"[:,\[ ]-?[0-9]{8,} *[,\]}]", "double": r"[:,\[ ]-?[0-9]{16,} *[,\]}]"}


@dataclass(frozen=True, slots=True)
class Finishing:
    """`texts` are the records that the columns were read from."""

    texts: pa.Array
    null_to_default: bool

    def finish(self, read: pa.Array, schema: Schema) -> pa.Array | None:
        if not read.null_count:
            return self._present(read, schema)
        default = schema.default if self.null_to_default else None
        if default is None and not schema.optional:
            return None
        if (
            default is None
            and read.type == arrow_type(schema)
            and schema.type in ("int32", "int64", "string", "boolean")
        ):
            return self._present(read, schema)
        made = self._present(read.drop_null(), schema)
        if made is None:
            return None
        places = np.full(len(read), -1 if default is None else len(made))
        places[read.is_valid().to_numpy(zero_copy_only=False)] = np.arange(len(made))
        if default is not None:
            made = pa.concat_arrays([made, default_array(schema)])
        return made.take(pa.array(places, mask=places < 0))

    def _present(self, read: pa.Array, schema: Schema) -> pa.Array | None:
        if schema.is_struct:
            return self._struct(read, schema)
        if schema.items is not None:
            return self._list(read, schema, schema.items)
        if schema.is_decimal:
            return read if pa.types.is_decimal(read.type) else _decimals(read, schema)
        if schema.type == "bytes":
            return decode_base64(read)
        if schema.type in _EXACT_TO:
            # Connect reads floats as BigDecimal, which has no -0.0.
            return pc.add(read, pa.scalar(0.0, read.type)) if self._are_exact(read, schema.type) else None
        if schema.name == TIME and not _are_times(read):
            return None
        wanted = arrow_type(schema)
        return read if read.type == wanted else read.cast(wanted)

    def _struct(self, read: pa.Array, schema: Schema) -> pa.Array | None:
        columns = []
        for column, (_, inner) in zip(read.flatten(), schema.fields, strict=True):
            made = self.finish(column, inner)
            if made is None:
                return None
            columns.append(made)
        return pa.StructArray.from_arrays(columns, fields=list(arrow_type(schema)))

    def _list(self, read: pa.Array, schema: Schema, items: Schema) -> pa.Array | None:
        made = self.finish(read.flatten(), items)
        if made is None:
            return None
        lengths = pc.list_value_length(read).to_numpy(zero_copy_only=False)
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(bounds), made, type=arrow_type(schema))

    def _are_exact(self, read: pa.Array, kind: str) -> bool:
        if not len(read):
            return True
        highest = pc.max(pc.abs(read)).as_py()
        if not pc.all(pc.is_finite(read)).as_py():
            return False
        if highest < _EXACT_TO[kind]:
            return True
        return not pc.any(pc.match_substring_regex(self.texts, pattern=_LONG_NUMBERS[kind])).as_py()


def _are_times(read: pa.Array) -> bool:
    bounds = pc.min_max(read)
    return not len(read) or (bounds["min"].as_py() >= 0 and bounds["max"].as_py() < DAY_MILLIS)


def _decimals(read: pa.Array, schema: Schema) -> pa.Array | None:
    octets, kind = decode_base64(read), arrow_type(schema)
    if octets is None or not pa.types.is_string(kind):
        return None if octets is None else to_decimals(octets, kind)
    unscaled = [unscaled_of_bytes(raw) for raw in octets.to_pylist()]
    if any(number is None for number in unscaled):
        return None
    return pa.array([to_text(number, schema) for number in unscaled if number is not None], pa.string())
