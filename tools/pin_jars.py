"""Resolves the roots of each jar set and pins their dependencies: `python tools/pin_jars.py [SET ...]`.

To change a version, e.g. of Kafka or S3Proxy, edit it here, run this, review the diff and commit the list.
"""

import hashlib
import re
import sys
import tempfile
from pathlib import Path

from playhead.pipeline.jars import Jar, ivy_module, run_ivy

KAFKA = "4.3.1"
SPARK = "4.0.2"
LISTS = Path(__file__).parent.parent / "src" / "playhead" / "pipeline" / "jar_lists"
ROOTS = {
    "kafka": [
        f"org.apache.kafka:{name}:{KAFKA}"
        for name in (
            "kafka_2.13",
            "connect-runtime",
            "connect-file",
            "connect-mirror",
            "connect-transforms",
            "connect-test-plugins",
            "connect-basic-auth-extension",
            "kafka-tools",
        )
    ]
    + ["org.apache.logging.log4j:log4j-slf4j-impl:2.25.3"],  # without a binding a worker that fails logs nothing
    "s3": ["org.gaul:s3proxy:4.1.0"],
    "debezium": ["io.debezium:debezium-connector-postgres:3.6.0.Final:plugin@tar.gz"],
    "spark-kafka": [
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # 4.0.1 and later could not be resolved
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.0",
    ],
    "jdbc": ["org.postgresql:postgresql:42.7.12", "org.xerial:sqlite-jdbc:3.50.3.0"],
}
# Pinned without dependencies: a plugin archive, and what PySpark's own jar folder lacks.
EXACT = {"debezium", "spark-kafka", "jdbc"}


def pin(jar_set: str) -> None:
    roots = [Jar.from_line(f"{root} -") for root in ROOTS[jar_set]]
    module = ivy_module(roots)
    if jar_set not in EXACT:
        module = re.sub(r' transitive="false"', "", module).replace("default-&gt;default", "default-&gt;master,runtime")
        module = re.sub(r"<artifact [^>]*/>", "", module)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        (work / "ivy.xml").write_text(module)
        target = f"{work}/got/[organisation]![module]![revision]!([classifier])!.[ext]"
        run_ivy(work / "ivy.xml", None, work / "cache", target, lambda n: print(f"\r{n} ", end=""))
        jars = []
        for path in sorted((work / "got").iterdir()):
            org, name, version, classifier, extension = path.name.split("!")
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            jars.append(Jar(org, name, version, classifier, extension.removeprefix("."), sha256))
    lines = [f"# roots: {' '.join(ROOTS[jar_set])}", *sorted(jar.to_line() for jar in jars)]
    (LISTS / f"{jar_set}.txt").write_text("\n".join(lines) + "\n")
    print(f"\r{jar_set}: {len(jars)} files pinned")


if __name__ == "__main__":
    for name in sys.argv[1:] or ROOTS:
        pin(name)
