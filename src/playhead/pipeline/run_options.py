"""What a run can be told, for all of its connectors."""

from dataclasses import dataclass, field

from playhead.pipeline.session import SparkOptions


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`interval_seconds` None: until caught up. `seconds`: for asking brokers, workers and the ledger."""

    spark: SparkOptions = field(default_factory=SparkOptions)
    interval_seconds: float | None = None
    rows_per_chunk: int = 500_000
    horizon_seconds: float = 60.0
    force: bool = False
    accept_repeats: bool = False
    keep_tail: bool = False
    seconds: float = 30.0
