"""The pages of the project and the commands that they show."""

import shlex
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands_of(page: Path) -> list[list[str]]:
    """Every `$ playhead …` of a page in words, without comments and what comes after a pipe."""
    found = []
    for line in page.read_text().splitlines():
        if line.startswith("$ playhead "):
            lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;")
            lexer.whitespace_split = True
            words = list(lexer)
            ends = [place for place, word in enumerate(words) if word in ("|", "&&", ";")]
            found.append(words[: ends[0]] if ends else words)
    return found
