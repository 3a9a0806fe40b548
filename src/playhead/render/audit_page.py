"""An audit as one HTML page without anything from outside, to be attached to a ticket: the verdict first, then each pair of tiers
with a picture of its buckets, the rows that differ, and what a repair would do."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

MOST_ROWS = 1000
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem;
color: #1c2430; background: #fff }
h1 { margin: 0 0 .2rem } h2 { margin: 2rem 0 .4rem; font-size: 1.15rem } .meta { color: #5b6675 }
.clean { color: #116b3a } .findings { color: #a8201a } .not-compared { color: #8a5a00 }
table { border-collapse: collapse; margin: .6rem 0; font-size: 14px } th, td { text-align: left; padding: .25rem .7rem .25rem 0;
border-bottom: 1px solid #e3e7ec; vertical-align: top } td.n { text-align: right; font-variant-numeric: tabular-nums }
td { overflow-wrap: anywhere } .grid { display: grid; grid-template-columns: repeat(64, 11px); gap: 2px; margin: .6rem 0 }
.grid i { width: 11px; height: 11px; background: #cfe6d7; border-radius: 2px } .grid i.b { background: #d9534f }
"""
_COUNTS = ("missing", "duplicate", "changed", "extra", "late", "expired", "benign gap")
_WORDS = {
    "clean": "Clean: the tiers hold the same",
    "findings": "Findings: the tiers do not hold the same",
    "not compared": "Not compared: nothing is known of a part",
}


def audit_page(fields: Mapping[str, Any], plan: Sequence[Mapping[str, Any]] = (), refusal: str = "") -> str:
    """`plan`: the actions of a repair, if there are any. `refusal`: why there is no plan."""
    verdict = str(fields["verdict"])
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>",
        f"<title>Audit {_text(fields['id'])}: {_text(verdict)}</title><style>{_STYLE}</style></head><body>",
        f"<h1 class='{_class(verdict)}'>{_text(_WORDS[verdict])}</h1>",
        f"<p class='meta'>Audit {_text(fields['id'])}, made {_text(fields['made'])}; cluster {_text(fields['cluster'] or '-')};"
        f" rules of equal rows: version {_text(fields['hash_version'])}</p>",
        _summary(fields["pairs"]),
    ]
    parts += [_pair(pair) for pair in fields["pairs"]]
    parts.append(_plan(plan, refusal))
    return "".join(parts) + "</body></html>\n"


def _summary(pairs: Sequence[Mapping[str, Any]]) -> str:
    head = ["Pipeline", "Source", "Target", "Rows", "In target", *(name.capitalize() for name in _COUNTS), "Verdict"]
    rows = [
        [
            _cell(pair["pipeline"]),
            _cell(pair["source"]),
            _cell(pair["target"]),
            _number(pair["source_rows"]),
            _number(pair["target_rows"]),
            *(_number(pair["counts"].get(name, 0)) for name in _COUNTS),
            f"<td class='{_class(pair['verdict'])}'>{_text(pair['verdict'])}</td>",
        ]
        for pair in pairs
    ]
    return _table(head, rows)


def _pair(pair: Mapping[str, Any]) -> str:
    parts = [f"<h2>{_text(pair['pipeline'])}: {_text(pair['source'])} &rarr; {_text(pair['target'])}</h2>"]
    if pair["error"]:
        return "".join([*parts, f"<p class='not-compared'>{_text(pair['error'])}</p>"])
    words = [f"compared up to level {pair['level']} in {pair['seconds']} s"]
    words += [str(pair["line"])] if pair["line"] else []
    parts.append(f"<p class='meta'>{_text('; '.join(words))}</p>")
    parts += [f"<p class='meta'>{_text(note)}</p>" for note in pair["notes"]]
    if pair["buckets"]:
        parts.append(_picture(pair["buckets"], pair["suspects"]))
    if pair["faults"]:
        rows = [[_cell(fault["range"]), _cell(fault["what"])] for fault in pair["faults"]]
        parts.append(_table(["Range", "What is wrong"], rows))
    if pair["items"]:
        parts.append(_items(pair["items"]))
    return "".join(parts)


def _picture(buckets: Sequence[int], suspects: int) -> str:
    cells = "".join(f"<i class='b' title='{count} differ'></i>" if count else "<i></i>" for count in buckets)
    words = f"{suspects} of 65536 buckets of rows differ" if suspects else "all 65536 buckets of rows are equal"
    return f"<p class='meta'>{words}; each square is {65536 // max(1, len(buckets))} of them</p><div class='grid'>{cells}</div>"


def _items(items: Sequence[Mapping[str, Any]]) -> str:
    head = ["Verdict", "Key", "Rows", "In source", "In target", "Hop", "Run", "Range", "Detail"]
    rows = [
        [
            _cell(item["verdict"]),
            _cell(item["key"]),
            _number(item["count"]),
            _cell("\n".join(filter(None, item["source"][:5]))),
            _cell("\n".join(filter(None, item["target"][:5]))),
            *(_cell(item[name]) for name in ("hop", "run", "range", "detail")),
        ]
        for item in items[:MOST_ROWS]
    ]
    more = (
        f"<p class='meta'>{len(items) - MOST_ROWS} more are in the JSON of the audit</p>"
        if len(items) > MOST_ROWS
        else ""
    )
    return _table(head, rows) + more


def _plan(plan: Sequence[Mapping[str, Any]], refusal: str) -> str:
    if refusal:
        return f"<h2>What a repair would do</h2><p class='not-compared'>Nothing: {_text(refusal)}</p>"
    if not plan:
        return ""
    names = ("pipeline", "does", "what", "rows", "sees", "note")
    rows = [[_cell(action.get(name)) for name in names] for action in plan]
    head = ["Pipeline", "Would", "What", "Rows", "What readers see", "Note"]
    return f"<h2>What a repair would do</h2>{_table(head, rows)}<p class='meta'>playhead repair AUDIT.json</p>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f"<th>{_text(title)}</th>" for title in head)
    lines = "".join("<tr>" + "".join(row) + "</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{lines}</table>"


def _cell(value: object) -> str:
    return f"<td>{_text(value).replace(chr(10), '<br>')}</td>"


def _number(value: object) -> str:
    return f"<td class='n'>{'-' if value is None else _text(value)}</td>"


def _class(verdict: object) -> str:
    return str(verdict).replace(" ", "-")


def _text(value: object) -> str:
    return escape("-" if value is None or value == "" else str(value))
