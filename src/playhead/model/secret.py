"""A value that must never be shown.

Only `reveal()` returns the text. It is called where the value is passed to a client library. `repr`, `str` and f-strings show
`***`; pickle and the JSON encoders refuse it.
"""

import hmac


class Secret:
    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._bytes(), other._bytes())

    def _bytes(self) -> bytes:
        return self._text.encode("utf-8", "surrogatepass")  # an environment variable need not be Unicode

    def __hash__(self) -> int:
        return hash(("Secret", self._text))

    def __reduce__(self) -> str:
        raise TypeError("a Secret cannot be pickled: it would be written in clear text")
