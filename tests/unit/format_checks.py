"""What the tests of file formats have in common."""

import pytest

from playhead.errors import Invalid
from playhead.model import Positions
from playhead.offsets.formats.forms import read_positions

PAIR = '{"partition":{"p":1},"offset":{"o":1}}'


def read(text: str, form: str | None = None, owner: str | None = "o") -> Positions:
    return read_positions(text.encode(), "file", form, owner)


def faults_of(text: str, form: str | None = None, owner: str | None = "o") -> str:
    with pytest.raises(Invalid) as caught:
        read(text, form, owner)
    assert caught.value.exit_code == 2
    return caught.value.what
