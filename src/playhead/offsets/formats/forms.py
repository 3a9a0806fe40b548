"""Positions as text, in the forms other tools read and write.

Reading is strict, because the result will be written to a store. Every fault is reported with its line or JSON path, and one
fault refuses the whole file. Values keep their type (`1`, `1.0`, `"1"` and `true` differ). The forms for Kafka offsets hold
nothing else, and none of them can request a delete. An ambiguous text is refused, never guessed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby

from playhead.connect.javajson import encode_map, encode_string
from playhead.connect.keys import OffsetKey, encode_key
from playhead.errors import Invalid, near_names
from playhead.model import Position, Positions
from playhead.model.position import INT64_MAX
from playhead.offsets.formats.read import (
    INT32_MAX,
    KAFKA_OFFSET,
    KAFKA_PARTITION,
    Faults,
    RecordReader,
    is_owner,
    is_topic,
    is_whole,
    kind_of,
    lines_of,
    parse_json,
    read_fields,
    read_kafka_line,
    read_kafka_tree,
    read_object,
    read_pairs,
    split_csv,
)


@dataclass(frozen=True, slots=True)
class Form:
    """`read` takes the text, a collector of faults, and the owner for forms that name none."""

    name: str
    about: str
    read: Callable[[str, Faults, str | None], list[Position]]
    write: Callable[[Positions], str]


def read_positions(data: bytes, where: str, form: str | None = None, owner: str | None = None) -> Positions:
    """The positions in a file. Without `form` the form is detected from the text.

    `owner`: the owner of the positions if the form names none; if it does, only positions of `owner` are returned.
    """
    text = _decoded(data, where)
    chosen = find_form(form) if form is not None else detect_form(text, where)
    faults = Faults(where)
    positions = chosen.read(text, faults, owner)
    faults.speak()
    taken = positions if owner is None else [position for position in positions if position.owner == owner]
    if positions and not taken:
        names = ", ".join(dict.fromkeys(position.owner for position in positions))
        raise Invalid(f"{where}: there are no positions of {owner!r} in it, only of {names}")
    return Positions(taken)


def read_pairs_in_order(data: bytes, where: str) -> Positions:
    """A KIP-199 document as a log: a later pair replaces an earlier one of the same partition, and the document may be empty.

    So every output of `connect-offsets --export` can be imported, also with `--from-beginning` and of an empty store.
    """
    faults = Faults(where)
    owners = read_object(parse_json(_decoded(data, where), where), "$", faults)
    positions = [
        position
        for name, pairs in (owners or {}).items()
        for position in read_pairs(pairs, f"$.{name}", name, faults, is_log=True)
    ]
    faults.speak()
    return Positions(positions)


def write_positions(positions: Positions, form: str) -> str:
    """The text of `positions`. A position that the form cannot hold is an error; none is skipped."""
    return find_form(form).write(positions)


def find_form(name: str) -> Form:
    if name not in FORMS:
        raise Invalid(f"{name!r} is not a form of positions", near_names(name, list(FORMS)))
    return FORMS[name]


def detect_form(text: str, where: str) -> Form:
    """The only form that this text can have."""
    first = text.lstrip()[:1]
    if first == "{":
        return FORMS[_json_form(parse_json(text, where), where)]
    line = next((line for line in lines_of(text) if line.strip()), "")
    if first == "[":
        if line.lstrip()[1:].lstrip().startswith('"'):
            return FORMS["kcat"]
        raise Invalid(f'{where}: $: must be an object like {{"offsets": [...]}}, not a list')
    return FORMS["csv" if "," in line else "rpk"]


def _json_form(value: object, where: str) -> str:
    if not isinstance(value, dict) or not value:
        raise Invalid(f"{where}: $: the object is empty; there is no position in it")
    if "groupid" in value:
        return "yelp"
    kinds = {kind_of(each) for each in value.values()}
    if kinds == {"a list"} and set(value) != {"offsets"}:
        return "kip199"
    if "offsets" in value and not isinstance(value["offsets"], dict):
        return "connect"
    if kinds == {"an object"}:
        return "spark"
    raise Invalid(f"{where}: this is none of the known forms of positions", f"name the form: {', '.join(FORMS)}")


def _decoded(data: bytes, where: str) -> str:
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{where}: byte {error.start} is not UTF-8 text") from None
    if not text.strip():
        raise Invalid(f"{where}: is empty; there is no position in it")
    return text


def _needed(owner: str | None, faults: Faults) -> str:
    if owner is None:
        raise Invalid(
            f"{faults.where}: does not name the owner of these positions", "name the connector or group they are for"
        )
    return owner


def _read_connect(text: str, faults: Faults, owner: str | None) -> list[Position]:
    fields = read_fields(parse_json(text, faults.where), "$", ("offsets",), faults)
    return [] if fields is None else read_pairs(fields["offsets"], "$.offsets", _needed(owner, faults), faults)


def _read_kip199(text: str, faults: Faults, owner: str | None) -> list[Position]:  # noqa: ARG001 - the text names them
    owners = read_object(parse_json(text, faults.where), "$", faults)
    if owners is not None and not owners:
        faults.add("$: the object is empty; there is no position in it")
    return [
        position for name, pairs in (owners or {}).items() for position in read_pairs(pairs, f"$.{name}", name, faults)
    ]


def _read_yelp(text: str, faults: Faults, owner: str | None) -> list[Position]:  # noqa: ARG001 - the text names it
    fields = read_fields(parse_json(text, faults.where), "$", ("groupid", "offsets"), faults)
    if fields is None:
        return []
    group = fields["groupid"]
    if not isinstance(group, str) or not is_owner(group):
        faults.add(f"$.groupid: must be the name of a group, not {kind_of(group)}")
        return []
    return read_kafka_tree(fields["offsets"], "$.offsets", group, faults)


def _read_spark(text: str, faults: Faults, owner: str | None) -> list[Position]:
    return read_kafka_tree(parse_json(text, faults.where), "$", _needed(owner, faults), faults)


def _read_csv(text: str, faults: Faults, owner: str | None) -> list[Position]:
    rows = [split_csv(line) for line in lines_of(text)]
    width = len(rows[0] or ())
    if width not in (3, 4):
        faults.add("a line must be topic,partition,offset or group,topic,partition,offset", 1)
        return []
    name = _needed(owner, faults) if width == 3 else None
    positions = []
    for number, row in enumerate(rows, 1):
        if row is None or len(row) != width:
            faults.add(f"this is not a line of {width} columns like the first one", number)
            continue
        group = row[0] if name is None else name
        if not group:
            faults.add("the group has no name", number)
        positions.append((number, read_kafka_line(group, row[width - 3 :], faults, number)))
    return _distinct(positions, faults)


def _read_rpk(text: str, faults: Faults, owner: str | None) -> list[Position]:
    name = _needed(owner, faults)
    positions = []
    for number, line in enumerate(lines_of(text), 1):
        columns = line.split()
        if not columns:
            continue  # rpk skips empty lines, too
        if len(columns) != 3:
            faults.add(f"{line!r} is not topic, partition and offset with blanks between", number)
            continue
        positions.append((number, read_kafka_line(name, columns, faults, number)))
    return _distinct(positions, faults)


def _read_kcat(text: str, faults: Faults, owner: str | None) -> list[Position]:  # noqa: ARG001 - the text names them
    reader = RecordReader(faults)
    for number, line in enumerate(lines_of(text), 1):
        reader.read(line, number)
    return reader.positions()


def _distinct(numbered: Iterable[tuple[int, Position | None]], faults: Faults) -> list[Position]:
    seen: dict[tuple[str, object], int] = {}
    positions = []
    for number, position in numbered:
        if position is None:
            continue
        first = seen.setdefault((position.owner, position.partition), number)
        if first != number:
            faults.add(f"this partition is given twice, here and in line {first}", number)
        positions.append(position)
    return positions


def _pair(position: Position) -> str:
    offset = "null" if position.offset is None else position.offset.to_json()
    return f'{{"partition":{position.partition.to_json()},"offset":{offset}}}'


def _pairs(positions: Iterable[Position], indent: str) -> str:
    """One position per line, for readable diffs under version control."""
    lines = [f"{indent}  {_pair(position)}" for position in positions]
    return "[\n" + ",\n".join(lines) + f"\n{indent}]" if lines else "[]"


def _one_owner(positions: Positions, form: str) -> str:
    owners = positions.owners
    if len(owners) > 1:
        raise Invalid(
            f"the form {form} holds the positions of one owner, but these are of {len(owners)}: {', '.join(owners[:8])}",
            "write one at a time, or use the form kip199",
        )
    return owners[0] if owners else ""


def _kafka_of(position: Position, form: str) -> tuple[str, int, int]:
    partition, offset = position.partition, position.offset
    name = f"{position.owner} {partition}"
    if set(partition) != KAFKA_PARTITION or (offset is not None and set(offset) != KAFKA_OFFSET):
        raise Invalid(f"{name}: the form {form} holds Kafka offsets only, and this is not one", "use connect or kip199")
    if offset is None:
        raise Invalid(f"{name}: the form {form} cannot delete a position", "use connect or kip199")
    topic, number, at = partition["kafka_topic"], partition["kafka_partition"], offset["kafka_offset"]
    if not isinstance(topic, str) or not is_topic(topic):
        raise Invalid(f"{name}: this is not the name of a topic")
    if not (isinstance(number, int) and is_whole(number, INT32_MAX)):
        raise Invalid(f"{name}: this is not the number of a partition")
    if not (isinstance(at, int) and is_whole(at, INT64_MAX)):
        raise Invalid(f"{name}: {at} is not a Kafka offset")
    return topic, number, at


def _write_connect(positions: Positions) -> str:
    _one_owner(positions, "connect")
    return f'{{"offsets":{_pairs(positions, "")}}}\n'


def _write_kip199(positions: Positions) -> str:
    by_owner = groupby(positions, key=lambda position: position.owner)
    lines = [f"  {encode_string(owner)}:{_pairs(group, '  ')}" for owner, group in by_owner]
    return "{\n" + ",\n".join(lines) + "\n}\n" if lines else "{}\n"


def _write_csv(positions: Positions) -> str:
    several = len(positions.owners) > 1
    lines = []
    for position in positions:
        topic, partition, offset = _kafka_of(position, "csv")
        group = f"{_quoted(position.owner)}," if several else ""
        lines.append(f"{group}{topic},{partition},{offset}\n")
    return "".join(lines)


def _quoted(group: str) -> str:
    if not group or "\n" in group or "\r" in group:
        raise Invalid(f"the group {group!r} cannot be written as CSV: Kafka's own tool reads line by line")
    return group if is_topic(group) else '"' + group.replace('"', '""') + '"'


def _write_rpk(positions: Positions) -> str:
    _one_owner(positions, "rpk")
    return "".join(f"{topic} {partition} {at}\n" for topic, partition, at in (_kafka_of(p, "rpk") for p in positions))


def _tree(positions: Positions, form: str) -> str:
    found = sorted(_kafka_of(position, form) for position in positions)
    topics = [
        f"{encode_string(topic)}:{{" + ",".join(f'"{partition}":{at}' for _, partition, at in group) + "}"
        for topic, group in groupby(found, key=lambda each: each[0])
    ]
    return "{" + ",".join(topics) + "}"


def _write_yelp(positions: Positions) -> str:
    return f'{{"groupid":{encode_string(_one_owner(positions, "yelp"))},"offsets":{_tree(positions, "yelp")}}}\n'


def _write_spark(positions: Positions) -> str:
    _one_owner(positions, "spark")
    return _tree(positions, "spark") + "\n"


def _write_kcat(positions: Positions) -> str:
    """Key, tab, value. `kcat -P -K '\\t' -Z` reads it, and writes an empty value as a tombstone."""
    lines = []
    for position in positions:
        key = encode_key(OffsetKey(position.owner, position.partition)).decode()
        lines.append(f"{key}\t{'' if position.offset is None else encode_map(position.offset)}\n")
    return "".join(lines)


FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        Form(
            "connect",
            "one owner, as Connect's REST interface, Strimzi and kcctl use it",
            _read_connect,
            _write_connect,
        ),
        Form("kip199", "any number of owners by name, as connect-offsets uses it", _read_kip199, _write_kip199),
        Form("csv", "Kafka offsets, as kafka-consumer-groups exports them: no header", _read_csv, _write_csv),
        Form("rpk", "Kafka offsets of one owner, for rpk group seek --to-file", _read_rpk, _write_rpk),
        Form(
            "yelp", "Kafka offsets of one owner, as Yelp's kafka-consumer-manager saves them", _read_yelp, _write_yelp
        ),
        Form("kcat", "records of the offsets topic, one per line, as kcat -K prints them", _read_kcat, _write_kcat),
        Form("spark", "Kafka offsets of one owner, as startingOffsets of Spark", _read_spark, _write_spark),
    )
}
