"""The demo: runs Playhead commands on the real parts of the lab.

Every claim is checked: the demo fails if Kafka's console consumer, pyarrow or psql show anything else.
"""

from playhead.demo.engines import EnginesAct
from playhead.demo.lake import LakeAct
from playhead.demo.partitions import PartitionsAct
from playhead.demo.positions import PositionsAct
from playhead.demo.proof import ProofAct
from playhead.demo.stage import Say, Stage
from playhead.demo.tables import ROWS, TablesAct
from playhead.lab import Lab

__all__ = ["run_demo"]


def run_demo(lab: Lab, say: Say, rows: int = ROWS) -> None:
    """`rows`: in each of the tables that go through Spark."""
    PositionsAct(Stage(lab, say, 120)).run()
    if lab.options.postgres:
        TablesAct(Stage(lab, say, 600), rows).run()
        LakeAct(Stage(lab, say, 600), rows).run()
        EnginesAct(Stage(lab, say, 300)).run()
        PartitionsAct(Stage(lab, say, 600)).run()
        ProofAct(Stage(lab, say, 300), rows).run()
    else:
        say("Skipped the tables on Spark: this lab has no PostgreSQL.\n")
