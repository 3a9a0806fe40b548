"""`rotate.schedule.interval.ms`: when the clock closes what is open. The run asks, and claims with `closes`; writers never look.

As the connector counts it: every so many milliseconds from the midnight of `timezone` on.
"""

from playhead.pipeline.sinks.files.options import CutOptions
from playhead.pipeline.sinks.files.zones import DAY_MS, open_zone


def next_rotation_ms(cut: CutOptions, now_ms: int) -> int | None:
    """The first rotation after now; None if there is no schedule."""
    if not cut.schedule_ms:
        return None
    zone = open_zone(cut.schedule_zone)
    local = now_ms + zone.offset_ms(now_ms)
    midnight = zone.instant(local // DAY_MS * DAY_MS)
    return midnight + ((now_ms - midnight) // cut.schedule_ms + 1) * cut.schedule_ms
