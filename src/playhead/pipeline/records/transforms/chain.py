"""A chain of transforms applied to the key, the value and the topic of a stream, once, when the stream is planned.

What Kafka's transform would fail at with the first record is refused here, before anything is read. What depends on a value (a
text that is no number) ends the task at its row, as it would end Connect's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from playhead.errors import Invalid
from playhead.pipeline.records.encode.nodes import Node, Read, Struct
from playhead.pipeline.records.transforms import Chain, RegexRouter, Transform, ValueToKey
from playhead.pipeline.records.transforms.regex import matches, replace_first
from playhead.pipeline.records.transforms.retyping import Retyping, retype
from playhead.pipeline.records.transforms.shaping import key_of, reshape


@dataclass(frozen=True, slots=True)
class Parts:
    """Of every record of a stream. `key` None: no key and no schema of one."""

    topic: str
    value: Node
    key: Node | None = None


def route(chain: Chain, topic: str) -> str:
    """The topic in which the records end."""
    return [topic, *(after for _, after in _along(chain, topic))][-1]


def apply_chain(chain: Chain, parts: Parts) -> Parts:
    for transform, after in _along(chain, parts.topic):
        try:
            parts = replace(_applied(transform, parts), topic=after)
        except Invalid as error:
            raise Invalid(f"transform {transform.alias!r}: {error.what}", error.hint) from None
    return parts


def columns_shown(value: Node) -> dict[str, str]:
    """Column -> the field of the value that still holds it as it was read."""
    if not isinstance(value, Struct):
        return {}
    return {leaf.field.name: name for name, leaf in value.fields if isinstance(leaf, Read)}


def _along(chain: Chain, topic: str) -> Iterator[tuple[Transform, str]]:
    """The transforms that apply, each with the topic after it: a predicate and a field of the topic see the one before."""
    for transform in chain:
        condition = transform.only_if
        if condition is not None and matches(condition.pattern, topic) == condition.negate:
            continue
        if isinstance(transform.change, RegexRouter):
            topic = replace_first(transform.change.regex, topic, transform.change.replacement)
        yield transform, topic


def _applied(transform: Transform, parts: Parts) -> Parts:
    change = transform.change
    if isinstance(change, RegexRouter):
        return parts
    if isinstance(change, ValueToKey):
        return replace(parts, key=key_of(change, parts.value))
    node = parts.key if transform.on_key else parts.value
    if node is None:
        raise Invalid("there is no key to change in this topic", "let ValueToKey apply to it, too")
    changed = retype(change, node) if isinstance(change, Retyping) else reshape(change, node, parts.topic)
    return replace(parts, key=changed) if transform.on_key else replace(parts, value=changed)
