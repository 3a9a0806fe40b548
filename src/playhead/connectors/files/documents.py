"""Converts a parsed file to connectors: the YAML document with `common` and `connectors`, bodies in a list, properties, and the
forms of other tools (foreign.py).

Precedence: a key of a connector overrides `common`. A key of `common` applies to every connector of its document, whether it
makes sense there or not. `common` is not a template: it is the same text for all.
"""

from collections.abc import Iterable, Iterator, Mapping

from playhead.config.java_properties import parse_properties
from playhead.connectors.files.body import BodySetting, SpecDraft, read_body, read_settings, to_spec, without_nulls
from playhead.connectors.files.foreign import read_foreign, title_of
from playhead.connectors.files.json_form import document_of
from playhead.connectors.files.nodes import Items, KeyNode, Leaf, Node, Page, TableNode, kind_of, text_leaf
from playhead.connectors.files.templates import Row, faults_in, fields_of, fill, fill_node, read_rows
from playhead.connectors.files.yaml_form import parse_yaml
from playhead.errors import ConfigInvalid
from playhead.model import ConnectorSpec, Origin

TOP_KEYS = ("common", "connectors")
CONNECTOR_KEYS = ("engine", "state", "config", "for", "offsets")


def read_json(page: Page, text: str) -> list[ConnectorSpec]:
    return read_bodies(page, document_of(page, text))


def read_bodies(page: Page, tables: Iterable[TableNode], part: str = "") -> list[ConnectorSpec]:
    drafts = [draft for table in tables for draft in _drafts(page, table, part)]
    return [to_spec(page, draft) for draft in drafts]


def _drafts(page: Page, table: TableNode, part: str) -> list[SpecDraft]:
    foreign = read_foreign(page, table, part)
    if foreign is not None:
        return foreign
    body = read_body(page, table, part)
    return [body] if body else []


def read_properties(page: Page, data: bytes) -> list[ConnectorSpec]:
    """One connector, with its `name` inside, as a standalone worker takes it."""
    try:
        properties = parse_properties(data, page.where)
    except ConfigInvalid as error:
        page.faults.extend(error.faults)
        return []
    entries = {entry.key: KeyNode(entry.line, text_leaf(entry.value, entry.line)) for entry in properties}
    first = properties[0].line if properties else None
    return read_bodies(page, [TableNode(entries["name"].line if "name" in entries else first, entries)])


def read_yaml(page: Page, text: str) -> list[ConnectorSpec]:
    documents = parse_yaml(page, text)
    if not documents and not page.faults:
        page.fault(None, "the file is empty", "write connectors: with a connector below it")
    if any(title_of(document) for document in documents):  # rendered templates leave documents without content
        documents = [document for document in documents if kind_of(document) != "empty"]
    return [spec for document in documents for spec in _Document(page).specs(document)]


class _Document:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.common: dict[str, BodySetting] = {}

    def specs(self, root: Node) -> Iterator[ConnectorSpec]:
        if not isinstance(root, TableNode):
            self.page.fault(
                root.line, f"the document is {kind_of(root)}", "write connectors: with a connector below it"
            )
            return
        foreign = read_foreign(self.page, root)
        if foreign is not None:
            yield from (to_spec(self.page, draft) for draft in foreign)
            return
        self._check_top(root)
        common, connectors = root.entries.get("common"), root.entries.get("connectors")
        if common:
            self._read_common(common)
        if connectors and isinstance(connectors.node, TableNode):
            for name, entry in connectors.node.entries.items():
                yield from self._connector(name, entry)
        elif connectors:
            hint = "write it like connectors: {orders_src: {config: {...}}}"
            self.page.fault(connectors.line, f"'connectors' is {kind_of(connectors.node)}", hint)

    def _check_top(self, root: TableNode) -> None:
        if "config" in root.entries or "connector.class" in root.entries:
            hint = "in YAML write connectors: NAME: {config: {...}}, or save Connect's own body as .json"
            self.page.fault(root.line, "this is a single connector without 'connectors' and a name", hint)
            return
        self.page.unknown_keys(root, TOP_KEYS)
        if "connectors" not in root.entries:
            self.page.fault(root.line, "there is no 'connectors'")

    def _read_common(self, entry: KeyNode) -> None:
        if not isinstance(entry.node, TableNode):
            self.page.fault(entry.line, f"'common' must be a table of keys, but is {kind_of(entry.node)}")
            return
        settings = read_settings(self.page, entry.node, "common")
        if "name" in settings:
            self.page.fault(settings.pop("name").origin.line, "'name' cannot be common to all connectors")
        self.common = without_nulls(self.page, settings, {})

    def _connector(self, name: str, entry: KeyNode) -> Iterator[ConnectorSpec]:
        table = entry.node
        if not isinstance(table, TableNode):
            self.page.fault(entry.line, f"connector {name!r} is {kind_of(table)}", "it needs a config: {...}")
            return
        config = table.entries.get("config")
        if config is None or not isinstance(config.node, TableNode):
            self._no_config(name, entry.line, table, config)
            return
        self.page.unknown_keys(table, CONNECTOR_KEYS, f" in connector {name!r}")
        each = table.entries.get("for")
        if each is None:
            yield self._plain(name, entry.line, table, config.node)
        else:
            yield from self._template(name, entry.line, table, each)

    def _no_config(self, name: str, line: int | None, table: TableNode, config: KeyNode | None) -> None:
        if config is not None:
            self.page.fault(
                config.line, f"the 'config' of {name!r} must be a table of keys, not {kind_of(config.node)}"
            )
            return
        flat = [key for key in table.entries if key not in CONNECTOR_KEYS]
        if flat:
            hint = f"put {flat[0]!r} and the other keys of the connector under config:"
            self.page.fault(table.entries[flat[0]].line, f"connector {name!r} has no 'config'", hint)
        else:
            self.page.fault(line, f"connector {name!r} has no 'config'")

    def _plain(self, name: str, line: int | None, table: TableNode, config: TableNode) -> ConnectorSpec:
        """Without `for:` nothing is a template: braces in values stay. Braces in the name mean a missing `for:`."""
        if fields := fields_of(name):
            hint = f"add for: {{{fields[0]}: [...]}}, or, if the braces belong to the name, for: {{}} and double them"
            self.page.fault(line, f"the name {name!r} has a field, but the connector has no 'for'", hint)
        part = f"connector {name}"
        settings = without_nulls(self.page, read_settings(self.page, config, part), self.common)
        return self._spec(name, Origin(self.page.where, line, part), settings, table.entries)

    def _template(self, name: str, line: int | None, table: TableNode, each: KeyNode) -> Iterator[ConnectorSpec]:
        part = f"template {name}"
        config = table.entries["config"].node
        own = read_settings(self.page, config, part) if isinstance(config, TableNode) else {}
        rows = read_rows(self.page, each)
        if not rows or not self._template_is_sound(name, line, own, table, rows):
            return
        settings = without_nulls(self.page, own, self.common)
        for row in rows:
            entries = dict(table.entries)
            if offsets := entries.get("offsets"):
                entries["offsets"] = KeyNode(offsets.line, fill_node(offsets.node, row))
            filled = {
                key: BodySetting(fill(setting.text or "", row), setting.origin) if key in own else setting
                for key, setting in settings.items()
            }
            yield self._spec(fill(name, row), Origin(self.page.where, line, part), filled, entries)

    def _template_is_sound(
        self, name: str, line: int | None, own: Mapping[str, BodySetting], table: TableNode, rows: list[Row]
    ) -> bool:
        before = len(self.page.faults)
        fields = list(rows[0])
        self._check(name, line, f"the name {name!r}", fields)
        if len(rows) > 1 and not fields_of(name):
            hint = f"put {{{fields[0]}}} into it"
            self.page.fault(line, f"the name {name!r} is the same for all {len(rows)} connectors", hint)
        for key, setting in own.items():
            self._check(setting.text or "", setting.origin.line, f"the value of {key!r}", fields)
            if set(fields_of(key)) & set(fields):
                self.page.fault(setting.origin.line, f"the key {key!r} has a field", "only names and values are filled")
        if offsets := table.entries.get("offsets"):
            self._check_node(offsets.node, offsets.line, fields)
        for key, setting in self.common.items():
            if key not in own and set(fields_of(setting.text or "")) & set(fields):
                hint = f"nothing is filled in there; set it in the config of {name!r}"
                self.page.fault(setting.origin.line, f"the common value of {key!r} has a field of 'for'", hint)
        return len(self.page.faults) == before

    def _check(self, text: str, line: int | None, what: str, fields: list[str]) -> None:
        for fault, hint in faults_in(text, fields):
            self.page.fault(line, f"{what}: {fault}", hint)

    def _check_node(self, node: Node, line: int | None, fields: list[str]) -> None:
        if isinstance(node, Leaf):
            if isinstance(node.value, str):
                self._check(node.text, node.line or line, "a value of 'offsets'", fields)
            return
        inner = node.items if isinstance(node, Items) else [entry.node for entry in node.entries.values()]
        for below in inner:
            self._check_node(below, node.line or line, fields)

    def _spec(
        self, name: str, origin: Origin, settings: Mapping[str, BodySetting], entries: Mapping[str, KeyNode]
    ) -> ConnectorSpec:
        draft = SpecDraft(name, origin, settings, entries.get("engine"), entries.get("state"), entries.get("offsets"))
        return to_spec(self.page, draft)
