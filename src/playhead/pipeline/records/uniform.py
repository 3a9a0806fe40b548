"""Values without a schema that all have one shape, as Arrow columns: a whole batch as one value whose leaves are columns.

A map of Connect is a dict in the order of Java's HashMap (`javamaps`). Here one dict stands for the maps of all records: they
have the same members in the same order, and a member is again such a dict, a `Leaf`, or None if it is null in all of them. So
what a transform does to the one value it does to all, and what it does to a leaf it does to a column. A transform that cannot
treat all records alike raises Failed: then each record is transformed by itself, from `values`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from playhead.pipeline.records.arrowtypes import arrow_type
from playhead.pipeline.records.batch import Moment, Typed, Untyped
from playhead.pipeline.records.schema import TIMESTAMP, Schema

_JAVA_CLASSES: dict[str, Callable[[Any], Any]] = {
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "float": np.float32,
}
MOMENT = Schema("int64", True, TIMESTAMP, 1)
_NULL = Schema("string", True)


@dataclass(frozen=True, slots=True)
class Leaf:
    """`schema`: what class of Java its values are of. They are of `arrow_type(schema)`; a null is a null. MOMENT: dates."""

    schema: Schema
    column: pa.Array

    @property
    def is_moment(self) -> bool:
        return self.schema.name == TIMESTAMP

    def to_list(self) -> list[object]:
        if self.is_moment:
            return [None if one is None else Moment(one) for one in self.column.cast(pa.int64()).to_pylist()]
        made: list[object] = self.column.to_pylist()
        as_class = _JAVA_CLASSES.get(self.schema.type)
        return made if as_class is None else [None if one is None else as_class(one) for one in made]


Tree = Any  # dict[str, Tree] | Leaf | None: as values without a schema are `object`


class Uniform(Untyped):
    """As many values as there are records. `tree` is not None."""

    __slots__ = ("_count", "_made", "tree")
    tree: Tree
    _count: int
    _made: list[Any] | None

    def __init__(self, tree: Tree, count: int) -> None:
        for name, given in (("tree", tree), ("_count", count), ("_made", None)):
            object.__setattr__(self, name, given)

    @property
    def values(self) -> Sequence[object]:
        """Each by itself, made when they are first asked for."""
        made = self._made
        if made is None:
            made = _values(self.tree, self._count)
            object.__setattr__(self, "_made", made)
        return made

    def __len__(self) -> int:
        return self._count

    def nulls(self) -> np.ndarray:
        if isinstance(self.tree, Leaf):
            found: np.ndarray = self.tree.column.is_null().to_numpy(zero_copy_only=False)
            return found
        return np.zeros(len(self), bool)

    def take(self, rows: np.ndarray) -> "Uniform":
        places = pa.array(rows)
        return Uniform(_mapped(lambda leaf: Leaf(leaf.schema, leaf.column.take(places)), self.tree), len(rows))

    @property
    def is_plain(self) -> bool:
        """Maps in which there is no date."""
        return isinstance(self.tree, dict) and not any(leaf.is_moment for leaf in _leaves(self.tree))

    def typed(self) -> Typed:
        """The same columns as a struct; its fields are in the order of the members."""
        schema = schema_of(self.tree)
        return Typed(schema, _column(self.tree, schema, len(self)))


def joined(parts: Sequence[Uniform], order: np.ndarray) -> Uniform:
    """Of one `schema_of`."""

    def together(*leaves: Leaf) -> Leaf:
        return Leaf(leaves[0].schema, pa.concat_arrays([leaf.column for leaf in leaves]))

    whole = _mapped(together, *(part.tree for part in parts))
    return Uniform(whole, sum(map(len, parts))).take(order)


def schema_of(tree: Tree) -> Schema:
    """Of what is written: a member that is null in all records is written as null."""
    if isinstance(tree, dict):
        return Schema("struct", True, fields=tuple((name, schema_of(inner)) for name, inner in tree.items()))
    return _NULL if tree is None else tree.schema


def _mapped(change: Callable[..., Leaf], *trees: Tree) -> Tree:
    first = trees[0]
    if isinstance(first, dict):
        return {name: _mapped(change, *(tree[name] for tree in trees)) for name in first}
    return None if first is None else change(*trees)


def _leaves(tree: Tree) -> Iterator[Leaf]:
    if isinstance(tree, dict):
        for inner in tree.values():
            yield from _leaves(inner)
    elif tree is not None:
        yield tree


def _values(tree: Tree, count: int) -> list[Any]:
    if isinstance(tree, dict):
        if not tree:
            return [{} for _ in range(count)]
        names, columns = list(tree), [_values(inner, count) for inner in tree.values()]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return [None] * count if tree is None else tree.to_list()


def _column(tree: Tree, schema: Schema, count: int) -> pa.Array:
    if tree is None:
        return pa.nulls(count, arrow_type(schema))
    if not isinstance(tree, dict):
        return tree.column
    if not tree:
        return pa.array([{}] * count, arrow_type(schema))
    columns = [_column(tree[name], inner, count) for name, inner in schema.fields]
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type(schema)))
