"""The doctor's repair commands as plans of a page.

Only commands of `playhead offsets` and `playhead groups` whose every word is known here; any other is shown as text, to be run in
a shell. The doctor writes these commands, and what it quotes in them comes from outside: a word is never guessed.
"""

import hashlib
import json
import shlex

from playhead.offsets.doctor import Finding
from playhead.web.requests import PlanRequest

# They name the context that the doctor examined, which is the one of the page.
_WHERE = (
    "--context",
    "--bootstrap-server",
    "-b",
    "--connect",
    "--worker-config",
    "--command-config",
    "--ledger",
    "--timeout",
    "-X",
)


def finding_id(finding: Finding) -> str:
    """The same for the same finding of a later examination."""
    text = "\0".join((finding.kind, finding.owner, finding.what, finding.mend))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def request_of_command(text: str) -> PlanRequest | None:
    """None: this page cannot plan it."""
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    if (
        words[:1] != ["playhead"]
        or len(words) < 4
        or any(word in ("&&", "|", ";", "--store", "--via") for word in words)
    ):
        return None
    noun, verb, name = words[1:4]
    options = _options(words[4:])
    if options is None or name.startswith("-"):
        return None
    stop = "--stop" in options
    if (noun, verb) == ("offsets", "undo"):
        return PlanRequest("undo", entry=name) if not options else None
    if noun == "groups":
        name = f"group:{name}"
    if verb == "reset" and options.keys() <= {"--topic", "--to-earliest", "--to-ledger", "--stop"}:
        to = "ledger" if "--to-ledger" in options else "earliest" if "--to-earliest" in options else None
        topics = options.get("--topic", [])
        return None if to is None else PlanRequest("reset", name, to=to, topics=topics, stop=stop)
    if (noun, verb) == ("offsets", "delete") and options.keys() <= {"--all", "--partition", "--stop"}:
        return _deletion(name, options.get("--partition", []), stop=stop)
    return None


def _deletion(name: str, texts: list[str], *, stop: bool) -> PlanRequest | None:
    try:
        found = [json.loads(text) for text in texts]
    except ValueError:
        return None
    if not all(isinstance(one, dict) for one in found):
        return None
    return PlanRequest("delete", name, partitions=found, stop=stop)


def _options(words: list[str]) -> dict[str, list[str]] | None:
    """Option -> its values; None if there is a word that is not known."""
    found: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if word in ("--all", "--stop", "--to-earliest", "--to-ledger", "--all-topics"):
            found.setdefault(word, [])
        elif word in ("--topic", "--partition", *_WHERE):
            value = next(rest, None)
            if value is None:
                return None
            if word not in _WHERE:
                found.setdefault(word, []).append(value)
        else:
            return None
    found.pop("--all-topics", None)
    return found
