"""What of a connector's config changes with its topic, and what a sink would do otherwise because of that.

A sink may use the name of the topic, the partition and the offset of a record: for its output, in its transforms, in the key of
its rows. All three are others in the new topic. Where the config can say the old name, it does; the rest is reported.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from playhead.shrink.record import MovedConnector
from playhead.topics.usage import MIRRORS, READS, WRITES, ConnectorUse, how_by_config

Config = Mapping[str, str | None]
ROUTE = "playheadShrink"
TOPIC, TABLE, TABLES = "${topic}", "table.name.format", "topics.to.tables.mapping"
_OF_KAFKA = "org.apache.kafka.connect.transforms."
ROUTER = f"{_OF_KAFKA}RegexRouter"
# They neither look at the topic, the partition or the offset of a record, nor change its topic.
_BLIND = re.compile(
    "Cast|DropHeaders|ExtractField|Filter|Flatten|HeaderFrom|HoistField|InsertHeader|MaskField|ReplaceField|SetSchemaMetadata"
    "|TimestampConverter|ValueToKey"
)
# S3, Google Cloud Storage, Azure Blob Storage and Data Lake, HDFS: the name of an object has topic, partition and first offset.
_NAMES_BY_OFFSET = re.compile("s3|gcs|gcpstorage|googlecloudstorage|blob|datalake|adls|hdfs", re.IGNORECASE)
_INSERTED = ("topic.field", "partition.field", "offset.field")


def changed_config(use: ConnectorUse, config: Config, topic: str, target: str) -> dict[str, str | None] | None:
    """The keys of the config that change. None: it cannot be moved."""
    if use.how == READS:
        return _sink_after(config, topic, target) if use.type == "sink" else None
    if use.how != WRITES:
        return None
    if config.get("topic") == topic:
        return {"topic": target}
    if topic in (names := _words(config.get("topics"))):
        return {"topics": _replaced_in(names, topic, target)}
    chain = _words(config.get("transforms"))
    if ROUTE in chain:
        return None
    name = f"transforms.{ROUTE}"
    return {
        "transforms": ",".join([*chain, ROUTE]),
        f"{name}.type": ROUTER,
        f"{name}.regex": re.escape(topic),
        f"{name}.replacement": target,
    }


def _sink_after(config: Config, topic: str, target: str) -> dict[str, str | None] | None:
    names = _words(config.get("topics"))
    if topic not in names:
        return None
    changes: dict[str, str | None] = {"topics": _replaced_in(names, topic, target)}
    before, after = routed(config, topic), routed(config, target)
    if not _is_jdbc(config) or before is None or before == after:
        return changes
    # It goes on writing to the same table.
    if before in (tables := _tables(config)) and after is not None:
        changes[TABLES] = f"{config[TABLES]},{after}:{tables[before]}"
    elif names == [topic] and TOPIC in _table(config):
        changes[TABLE] = _table(config).replace(TOPIC, before)
    return changes


def _replaced_in(names: Sequence[str], topic: str, target: str) -> str:
    return ",".join(target if name == topic else name for name in names)


def still_uses(config: Config, one: MovedConnector, topic: str, wanted: Config) -> bool:
    """Whether a connector that was moved away from the topic, by the `wanted` keys, uses it again: by an edit since then."""
    if one.type == "sink":
        unknown = list[str]()
        return how_by_config(one.name, topic, config, unknown) is not None or bool(unknown)
    if "topic" in wanted:
        return config.get("topic") == topic
    if "topics" in wanted:
        return topic in _words(config.get("topics"))
    keys = [key for key in one.after if key != "transforms"]
    is_routed = ROUTE in _words(config.get("transforms"))
    return is_routed != (ROUTE in _words(wanted.get("transforms"))) or any(
        config.get(key) != wanted.get(key) for key in keys
    )


def why_not_moved(use: ConnectorUse, config: Config) -> str:
    if use.how == MIRRORS:
        return "it mirrors the topic, and would mirror the new one as another topic: stop it until you have decided"
    if use.how == READS and use.type != "sink":
        return "it is a source that reads the topic, and would begin the new one anew: delete it, or name another topic in it"
    if use.how == READS and config.get("topics.regex"):
        return "it reads by topics.regex; name its topics in `topics`"
    if use.how == WRITES:
        return "it was moved by a change that was not finished"
    return f"the topic is {use.how}"


def whys_other(config: Config, topic: str, target: str) -> Iterator[str]:
    """What a sink with this new config may do otherwise than before."""
    if _is_jdbc(config):
        name = routed(config, target)
        is_other = name is None or name != routed(config, topic)
        if is_other and name not in _tables(config) and (TOPIC in _table(config) or _tables(config)):
            yield f"names its table by the topic ({TABLE}={_table(config)}), which would be {target}"
        if config.get("pk.mode") == "kafka":
            yield (
                f"has topic, partition and offset as the key of its rows (pk.mode=kafka), which are others in {target}: a record"
                " that it reads again becomes another row"
            )
    elif (name := _one_name(config, topic, target)) is not None and not _names_by_offset(config):
        yield f"{_overwrites(name)}, if it names them so"
    elif not _is_file(config):
        yield f"may name its output by the topic, which would be {target}"
    yield from _whys_transformed(config, topic, target)


def why_overwrites(config: Config, topic: str, target: str) -> str | None:
    """Why a sink overwrites what it has written of the old topic, whose offsets are there again."""
    name = _one_name(config, topic, target)
    return _overwrites(name) if name is not None and _names_by_offset(config) else None


def _one_name(config: Config, topic: str, target: str) -> str | None:
    """To which both topics are routed, in a sink whose output may depend on it."""
    name = routed(config, target)
    return name if name == routed(config, topic) and not _is_jdbc(config) and not _is_file(config) else None


def _overwrites(name: str) -> str:
    return f"routes both topics to {name}: the offsets begin at 0 again, and outputs that are named by them may be overwritten"


def _whys_transformed(config: Config, topic: str, target: str) -> Iterator[str]:
    for name in _words(config.get("transforms")):
        kind = _kind(config, name)
        if kind == "InsertField":
            if found := [key for key in _INSERTED if config.get(f"transforms.{name}.{key}")]:
                yield f"inserts {', '.join(found)} ({name}), which are others in {target}"
        elif kind not in ("RegexRouter", "TimestampRouter") and not _BLIND.fullmatch(kind):
            yield f"has a transform that may look at the topic ({name}), which would be {target}"
    for name in _words(config.get("predicates")):
        pattern = config.get(f"predicates.{name}.pattern")
        if pattern is not None and _tells_apart(pattern, topic, target):
            yield f"has a predicate that looks at the topic ({name}: {pattern}), which would be {target}"


def routed(config: Config, topic: str) -> str | None:
    """The name of the topic behind the transforms; None: not known."""
    for name in _words(config.get("transforms")):
        kind = _kind(config, name)
        if kind == "RegexRouter" and not config.get(f"transforms.{name}.predicate"):
            found = _replaced(config, name, topic)
            if found is None:
                return None
            topic = found
        elif kind != "InsertField" and not _BLIND.fullmatch(kind):
            return None
    return topic


def _replaced(config: Config, name: str, topic: str) -> str | None:
    """By a RegexRouter; its pattern and its replacement are Java's."""
    pattern, new = (config.get(f"transforms.{name}.{key}") or "" for key in ("regex", "replacement"))
    if "\\" in new or "${" in new:
        return None
    try:
        found = re.fullmatch(pattern, topic)
        return found.expand(re.sub(r"\$(\d)", r"\\g<\1>", new)) if found else topic
    except (re.error, IndexError):
        return None


def _tells_apart(pattern: str, one: str, other: str) -> bool:
    """Whether a pattern may match only one of them."""
    try:
        return bool(re.fullmatch(pattern, one)) != bool(re.fullmatch(pattern, other))
    except re.error:
        return True  # Java's own syntax


def _kind(config: Config, name: str) -> str:
    """Of a transform: the class without its side, if it is one of Kafka's own."""
    kind = config.get(f"transforms.{name}.type") or ""
    return kind.removeprefix(_OF_KAFKA).partition("$")[0] if kind.startswith(_OF_KAFKA) else kind


def _is_jdbc(config: Config) -> bool:
    return _class(config).startswith("JdbcSink")


def _is_file(config: Config) -> bool:
    return _class(config).startswith("FileStreamSink")


def _names_by_offset(config: Config) -> bool:
    return bool(_NAMES_BY_OFFSET.search(_class(config)))


def _class(config: Config) -> str:
    return (config.get("connector.class") or "").rpartition(".")[2]


def _table(config: Config) -> str:
    return config.get(TABLE) or TOPIC


def _tables(config: Config) -> dict[str, str]:
    pairs = (pair.rpartition(":") for pair in _words(config.get(TABLES)))
    return {topic.strip(): table.strip() for topic, _, table in pairs}


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]
