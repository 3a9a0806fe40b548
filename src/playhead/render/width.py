r"""How many columns of a terminal a text takes, and texts cut and wrapped by it.

East Asian wide characters and emoji take two columns, combining marks and joiners none: the rules of Unicode's UAX #11, and of
emoji sequences. What a terminal draws as one sign is never divided. A command for a shell is continued with `\`, so that it
can be pasted as it is shown.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

JOINER, EMOJI_STYLE = "\u200d", "\ufe0f"
CUT = "…"
_ATOM = re.compile(r"[^\s,;/&|]*(?:[,;/&|]+|\s+|$)")
_SHELL_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\]|['"\\])+""", re.DOTALL)
_NOUNS = "completion|config|connectors|demo|groups|info|lab|offsets|runs?|serve|topics"
COMMAND = re.compile(
    rf"`[^`\n]+`|(?<!\S)(?:(?:\S*/|\S+ -m )?playhead (?:{_NOUNS})|curl|kcat|\S*kafka-[a-z-]+\.sh)(?:[^\n,;:.)]|[,;:.)](?! |$))*"
)


def text_width(text: str) -> int:
    return len(text) if text.isascii() else sum(width for _, width in _signs(text))


def _signs(text: str) -> Iterator[tuple[str, int]]:
    """What a terminal draws as one sign, with the columns that it takes."""
    sign, width, joined = "", 0, False
    for character in text:
        own = _character_width(character)
        if sign and (joined or own == 0 or "\U0001f3fb" <= character <= "\U0001f3ff"):
            sign += character
            width = 2 if character == EMOJI_STYLE else width
        else:
            if sign:
                yield sign, width
            sign, width = character, own
        joined = character == JOINER
    if sign:
        yield sign, width


def _character_width(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def pad(text: str, width: int, *, right: bool = False) -> str:
    blanks = " " * (width - text_width(text))
    return blanks + text if right else text + blanks


def cut(text: str, width: int) -> str:
    """Cut in the middle, with a visible sign: the ends of names differ more often than their middles."""
    if text_width(text) <= width:
        return text
    tail = _fitting(reversed(list(_signs(text))), (width - 1) // 2)
    head = _fitting(_signs(text), width - 1 - sum(size for _, size in tail))
    return "".join(sign for sign, _ in head) + CUT + "".join(sign for sign, _ in reversed(tail))


def _fitting(signs: Iterator[tuple[str, int]], width: int) -> list[tuple[str, int]]:
    taken, used = [], 0
    for sign, size in signs:
        used += size
        if used > width:
            break
        taken.append((sign, size))
    return taken


def longest_atom(text: str) -> int:
    """The widest part of `text` that `wrap` does not divide unless it must."""
    return max((text_width(atom.rstrip()) for atom in _ATOM.findall(text)), default=0)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width`: broken at blanks, in long words after a comma or a slash, else anywhere."""
    if text_width(text) <= width:
        return [text]
    lines, line = [], ""
    for word in re.findall(r"\S+\s*|\s+", text):
        atoms = [word] if text_width(word.rstrip()) <= width else [a for a in _ATOM.findall(word) if a]
        for given in atoms:
            atom = given
            if line and text_width(line) + text_width(atom.rstrip()) > width:
                lines.append(line.rstrip())
                line = ""
            while text_width(atom.rstrip()) > width:
                head = "".join(sign for sign, _ in _fitting(_signs(atom), width)) or next(_signs(atom))[0]
                lines.append(head)
                atom = atom[len(head) :]
            line += atom
    return [*lines, line.rstrip()] if line.strip() else lines


def wrap_message(text: str, width: int, indent: str = "  ") -> str:
    """A message: sentences are wrapped, commands in it stay in one piece or get lines of their own."""
    return "\n".join(line for given in text.split("\n") for line in _message_lines(given, width, indent))


def _message_lines(text: str, width: int, indent: str) -> Sequence[str]:
    if text_width(text) <= width:
        return [text]
    own = text[: len(text) - len(text.lstrip())]
    indent = own + indent
    lines, line = [], own
    for part, is_command in _parts(text.strip()):
        if is_command and text_width(part) > width - len(indent):
            lines += [line.rstrip()] if line.strip() else []
            lines += wrap_command(part.strip("`"), width, indent)
            line = indent
            continue
        for word in [part] if is_command else re.findall(r"\S+\s*|\s+", part):
            if line.strip() and text_width(line) + text_width(word.rstrip()) > width:
                lines.append(line.rstrip())
                line = indent
            pieces = wrap(word, max(width - len(indent), 1)) if text_width(word.rstrip()) > width - len(indent) else []
            for piece in pieces[:-1]:
                lines.append((line + piece).rstrip())
                line = indent
            line += pieces[-1] + " " if pieces else word if line.strip() else word.lstrip()
    return [*lines, line.rstrip()] if line.strip() else lines


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    end = 0
    for match in COMMAND.finditer(text):
        yield text[end : match.start()], False
        yield match.group(0), True
        end = match.end()
    yield text[end:], False


def wrap_command(command: str, width: int, indent: str = "") -> list[str]:
    r"""A command as lines that a shell joins again. Words that are too long are divided, too: `\` and a line break vanish."""
    lines, line = [], indent
    words = _SHELL_WORD.findall(command)
    for number, word in enumerate(words):
        last = number == len(words) - 1
        gap = " " if line.strip() else ""
        if text_width(line + gap + word) + (0 if last else 2) <= width:
            line += gap + word
            continue
        if line.strip():
            lines.append(f"{line} \\")
        line = indent + "  " if lines else indent
        if text_width(line + word) + (0 if last else 2) > width:
            *divided, rest = _divided(word, width, line)
            lines += divided
            line = rest
        else:
            line += word
    return [*lines, line]


def _divided(word: str, width: int, line: str) -> list[str]:
    """One shell word over several lines. A line after a break must start at the margin: blanks would begin a new word."""
    lines, quoted, escaped = [], "", False
    for sign, size in _signs(word):
        if not escaped and text_width(line) + size + 4 > width:
            lines.append(line + ("'\\" if quoted == "'" else "\\"))
            line = "'" if quoted == "'" else ""
        if escaped:
            escaped = False
        elif sign == "\\" and quoted != "'":
            escaped = True
        elif sign == quoted:
            quoted = ""
        elif sign in "'\"" and not quoted:
            quoted = sign
        line += sign
    return [*lines, line]
