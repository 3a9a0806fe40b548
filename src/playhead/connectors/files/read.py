"""Reads connectors from files, folders and stdin. Reports the faults of all of them together.

A folder yields its connector files, sorted by name, without its subfolders. Python files of a folder are skipped: a file that is
executed must be named. The suffix of a file decides its format. Without a known suffix (a shell pipe, stdin) the first line does.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from playhead.connectors.files.documents import read_json, read_properties, read_yaml
from playhead.connectors.files.foreign import refusal_of
from playhead.connectors.files.nodes import Page
from playhead.errors import ConfigInvalid, Fault
from playhead.model import ConnectorSpec, Origin

STDIN = "-"
FORMS = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".properties": "properties"}
_PROPERTY = re.compile(r"(?:[^\s=:\\]|\\.)+\s*=")


@dataclass(frozen=True, slots=True)
class SpecsRead:
    """The connectors of files. `notes`: what was in the files and is not in the connectors."""

    specs: list[ConnectorSpec]
    notes: tuple[str, ...] = ()


def read_specs(
    paths: Sequence[Path | str], *, stdin: bytes | None = None, shared_topics: bool = False
) -> list[ConnectorSpec]:
    """The connectors of these files, in the order of the paths. `shared_topics` allows several sources to write to one topic."""
    return read_files(paths, stdin=stdin, shared_topics=shared_topics).specs


def read_files(paths: Sequence[Path | str], *, stdin: bytes | None = None, shared_topics: bool = False) -> SpecsRead:
    """As `read_specs`, with the notes."""
    faults: list[Fault] = []
    specs: list[ConnectorSpec] = []
    pages: list[Page] = []
    for path in _files(paths, faults):
        page = Page("stdin" if path is None else str(path))
        specs += _read(page, path, stdin)
        faults += sorted(page.faults, key=lambda fault: fault.line or 0)
        pages.append(page)
    faults += cross_faults(specs, shared_topics=shared_topics)
    if faults:
        raise ConfigInvalid(list(dict.fromkeys(faults)))
    return SpecsRead(specs, tuple(notes_of(pages)))


def notes_of(pages: Sequence[Page]) -> Iterator[str]:
    for page in pages:
        yield from page.notes
    clusters = {cluster: name for page in pages for cluster, name in page.clusters.items()}
    if len(clusters) > 1:
        named = ", ".join(f"{cluster} ({name})" for cluster, name in clusters.items())
        yield f"the files name several Connect clusters, and one context is one cluster: {named}"


def _files(paths: Sequence[Path | str], faults: list[Fault]) -> list[Path | None]:
    """Every file once, however often it is named; None stands for stdin."""
    files: dict[str, Path | None] = {}
    for given in paths:
        if str(given) == STDIN:
            files.setdefault(STDIN, None)
            continue
        path = Path(given)
        for file in _of_folder(path, faults) if path.is_dir() else [path]:
            files.setdefault(os.path.realpath(file), file)
    return list(files.values())


def _of_folder(folder: Path, faults: list[Fault]) -> Iterator[Path]:
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    except OSError as error:
        faults.append(Fault(str(folder), None, error.strerror or str(error)))
        return
    found = [path for path in inside if path.suffix.lower() in FORMS and not refusal_of(path.name)]
    if not found:
        python = any(path.suffix == ".py" for path in inside)
        hint = "; a Python file runs only when it is named itself" if python else ""
        faults.append(Fault(str(folder), None, f"no connector file ({', '.join(FORMS)}) is in this folder{hint}"))
    yield from found


def _read(page: Page, path: Path | None, stdin: bytes | None) -> list[ConnectorSpec]:
    if path is not None and (refusal := refusal_of(path.name)):
        page.fault(None, *refusal)
        return []
    data = stdin if path is None else _data(page, path)
    if data is None:
        if path is None:
            page.fault(None, "nothing was given on stdin")
        return []
    if path is not None and path.suffix.lower() == ".py":
        from playhead.connectors.files.python_form import read_python

        return read_python(page, path)
    form = FORMS.get(path.suffix.lower()) if path is not None else None
    if form == "properties":
        return read_properties(page, data)
    text = _text(page, data)
    if text is None:
        return []
    match form or form_of(text):
        case "json":
            return read_json(page, text)
        case "properties":
            return read_properties(page, data)
        case _:
            return read_yaml(page, text)


def _data(page: Page, path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError as error:
        page.fault(None, error.strerror or str(error))
        return None


def _text(page: Page, data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        page.fault(data.count(b"\n", 0, error.start) + 1, "the file is not UTF-8 text")
        return None


def form_of(text: str) -> str:
    """By the first line with content: `{` or `[` is JSON, `key=` is properties, anything else is read as YAML."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and line[0] not in "#!"), "")
    if first[:1] in ("{", "["):
        return "json"
    return "properties" if _PROPERTY.match(first) else "yaml"


# Conflicts between valid connectors: two of them with one name, one consumer group or one topic. A topic is known only if the
# config names it: a file source, a JDBC source with its tables or its query, a data generator. With a
# transform that may change the topic, or a list of tables that is a pattern, it is unknown, and nothing is reported.

GROUP = "consumer.override.group.id"
_KAFKA_TRANSFORMS = "org.apache.kafka.connect.transforms."
_TABLE = re.compile(r"[\w$ -]+(?:\.[\w$ -]+)*")
_TABLE_LISTS = ("table.whitelist", "table.include.list")


def cross_faults(specs: Sequence[ConnectorSpec], *, shared_topics: bool = False) -> list[Fault]:
    faults = [*_names(specs), *_groups(specs)]
    return faults if shared_topics else [*faults, *_topics(specs)]


def _names(specs: Sequence[ConnectorSpec]) -> Iterator[Fault]:
    seen: dict[str, ConnectorSpec] = {}
    for spec in specs:
        first = seen.setdefault(spec.name, spec)
        if first is spec:
            continue
        if first.origin == spec.origin and spec.origin.part.startswith("template "):
            what = f"the template creates the connector {spec.name!r} more than once; put every field of 'for' into its name"
        else:
            what = f"the connector {spec.name!r} is given twice, here and at {_place(first.origin)}"
        yield _fault(spec.origin, what)


def _groups(specs: Sequence[ConnectorSpec]) -> Iterator[Fault]:
    seen: dict[str, ConnectorSpec] = {}
    for spec in specs:
        if not spec.is_sink:
            continue
        group = spec.config.get(GROUP) or f"connect-{spec.name}"
        first = seen.setdefault(group, spec)
        if first.name != spec.name:
            what = f"the sinks {first.name!r} and {spec.name!r} share the consumer group {group!r}"
            yield _fault(spec.origins.get(GROUP, spec.origin), f"{what}; give one of them another {GROUP}")


def _topics(specs: Sequence[ConnectorSpec]) -> Iterator[Fault]:
    seen: dict[str, ConnectorSpec] = {}
    for spec in specs:
        key, topics = topics_of(spec.config)
        for topic in dict.fromkeys(topics):
            first = seen.setdefault(topic, spec)
            if first.name != spec.name:
                what = f"the sources {first.name!r} and {spec.name!r} write to the same topic {topic!r}"
                yield _fault(spec.origins.get(key, spec.origin), what)


def topics_of(config: Mapping[str, str]) -> tuple[str, list[str]]:
    """The key that decides, and the topics a source writes to, as far as they are known."""
    name = config.get("connector.class", "").rpartition(".")[2].removesuffix("Connector")
    known = _KNOWN.get(name)
    if known is None or not _keeps_topic(config):
        return "", []
    key, topics = known
    return key, [topic for topic in topics(config) if topic]


def _keeps_topic(config: Mapping[str, str]) -> bool:
    """Kafka's own transforms keep the topic, except its routers. The effect of others is unknown."""
    aliases = [alias.strip() for alias in config.get("transforms", "").split(",") if alias.strip()]
    kinds = [config.get(f"transforms.{alias}.type", "") for alias in aliases]
    return all(kind.startswith(_KAFKA_TRANSFORMS) and not kind.endswith("Router") for kind in kinds)


def _one(key: str) -> Callable[[Mapping[str, str]], list[str]]:
    return lambda config: [config.get(key, "").strip()]


def _jdbc(config: Mapping[str, str]) -> list[str]:
    """`topic.prefix` and the bare table name; for a query only the prefix."""
    prefix = config.get("topic.prefix", "")
    if config.get("query", "").strip():
        return [prefix]
    tables = next((config[key] for key in _TABLE_LISTS if config.get(key)), "").split(",")
    return [prefix + table.strip().rpartition(".")[2] for table in tables if _TABLE.fullmatch(table.strip())]


_KNOWN: dict[str, tuple[str, Callable[[Mapping[str, str]], Iterable[str]]]] = {
    "FileStreamSource": ("topic", _one("topic")),
    "JdbcSource": ("topic.prefix", _jdbc),
    "Datagen": ("kafka.topic", _one("kafka.topic")),
}


def _fault(origin: Origin, what: str) -> Fault:
    return Fault(origin.where, origin.line, what)


def _place(origin: Origin) -> str:
    return f"{origin.where}:{origin.line}" if origin.line else origin.where
