"""Connectors in the forms of other tools, read as what they are.

    Strimzi                    kafka.strimzi.io/*        KafkaConnector   spec: class, tasksMax, config, state, pause, version
    jikkou                     kafka.jikkou.io/*         KafkaConnector   spec: connectorClass, tasksMax, config, state
    Confluent for Kubernetes   platform.confluent.io/*   Connector        spec: name, class, taskMax, configs
    lists of these             List, KafkaConnectorList, ConnectorList
    Connect's REST interface   GET /connectors?expand=info&expand=status  {name: {info: {config}, status}}
    maps by name               {name: {connector.class: ...}}

A key that is no part of a connector (what restarts it, how its workers are reached) is left out and named in a note. An unknown
key is a fault, and so is an unfilled template (`{{ ... }}`). References like `${secrets:...}` stay: the worker resolves them.
Documents that hold no connector are named in one note for each file.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from playhead.connectors.files.body import CLASS, BodySetting, SpecDraft, read_settings, without_nulls
from playhead.connectors.files.nodes import Items, KeyNode, Leaf, Node, Page, TableNode, kind_of, text_leaf
from playhead.errors import near_names
from playhead.model import Origin

TASKS_MAX, PLUGIN_VERSION = "tasks.max", "connector.plugin.version"
_RESOURCE_KEYS = ("apiVersion", "kind", "metadata", "spec", "status")
_CONNECTOR_KINDS = ("KafkaConnector", "Connector")
_LISTS = ("List", "KafkaConnectorList", "ConnectorList")
_TEMPLATE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_RENDER = "render the file first (helm template, jikkou prepare)"
_EXPANDED = ("info", "status")
_WATCH = "playhead connectors watch restarts failed connectors"


@dataclass(frozen=True, slots=True)
class Tool:
    """How one tool spells a connector. `left_out`: the keys of its spec that are not carried over, with the reason."""

    title: str
    kind: str
    config: str
    settings: Mapping[str, str]
    left_out: Mapping[str, str]
    others: tuple[str, ...] = ()
    cluster_label: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.config, *self.settings, *self.others, *self.left_out)


TOOLS = {
    "kafka.strimzi.io": Tool(
        "Strimzi",
        "KafkaConnector",
        "config",
        {"class": CLASS, "tasksMax": TASKS_MAX, "version": PLUGIN_VERSION},
        {
            "autoRestart": f"the operator does this; {_WATCH}",
            "listOffsets": "the operator does this; playhead offsets export writes positions to a file",
            "alterOffsets": "the operator does this; playhead offsets import reads positions from a file",
        },
        ("state", "pause"),
        "strimzi.io/cluster",
    ),
    "kafka.jikkou.io": Tool(
        "jikkou",
        "KafkaConnector",
        "config",
        {"connectorClass": CLASS, "tasksMax": TASKS_MAX},
        {},
        ("state",),
        "kafka.jikkou.io/connect-cluster",
    ),
    "platform.confluent.io": Tool(
        "Confluent for Kubernetes",
        "Connector",
        "configs",
        {"class": CLASS, "taskMax": TASKS_MAX},
        {
            "restartPolicy": f"the operator does this; {_WATCH}",
            "connectRest": "the context says how to reach the workers",
        },
        ("name", "connectClusterRef"),
    ),
}


def title_of(root: Node) -> str | None:
    """The form of a document of another tool, in words; None: it is ours."""
    if not isinstance(root, TableNode):
        return None
    if is_resource(root):
        return "a Kubernetes resource"
    if is_expanded(root):
        return "an answer of Connect's REST interface"
    return "a map of configs by name" if is_map(root) else None


def is_resource(table: TableNode) -> bool:
    return {"apiVersion", "kind"} <= table.entries.keys()


def is_expanded(table: TableNode) -> bool:
    """Every value is what `?expand=` returns for a connector."""
    inner = [entry.node for entry in table.entries.values()]
    return bool(inner) and all(
        isinstance(node, TableNode)
        and node.entries.keys() <= set(_EXPANDED)
        and any(isinstance(e.node, TableNode) for e in node.entries.values())
        for node in inner
    )


def is_map(table: TableNode) -> bool:
    """Only tables, and one of them is the config of a connector. `connectors`, `common` and `config` are our own keys."""
    inner = [entry.node for entry in table.entries.values()]
    ours = table.entries.keys() & {"connectors", "common", "config"}
    tables = [node for node in inner if isinstance(node, TableNode)]
    return not ours and len(tables) == len(inner) and any(CLASS in node.entries for node in tables)


def read_foreign(page: Page, root: Node, part: str = "") -> list[SpecDraft] | None:
    """None: the document is in none of these forms."""
    if not isinstance(root, TableNode):
        return None
    if is_resource(root):
        return _Resources(page).read(root)
    if is_expanded(root):
        return [draft for name, entry in root.entries.items() if (draft := _expanded(page, name, entry))]
    if is_map(root):
        return [draft for name, entry in root.entries.items() if (draft := _of_map(page, name, entry, part))]
    return None


def _of_map(page: Page, name: str, entry: KeyNode, part: str) -> SpecDraft | None:
    if not isinstance(entry.node, TableNode):
        return None
    part = part or f"connector {name}"
    settings = without_nulls(page, read_settings(page, entry.node, part), {})
    return SpecDraft(name, Origin(page.where, entry.line, part), settings)


def _expanded(page: Page, name: str, entry: KeyNode) -> SpecDraft | None:
    info, status = (_table(entry.node, key) for key in _EXPANDED)
    config = _table(info, "config") if info else None
    if config is None:
        hint = "ask the worker for /connectors?expand=info&expand=status"
        page.fault(entry.line, f"the config of {name!r} is not in this answer of a worker", hint)
        return None
    part = f"connector {name}"
    # A worker may return a key without a value. It counts as absent, as in a comparison with what runs.
    given = {key: s for key, s in read_settings(page, config, part).items() if s.text is not None}
    connector = _table(status, "connector") if status else None
    state = connector.entries.get("state") if connector else None
    return SpecDraft(name, Origin(page.where, entry.line, part), given, state=_wanted(state))


def _wanted(state: KeyNode | None) -> KeyNode | None:
    """The requested state behind a reported one: what has failed, or is not assigned yet, is requested to run."""
    if state is None or not isinstance(state.node, Leaf):
        return state
    kept = state.node.text if state.node.text in ("PAUSED", "STOPPED") else "RUNNING"
    return KeyNode(state.line, text_leaf(kept, state.line))


class _Resources:
    """The resources of one document. Gathers what is left out, so that there is one note for each reason."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def read(self, root: TableNode) -> list[SpecDraft]:
        return list(self._resource(root))

    def _resource(self, table: TableNode, version: str = "", kind: str = "") -> Iterator[SpecDraft]:
        """`version` and `kind`: those of the list, for an item that does not repeat them."""
        version, kind = _text(table, "apiVersion") or version, _text(table, "kind") or kind
        group = version.partition("/")[0]
        tool = TOOLS.get(group)
        if kind in _LISTS or (kind.endswith("List") and "items" in table.entries):
            yield from self._items(table, version, kind)
        elif tool and kind == tool.kind:
            if draft := self._connector(table, tool):
                yield draft
        elif kind in _CONNECTOR_KINDS:
            known = ", ".join(f"{name} ({one.kind})" for name, one in TOOLS.items())
            self.page.fault(table.line, f"a {kind} of {version or 'no apiVersion'} is not known", f"there is: {known}")
        else:
            metadata = _table(table, "metadata")
            name = _text(metadata, "name") if metadata else ""
            self.page.skipped.append(f"{kind} {name}".rstrip())

    def _items(self, table: TableNode, version: str, kind: str) -> Iterator[SpecDraft]:
        entry = table.entries.get("items")
        if entry is None or not isinstance(entry.node, Items):
            self.page.fault(table.line, f"the {kind} has no list 'items'")
            return
        for item in entry.node.items:
            if isinstance(item, TableNode):
                yield from self._resource(item, version, kind.removesuffix("List"))
            else:
                self.page.fault(item.line or entry.line, f"an item of the {kind} is {kind_of(item)}")

    def _connector(self, table: TableNode, tool: Tool) -> SpecDraft | None:
        self.page.unknown_keys(table, _RESOURCE_KEYS, f" in a {tool.kind}")
        metadata, spec = _table(table, "metadata"), _table(table, "spec")
        name = (_text(spec, "name") if spec and "name" in tool.keys else "") or (
            _text(metadata, "name") if metadata else ""
        )
        if not name:
            self.page.fault(table.line, f"the {tool.kind} has no 'metadata.name'")
            return None
        if _TEMPLATE.search(name):
            self.page.fault(table.line, f"the name of a {tool.kind} is a template that is not filled", _RENDER)
            return None
        if spec is None:
            self.page.fault(table.line, f"the {tool.kind} {name!r} has no 'spec'")
            return None
        if metadata and not self._is_meant(name, metadata):
            return None
        self.page.unknown_keys(spec, tool.keys, f" in the spec of {name!r} ({tool.title})")
        for key in tool.left_out:
            if key in spec.entries:
                self.page.leave_out(f"spec.{key}", name, tool.left_out[key])
        if cluster := _cluster(metadata, spec, tool):
            self.page.clusters.setdefault(cluster, name)
        part = f"connector {name}"
        return SpecDraft(
            name,
            Origin(self.page.where, metadata.line if metadata else table.line, part),
            self._settings(name, spec, tool, part),
            state=self._state(name, spec),
        )

    def _is_meant(self, name: str, metadata: TableNode) -> bool:
        """Annotations are orders to the tool. jikkou's two say that this connector is not wanted here."""
        notes = _table(metadata, "annotations")
        orders = [key for key in notes.entries if _is_order(key)] if notes else []
        for key in orders:
            on = _text(notes, key).lower() == "true" if notes else False
            if key == "jikkou.io/delete" and on:
                line = notes.entries[key].line if notes else None
                self.page.fault(line, f"{name!r} is marked to be deleted ({key})", f"playhead connectors delete {name}")
                return False
            if key == "jikkou.io/ignore" and on:
                self.page.skipped.append(f"{name} ({key})")
                return False
            self.page.leave_out(f"the annotation {key}", name, "it is an order to the tool, and no key of a connector")
        return True

    def _settings(self, name: str, spec: TableNode, tool: Tool, part: str) -> dict[str, BodySetting]:
        lifted = {ours: spec.entries[theirs] for theirs, ours in tool.settings.items() if theirs in spec.entries}
        theirs = read_settings(self.page, TableNode(spec.line, lifted), part)
        settings = without_nulls(self.page, theirs, {})
        held = spec.entries.get(tool.config)
        own: dict[str, BodySetting] = {}
        if held is not None and not isinstance(held.node, TableNode):
            self.page.fault(held.line, f"'spec.{tool.config}' of {name!r} is {kind_of(held.node)}")
        elif held is not None and isinstance(held.node, TableNode):
            own = without_nulls(self.page, read_settings(self.page, held.node, part), {})
        for key in settings.keys() & own.keys():
            if settings[key].text != own[key].text:
                field = next(theirs for theirs, ours in tool.settings.items() if ours == key)
                what = f"{key!r} in 'spec.{tool.config}' of {name!r} differs from 'spec.{field}'"
                self.page.fault(own[key].origin.line, what, f"{tool.title} uses 'spec.{field}'; remove the other")
        merged = {**settings, **own, **settings}
        if CLASS not in merged:
            field = next(theirs for theirs, ours in tool.settings.items() if ours == CLASS)
            near = near_names(field, [key for key in spec.entries if "class" in key.lower()])
            self.page.fault(spec.line, f"the {tool.kind} {name!r} has no 'spec.{field}'", near)
            merged[CLASS] = BodySetting("?", Origin(self.page.where, spec.line, part))  # reported once, here
        for key, setting in merged.items():
            if setting.text and _TEMPLATE.search(setting.text):
                self.page.fault(setting.origin.line, f"the value of {key!r} is a template that is not filled", _RENDER)
        return merged

    def _state(self, name: str, spec: TableNode) -> KeyNode | None:
        """Strimzi's `state` wins over the older `pause`."""
        state, pause = spec.entries.get("state"), spec.entries.get("pause")
        if pause is None:
            return state
        written = pause.node.value if isinstance(pause.node, Leaf) else None
        if not isinstance(written, bool):
            self.page.fault(pause.line, f"'spec.pause' of {name!r} is {kind_of(pause.node)}", "write true or false")
            return state
        if state is not None:
            self.page.leave_out("spec.pause", name, "'spec.state' wins")
            return state
        return KeyNode(pause.line, text_leaf("paused" if written else "running", pause.line))


def _is_order(annotation: str) -> bool:
    return annotation.startswith(("strimzi.io/", "jikkou.io/", "platform.confluent.io/"))


def _cluster(metadata: TableNode | None, spec: TableNode, tool: Tool) -> str:
    if not tool.cluster_label:
        ref = _table(spec, "connectClusterRef")
        return _text(ref, "name") if ref else ""
    labels = _table(metadata, "labels") if metadata else None
    return _text(labels, tool.cluster_label) if labels else ""


def _table(node: Node | None, key: str) -> TableNode | None:
    entry = node.entries.get(key) if isinstance(node, TableNode) else None
    return entry.node if entry and isinstance(entry.node, TableNode) else None


def _text(table: TableNode | None, key: str) -> str:
    entry = table.entries.get(key) if table else None
    return entry.node.text if entry and isinstance(entry.node, Leaf) else ""


# Files that hold no connectors, however much they look like it.

_EXPORT = "playhead connectors export --file connectors.yaml writes what runs"
REFUSED: Mapping[str, tuple[str, str]] = {
    ".toml": ("TOML is not a form of connector files", "write YAML: connectors: NAME: {config: {...}}"),
    ".tf": ("a Terraform file is not read: its values are known only to Terraform", _EXPORT),
    ".tf.json": ("a Terraform file is not read: its values are known only to Terraform", _EXPORT),
    ".tfvars": ("a Terraform file is not read: its values are known only to Terraform", _EXPORT),
    ".tfstate": ("a Terraform file is not read: its values are known only to Terraform", _EXPORT),
}


def refusal_of(name: str) -> tuple[str, str] | None:
    """Why a file of this name is not read, and what to do instead."""
    return next((why for ending, why in REFUSED.items() if name.lower().endswith(ending)), None)
