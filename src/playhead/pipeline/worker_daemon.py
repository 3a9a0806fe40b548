"""The process from which Spark forks its Python workers, with everything loaded that our tasks import.

Spark starts it as `python -m` (`spark.python.daemon.module`) in local mode. Executors on other machines keep Spark's own: they
may get this package with their tasks only (`spark.submit.pyFiles`). Without it every worker would load the same modules again, in
the time of the first step. A worker collects garbage after each task; what was loaded before the fork is left out of that, which
would copy its memory into every worker.

Spark puts pyspark.zip, py4j's archive and a jar before everything else in the path. At the begin of each task a worker clears
what Python knows of its path, and Python reads the lists of all archives again, once for each package that was loaded from them:
0.1 s of a core for each task. If Spark was installed by pip, the same modules lie unpacked around the archives, and are loaded
from there.

By default malloc of glibc returns the memory of arrays to the system as they are freed. A task makes such arrays for every batch,
and a third of its time would go into getting the same pages again.
"""

import ctypes
import gc
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h


def without_archives(path: Sequence[str]) -> list[str]:
    """The path without the archives inside the pyspark that it has unpacked as well; unchanged if it has not."""
    folders = [entry for entry in path if not Path(entry).is_file()]
    pyspark, py4j = (PathFinder.find_spec(name, folders) for name in ("pyspark", "py4j"))
    if pyspark is None or py4j is None or pyspark.origin is None:
        return list(path)
    home = Path(pyspark.origin).resolve().parent
    return [entry for entry in path if entry in folders or home not in Path(entry).resolve().parents]


def keep_freed_memory() -> None:
    """Up to 64 MiB of it, for arrays of up to 16 MiB. Other C libraries than glibc have no such options."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_TRIM_THRESHOLD, 64 << 20)
        mallopt(_MMAP_THRESHOLD, 16 << 20)


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()

    from pyspark.daemon import manager

    from playhead.pipeline.deliver import task as deliver_task
    from playhead.pipeline.ingest import task as ingest_task
    from playhead.pipeline.ingest.python import task as poll_task

    PRELOADED = (ingest_task, poll_task, deliver_task)

    keep_freed_memory()
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
