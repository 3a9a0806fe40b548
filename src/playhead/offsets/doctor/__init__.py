"""`playhead offsets doctor`: stored positions that would surprise somebody, each with the command that mends it.

Nothing is written. The offsets topic is read once (twice where transactions were used) and all checks look at that. What a store
cannot show is said, never taken for health: through REST nobody sees orphans, twins and keys in the wrong place.
"""

from playhead.offsets.doctor.examination import Examination
from playhead.offsets.doctor.findings import Diagnosis, Finding
from playhead.offsets.locate import Locator

__all__ = ["Diagnosis", "Finding", "diagnose"]


def diagnose(locator: Locator) -> Diagnosis:
    """What is wrong with the positions of the context, or of the store that `locator` names."""
    return Diagnosis.of(Examination.of(locator).said())
