"""A plan as text: one line per connector with its effects, below it the changes and the findings."""

from collections.abc import Iterator

from playhead.connectors.plan.model import IDLE, ConnectorsPlan, KeyChange, KeyChangeKind, PlanRow

_SIGNS = {KeyChangeKind.ADDED: "+", KeyChangeKind.REMOVED: "-", KeyChangeKind.CHANGED: "~", KeyChangeKind.UNKNOWN: "?"}


def plan_text(plan: ConnectorsPlan, *, show_origin: bool = False) -> str:
    """Connectors without changes and findings are listed in one line at the end."""
    quiet = [row for row in plan.rows if row.action in IDLE and not row.findings and not row.changes]
    silent = {row.name for row in quiet}
    lines = [line for row in plan.rows if row.name not in silent for line in _row_lines(row, show_origin)]
    for action in IDLE:
        names = [row.name for row in quiet if row.action is action]
        if names:
            lines.append(f"{action}: {', '.join(names)}")
    return "".join(f"{_printable(line)}\n" for line in lines)


def _printable(line: str) -> str:
    """Escapes line breaks: one inside a value must not start a new line of the plan."""
    return line if line.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def _row_lines(row: PlanRow, show_origin: bool) -> Iterator[str]:
    yield "  ".join(part for part in (row.action, row.name, _state_words(row), "; ".join(row.effects)) if part)
    for change in row.changes:
        yield f"    {_change_line(change)}" + (f"   # {change.origin}" if show_origin and change.origin else "")
    for finding in row.findings:
        yield f"    ! {finding}" + (f"   # {finding.origin}" if show_origin and finding.origin else "")


def _state_words(row: PlanRow) -> str:
    if row.running is None:
        return f"-> {row.state}" if row.state else ""
    if row.changes_state:
        return f"{row.running.state} -> {row.state}"
    return row.running.state


def _change_line(change: KeyChange) -> str:
    sign = _SIGNS[change.kind]
    match change.kind:
        case KeyChangeKind.ADDED:
            return f"{sign} {change.key} = {change.words}"
        case KeyChangeKind.REMOVED:
            return f"{sign} {change.key}" + (" (secret)" if change.is_secret else f" = {change.before}")
        case _:
            return f"{sign} {change.key}: {change.words}"
