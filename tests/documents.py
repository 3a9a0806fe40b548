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


def python_of(page: Path) -> list[tuple[int, str]]:
    """The Python blocks of a page, each with the line in which it begins."""
    found: list[tuple[int, str]] = []
    block: list[str] | None = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line == "```python":
            block, start = [], number + 1
        elif line == "```" and block is not None:
            found.append((start, "\n".join(block) + "\n"))
            block = None
        elif block is not None:
            block.append(line)
    return found
