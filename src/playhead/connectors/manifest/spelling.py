"""How a new value is written where an old one stood: in the old one's quotes if they can hold it, bare only if it reads back.

What cannot be written in the old way stands in double quotes, in which everything can be.
"""

import re

from playhead.connectors.manifest.nodes import Leaf, Page, Table
from playhead.connectors.manifest.places import BLOCK_STYLES, Place
from playhead.connectors.manifest.writing import MANY_READINGS, in_quotes
from playhead.connectors.manifest.yaml_form import parse_yaml

NULL = "null"
_MARKS = ("<<", "=")  # text to this reader, more to others


def spelled(text: str | None, style: str = "", *, in_flow: bool = False) -> str:
    """On one line. None is written as null."""
    if text is None:
        return NULL
    if style == "'" and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return text if not style and reads_bare(text, in_flow=in_flow) else in_quotes(text)


def reads_bare(text: str, *, in_flow: bool = False) -> bool:
    """Asked of the reader itself. Words that an older YAML takes for something else are never bare, true and false apart."""
    if not text or text in _MARKS or (text.lower() in MANY_READINGS and text not in ("true", "false")):
        return False
    page = Page("")
    found = parse_yaml(page, f"{{k: {text}}}\n" if in_flow else f"k: {text}\n")
    if page.faults or len(found) != 1 or not isinstance(found[0], Table) or list(found[0].entries) != ["k"]:
        return False
    node = found[0].entries["k"].node
    return isinstance(node, Leaf) and node.value is not None and node.text == text


def spelled_list(text: str) -> str:
    return "[" + ", ".join(spelled(item, in_flow=True) for item in text.split(",")) + "]"


def spelled_block(text: str, source: str, old: Place, newline: str) -> str | None:
    """`text` as lines in the place of a block scalar, with the comment of its head; None where it cannot be written so."""
    lines = text.removesuffix("\n").split("\n")
    if old.style not in BLOCK_STYLES or not text.strip() or not lines[-1] or lines[0][:1] == " ":
        return None
    if not all(line.isprintable() for line in lines):
        return None
    head, _, body = source[old.start : old.end].partition("\n")
    indent = " " * _indent_of(body)
    if not indent:
        return None
    chomping = "" if text.endswith("\n") else "-"
    head = re.sub(r"^[|>][-+0-9]*", f"|{chomping}", head.rstrip("\r"))
    return newline.join([head, *(indent + line if line else "" for line in lines)])


def _indent_of(body: str) -> int:
    first = next((line for line in body.splitlines() if line.strip()), "")
    return len(first) - len(first.lstrip(" "))
