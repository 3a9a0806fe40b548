"""A `java` whose JVMs start in little more than half the time: it maps an archive of the classes that they load.

Java can write the classes that a program has loaded into a file, and a later JVM with the same class path maps that file (class
data sharing). A test run starts more than a hundred JVMs, so `make test` has this module write the archives once per Java and
set of jars; without them, tests run on the plain `java`.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from playhead.lab import Lab, LabOptions
from playhead.pipeline.jars import cache_folder, fetch_jars, java, list_jars

# A JVM of a test lives for seconds or minutes: the quick compiler and the simple collector save it almost half of its work.
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LAUNCHER = """#!/bin/sh
case " $* " in
  *" org.apache.spark.deploy.SparkSubmit "*) program=spark ;;
  *" kafka.Kafka "*) program=broker ;;
  *" org.apache.kafka.connect.cli.ConnectDistributed "*) program=worker ;;
  *) exec {java} "$@" ;;
esac
if [ -n "$PLAYHEAD_WRITE_ARCHIVES" ]; then
  exec {java} -XX:ArchiveClassesAtExit={folder}/$program.jsa -Xlog:disable "$@"
fi
exec {java} -XX:SharedArchiveFile={folder}/$program.jsa -Xlog:disable "$@"
"""


def quick_home() -> Path | None:
    """The `JAVA_HOME` that uses the archives, if they were written."""
    home = _folder()
    return home if (home / "bin" / "java").exists() else None


def _folder() -> Path:
    """Another Java, PySpark or jar has archives of its own: a JVM ignores those of other class paths."""
    version = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    jars = [jar.to_line() for jar_set in ("kafka", "spark-kafka", "jdbc") for jar in list_jars(jar_set)]
    named = "\n".join([java(), version, sys.prefix, str(cache_folder()), *jars, LAUNCHER])
    return cache_folder().parent / "quick-java" / hashlib.sha256(named.encode()).hexdigest()[:16]


def write_archives() -> None:
    """Complete or not there: the folder is renamed when a lab and a session have ended with their archives written."""
    home = _folder()
    if home.exists():
        return
    for jar_set in ("kafka", "spark-kafka", "jdbc"):
        fetch_jars(jar_set)
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        made = Path(scratch) / "home"
        (made / "bin").mkdir(parents=True)
        launcher = made / "bin" / "java"
        launcher.write_text(LAUNCHER.format(java=java(), folder=made))
        launcher.chmod(0o755)
        os.environ |= {"JAVA_HOME": str(made), "JAVA_TOOL_OPTIONS": OPTIONS, "PLAYHEAD_WRITE_ARCHIVES": "1"}
        _use_classes(Path(scratch) / "lab")
        launcher.write_text(launcher.read_text().replace(str(made), str(home)))
        made.rename(home)


def _use_classes(folder: Path) -> None:
    from playhead.pipeline.spark import SparkOptions, spark_session

    lab = Lab(folder)
    lab.up(LabOptions(postgres=False))
    lab.down()
    with spark_session(SparkOptions("local[2]")) as session:
        session.range(100).selectExpr("id", "to_json(struct(id)) AS text").mapInArrow(
            lambda batches: batches, "id long, text string"
        ).groupBy("id").count().count()


if __name__ == "__main__":
    write_archives()
