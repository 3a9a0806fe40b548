"""The rules for one connector in any file format: text for every value, a usable name, a known engine and state.

Connect stores text. A number stays as written, a boolean becomes `true` or `false`, a list becomes its items separated by commas.
Refused: nested tables, a list item with a comma in it (it would become two), a name that Connect would change.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from playhead.connectors.files.nodes import Items, KeyNode, Leaf, Node, Page, TableNode, is_unicode, kind_of, to_plain
from playhead.errors import ConfigInvalid, near_names
from playhead.model import ConnectorSpec, Engine, Origin, Positions, WantedState

CLASS = "connector.class"
BODY_KEYS = ("name", "config", "engine", "state", "offsets")
# Other keys of Connect: its POST accepts the first, its GET returns the rest. The rest does not describe what is wanted.
CONNECT_KEYS = ("initial_state", "type", "tasks")
_ITEM = re.compile(r"offsets\[(\d+)\]")
_CUT_OFF = "".join(map(chr, range(0x21)))  # by Java's trim, which keeps blanks beyond ASCII
_Choice = TypeVar("_Choice", Engine, WantedState)


@dataclass(frozen=True, slots=True)
class BodySetting:
    """`text` None: the key was given as null."""

    text: str | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class SpecDraft:
    """A connector as in the file, with the shared keys merged in."""

    name: str
    origin: Origin
    settings: Mapping[str, BodySetting]
    engine: KeyNode | None = None
    state: KeyNode | None = None
    offsets: KeyNode | None = None


def read_settings(page: Page, table: TableNode, part: str) -> dict[str, BodySetting]:
    found: dict[str, BodySetting] = {}
    for key, entry in table.entries.items():
        origin = Origin(page.where, entry.line, part)
        if not key or not is_unicode(key):
            page.fault(entry.line, f"{key!r} cannot be a key")
        elif isinstance(entry.node, Leaf) and entry.node.value is None:
            found[key] = BodySetting(None, origin)
        elif (text := _text(page, key, entry)) is not None:
            found[key] = BodySetting(text, origin)
    return found


def _text(page: Page, key: str, entry: KeyNode) -> str | None:
    node = entry.node
    if isinstance(node, TableNode):
        # Unquoted, YAML reads `{table}` as a table with the key `table`.
        field = next(iter(node.entries), "")
        looks_filled = len(node.entries) == 1 and kind_of(node.entries[field].node) == "empty"
        hint = (
            f'quote it: "{{{field}}}"'
            if looks_filled
            else f"write the whole key on one line: {key}.{field or 'x'}: ..."
        )
        page.fault(entry.line, f"the value of {key!r} is a table, and Connect takes only text", hint)
        return None
    texts = [_item(page, key, item, entry.line) for item in node.items] if isinstance(node, Items) else [node.text]
    text = None if None in texts else ",".join(item for item in texts if item is not None)
    if text is not None and not is_unicode(text):
        page.fault(entry.line, f"the value of {key!r} is not Unicode text")
    return text


def _item(page: Page, key: str, item: Node, line: int | None) -> str | None:
    if not isinstance(item, Leaf) or item.value is None:
        page.fault(item.line or line, f"the list {key!r} holds an item that is {kind_of(item)}")
        return None
    if "," in item.text:
        page.fault(
            item.line or line,
            f"an item of the list {key!r} has a comma in it and would become two",
            "write the whole value as one text",
        )
        return None
    return item.text


def without_nulls(
    page: Page, settings: Mapping[str, BodySetting], removable: Mapping[str, BodySetting]
) -> dict[str, BodySetting]:
    """`settings` merged over `removable`. A null removes a shared key. Without a shared key it is a missing value."""
    joined = {**removable, **settings}
    for key, setting in settings.items():
        if setting.text is not None:
            continue
        del joined[key]
        if key not in removable:
            page.fault(setting.origin.line, f"{key!r} has no value", 'write "" for an empty text, or leave the key out')
    return joined


def read_body(page: Page, table: TableNode, part: str = "") -> SpecDraft | None:
    """Connect's `{name, config}`, optionally with our own `engine`, `state` and `offsets`; or a plain config map."""
    held = table.entries.get("config")
    if held is None or not isinstance(held.node, TableNode):
        return _plain_map(page, table, part)
    page.unknown_keys(table, (*BODY_KEYS, *CONNECT_KEYS))
    name = _name(page, table)
    if name is None:
        return None
    settings = read_settings(page, held.node, part or f"connector {name}")
    return SpecDraft(
        name,
        Origin(page.where, table.line, part or f"connector {name}"),
        without_nulls(page, settings, {}),
        table.entries.get("engine"),
        _state(page, table),
        table.entries.get("offsets"),
    )


def _plain_map(page: Page, table: TableNode, part: str) -> SpecDraft | None:
    name = _name(page, table)
    if name is None:
        return None
    part = part or f"connector {name}"
    settings = without_nulls(page, read_settings(page, table, part), {})
    return SpecDraft(name, Origin(page.where, table.line, part), settings)


def _name(page: Page, table: TableNode) -> str | None:
    entry = table.entries.get("name")
    if entry is None:
        page.fault(
            table.line, "the connector has no 'name'", near_names("name", [k for k in table.entries if "name" in k])
        )
        return None
    if not isinstance(entry.node, Leaf) or entry.node.value is None:
        page.fault(entry.line, f"'name' is {kind_of(entry.node)}")
        return None
    return entry.node.text


def _state(page: Page, table: TableNode) -> KeyNode | None:
    ours, theirs = table.entries.get("state"), table.entries.get("initial_state")
    if ours and theirs:
        page.fault(theirs.line, "'state' and 'initial_state' say the same thing", "keep one of them")
    return ours or theirs


def to_spec(page: Page, draft: SpecDraft) -> ConnectorSpec:
    """Created even with faults, so that later checks report theirs too. The page holds the faults."""
    line = draft.origin.line
    for what in _name_faults(draft.name):
        page.fault(line, f"the connector name {draft.name!r} {what}")
    settings = dict(draft.settings)
    inside = settings.pop("name", None)
    if inside and inside.text != draft.name:
        page.fault(inside.origin.line, f"the 'name' in the config of {draft.name!r} is another one", "leave it out")
    if not (found := settings.get(CLASS)) or not found.text:
        page.fault(found.origin.line if found else line, f"connector {draft.name!r} has no {CLASS!r}")
    return ConnectorSpec(
        draft.name,
        {key: setting.text or "" for key, setting in settings.items()},
        _choice(page, draft.engine, Engine) or Engine.CONNECT,
        _choice(page, draft.state, WantedState),
        _positions(page, draft),
        draft.origin,
        {key: setting.origin for key, setting in settings.items()},
        draft.engine is not None,
    )


def _name_faults(name: str) -> list[str]:
    if not name.strip(_CUT_OFF):
        return ["is empty"]
    faults = []
    if name != name.strip(_CUT_OFF):
        faults.append("begins or ends with a blank, which Connect cuts off")
    if any(unicodedata.category(character) == "Cc" for character in name):
        faults.append("holds a control character, which Connect refuses")
    if not is_unicode(name):
        faults.append("is not Unicode text")
    return faults


def _choice(page: Page, entry: KeyNode | None, kind: type[_Choice]) -> _Choice | None:
    """Connect writes its states in upper case, we in lower case. Both are accepted."""
    if entry is None:
        return None
    words = [word.value for word in kind]
    written = entry.node.text if isinstance(entry.node, Leaf) and entry.node.value is not None else None
    if written is not None and written.lower() in words:
        return kind(written.lower())
    shown = kind_of(entry.node) if written is None else repr(written)
    field = "engine" if kind is Engine else "state"
    hint = near_names(written.lower() if written else "", words)
    page.fault(entry.line, f"{field!r} is {shown}, which is not supported", hint)
    return None


def _positions(page: Page, draft: SpecDraft) -> Positions | None:
    """The start position, by the same rules as a file of positions."""
    if draft.offsets is None or not draft.name or not is_unicode(draft.name):
        return None
    from playhead.offsets.formats.read import Faults, read_pairs

    faults = Faults(page.where)
    positions = read_pairs(to_plain(draft.offsets.node), "offsets", draft.name, faults)
    try:
        faults.speak()
    except ConfigInvalid as error:
        for fault in error.faults:
            page.fault(_item_line(draft.offsets, fault.what), f"connector {draft.name!r}: {fault.what}")
        return None
    return Positions(positions)


def _item_line(entry: KeyNode, what: str) -> int | None:
    """The line of `offsets[2]` when a fault begins like that."""
    named = _ITEM.match(what)
    if named and isinstance(entry.node, Items):
        return entry.node.items[int(named[1])].line or entry.line
    return entry.line
