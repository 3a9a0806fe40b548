r"""Text that is safe to print on a terminal.

Names, traces and record keys come from outside. Control characters in them could move the cursor, rewrite what was printed
before, or fake a prompt; characters that change the writing direction could make a name look like another. All are shown as
`\x1b` or `\u202e` instead, and so are invisible ones.
"""

import re

UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)


def clean(text: str, *, keep: str = "") -> str:
    """`text` with unsafe characters escaped. `keep`: characters not to escape, e.g. the line breaks of a trace."""

    def shown(match: re.Match[str]) -> str:
        character = match.group(0)
        if character in keep:
            return character
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return UNSAFE.sub(shown, text)


def clean_json(text: str) -> str:
    r"""JSON that is safe to print: the same data, with unsafe characters as `\uXXXX`.

    JSON already escapes the lower control characters, so in ASCII only DEL remains.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return UNSAFE.sub(lambda m: m.group(0) if m.group(0) == "\n" else f"\\u{ord(m.group(0)):04x}", text)
