"""A real Kafka, Connect worker, PostgreSQL and S3 server on this machine, for the demo, the tests and your experiments.

Started from pinned jars and wheels, on free loopback ports, with all state and logs in one folder. Running parts are found in
the process table, not in pid files: every process has the folder and its own name on its command line. If the command that
started a lab crashed, the next command finds the lab and continues with it.
"""

from playhead.lab.lab import Lab, PartStatus, default_folder
from playhead.lab.options import LabOptions

__all__ = ["Lab", "LabOptions", "PartStatus", "default_folder"]
