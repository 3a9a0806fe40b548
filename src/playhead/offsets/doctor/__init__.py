"""`playhead offsets doctor`: finds problems in stored positions, each with the command that repairs it.

Nothing is written. The offsets topic is read once (twice if transactions were used), and all checks use that data. What a store
cannot show is reported, never counted as healthy: REST does not show orphans, twins and misplaced keys.
"""

from playhead.offsets.doctor.examination import Examination
from playhead.offsets.doctor.findings import Diagnosis, Finding
from playhead.offsets.locate import Locator

__all__ = ["Diagnosis", "Finding", "diagnose"]


def diagnose(locator: Locator) -> Diagnosis:
    """The problems in the positions of the context, or of the store that `locator` names."""
    return Diagnosis.of(Examination.of(locator).said())
