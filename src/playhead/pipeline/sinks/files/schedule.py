"""When the clock closes what is open. The run asks, and claims with `closes`; writers never look.

As the connector counts it: `rotate.schedule.interval.ms` every so many milliseconds from the midnight of `timezone` on. With a
time-based partitioner and the Wallclock extractor all records of a claim have its time, so that `rotate.interval.ms` is for the
clock, too: a rotation is due so long after something was last closed.
"""

from playhead.pipeline.sinks.files.options import CutOptions, FileSinkOptions
from playhead.pipeline.sinks.files.zones import DAY_MS, open_zone


def next_rotation_ms(options: FileSinkOptions, last_closed_ms: int) -> int | None:
    """The first rotation after that; None if the clock closes nothing."""
    due = []
    if options.cut.schedule_ms:
        due.append(_scheduled(options.cut, last_closed_ms))
    if options.cut.rotate_ms and options.partitioner.is_by_clock:
        due.append(last_closed_ms + options.cut.rotate_ms)
    return min(due, default=None)


def _scheduled(cut: CutOptions, now_ms: int) -> int:
    zone = open_zone(cut.schedule_zone)
    local = now_ms + zone.offset_ms(now_ms)
    midnight = zone.instant(local // DAY_MS * DAY_MS)
    return midnight + ((now_ms - midnight) // cut.schedule_ms + 1) * cut.schedule_ms
