"""Paths to nested fields: `field.syntax.version` V2."""

import re

# A name in backticks ends where a dot or nothing follows its backtick, unless a backslash is before it.
_QUOTED = re.compile(r"`(?P<name>(?:[^`\\]|\\(?!`(?:\.|\Z))|\\`\.|`(?!\.|\Z))*)`(?:\.|\Z)", re.DOTALL)


def steps_of(path: str) -> tuple[str, ...] | None:
    """`a.b`, or `` `a.b`.c ``. None: a backtick has no pair."""
    steps: list[str] = []
    at = 0
    while at < len(path):
        if path[at] != "`":
            name, dot, _ = path[at:].partition(".")
            steps.append(name)
            at += len(name) + len(dot)
            continue
        found = _QUOTED.match(path, at)
        if found is None:
            return None
        steps.append(found["name"].replace("\\`.", "`."))
        at = found.end()
    return (*steps, "") if path.endswith(".") else tuple(steps)
