"""Random values of the model, for properties by hypothesis."""

from hypothesis import strategies as st

from playhead.model import Map

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
FIELDS = st.dictionaries(TEXT, SCALARS, max_size=4)
MAPS = FIELDS.map(Map)
