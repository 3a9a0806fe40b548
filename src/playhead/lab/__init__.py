"""A real Kafka, Connect worker, PostgreSQL and S3 server on this machine, for the demo, the tests and your experiments.

Started from pinned jars and wheels, on free loopback ports, with all state and logs in one folder. The truth about what runs
is the process table, not a pid file: every process carries the folder and its own name on its command line, so that a lab
whose starter crashed is found and adopted by the next command.
"""

from playhead.lab.lab import Lab, PartStatus, default_folder
from playhead.lab.options import LabOptions

__all__ = ["Lab", "LabOptions", "PartStatus", "default_folder"]
