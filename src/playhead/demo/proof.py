"""Part 6: a row is taken out of one of the Parquet files of part 3. An audit finds it and says who lost it, a repair brings it
back, and pyarrow reads it again."""

from pathlib import Path

from playhead.demo.lake import LakeAct
from playhead.demo.stage import Stage
from playhead.demo.tables import ROWS, TABLES
from playhead.errors import PlayheadError

NAME = "demo_lake"


class ProofAct:
    def __init__(self, stage: Stage, rows: int = ROWS) -> None:
        self.stage = stage
        self.say = stage.say
        self.lake = LakeAct(stage, rows)
        self.audit = stage.folder / "audit.json"

    def run(self) -> None:
        path = sorted(self.lake.files())[1]  # not the one that part 3 has brought back: its run is named
        lost = _lose_a_row(path)
        self.say(
            f"8. Take the row with id {lost} out of {path.name} by hand, as a broken disk or a wrong script would:"
        )
        asked = ("audit", NAME, "-f", str(self.lake.file))
        self.stage.playhead(*asked, exits=1)
        self.say("   Found and explained: the topic has it, and it was delivered. Repair exactly that:")
        self.stage.playhead_to(self.audit, *asked, "-o", "json", exits=1)
        self.stage.playhead("repair", str(self.audit), "--execute")
        for table in TABLES:
            self.lake.expect(f"demo_{table}")
        self.say(f"   The row with id {lost} is back. Nothing lost, nothing duplicated.\n")


def _lose_a_row(path: Path) -> int:
    """Its id."""
    import pyarrow.parquet as pq

    whole = pq.read_table(path)
    at = whole.num_rows // 2
    lost: int = whole["id"][at].as_py()
    kept = whole.filter([number != at for number in range(whole.num_rows)])
    if kept.num_rows != whole.num_rows - 1:
        raise PlayheadError(f"the demo could not take one row out of {path.name}")
    pq.write_table(kept, path)
    return lost
