"""One field of every JSON line: for partitioners of JSON lines, where no schema defines its type."""

from contextlib import suppress

import pyarrow as pa

from playhead.pipeline.records.batch import Unfit
from playhead.pipeline.records.decimals import unscaled_of_number
from playhead.pipeline.records.decode.exact import whole_text
from playhead.pipeline.records.decode.jsontext import decode
from playhead.pipeline.records.decode.pieces import read_json
from playhead.pipeline.records.schema import Number

_KINDS = (pa.string(), pa.int64(), pa.bool_())


def read_field(lines: pa.Array, path: str) -> pa.Array:
    """`path` is a name, or names with dots between them for a field inside of others.

    int64, string or bool where all have that type, else strings: numbers and booleans as they are written, so that a value has
    the same text in both. Null where the field is null, missing or no scalar, or where the line is null.
    """
    names = path.split(".")
    if not lines.null_count:
        for kind in _KINDS:
            wanted = kind
            for name in reversed(names):
                wanted = pa.struct([(name, wanted)])
            read = read_json(lines, wanted, "ignore")
            if read is not None:
                return _inner(read.to_struct_array(), len(names))
    return pa.array([None if line is None else _find(line, names) for line in lines.to_pylist()], pa.string())


def _inner(array: pa.Array, depth: int) -> pa.Array:
    for _ in range(depth):
        (array,) = array.flatten()
    return array


def _find(line: bytes, names: list[str]) -> str | None:
    decoded = decode(line)
    for name in names:
        decoded = decoded.get(name) if isinstance(decoded, dict) else None
    if isinstance(decoded, bool):
        return "true" if decoded else "false"
    if isinstance(decoded, Number):
        whole = unscaled_of_number(decoded, 0) if decoded.removeprefix("-").isdecimal() else None
        return str(decoded if whole is None else whole)
    with suppress(Unfit):
        return whole_text(decoded, path="")
    return None
