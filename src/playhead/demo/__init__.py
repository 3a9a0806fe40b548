"""The demo: every step is a command of Playhead, run as a user would, on the real parts of the lab.

What is claimed is checked: the demo fails loudly when Kafka's own console consumer, pyarrow or psql show anything else.
"""

from playhead.demo.lake import LakeAct
from playhead.demo.positions import PositionsAct
from playhead.demo.stage import Say, Stage, ledger_of
from playhead.demo.tables import TablesAct
from playhead.lab import Lab

__all__ = ["ledger_of", "run_demo"]


def run_demo(lab: Lab, say: Say) -> None:
    PositionsAct(Stage(lab, say, 120)).run()
    if lab.options.postgres:
        TablesAct(Stage(lab, say, 600)).run()
        LakeAct(Stage(lab, say, 600)).run()
    else:
        say("The tables on Spark are left out: this lab has no PostgreSQL.\n")
