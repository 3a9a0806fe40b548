"""The process from which Spark forks its Python workers, with everything loaded that our tasks import.

Spark starts it as `python -m` (`spark.python.daemon.module`) in local mode. Executors on other machines keep Spark's own: they
may get this package with their tasks only (`spark.submit.pyFiles`). Without it every worker would load the same modules again, in
the time of the first step. A worker collects garbage after each task; what was loaded before the fork is left out of that, which
would copy its memory into every worker.
"""

import gc

from pyspark.daemon import manager

from playhead.pipeline.deliver import task as deliver_task
from playhead.pipeline.ingest import task as ingest_task
from playhead.pipeline.ingest.python import task as poll_task

PRELOADED = (ingest_task, poll_task, deliver_task)

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
