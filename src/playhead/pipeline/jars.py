"""Pinned jars, fetched once through the Ivy that is part of PySpark.

`jar_lists/NAME.txt` lists every jar of a set with its SHA-256; `tools/pin_jars.py` writes those files. A jar is renamed into the
cache after its hash was checked, so a file in the cache is complete and the pinned one. An interrupted download continues where
it stopped: Ivy keeps what it has fetched. Ivy's own settings decide the repository (Maven Central); `PLAYHEAD_IVY_SETTINGS`
names another settings file for sites with a mirror.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from playhead.errors import Invalid, MissingExtra, NotFound, PlayheadError, Unreachable

Progress = Callable[[int, int], None]

_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, slots=True)
class Jar:
    organisation: str
    name: str
    version: str
    classifier: str
    extension: str
    sha256: str

    @classmethod
    def from_line(cls, line: str) -> "Jar":
        coordinate, sha256 = line.split()
        coordinate, _, extension = coordinate.partition("@")
        organisation, name, version, *classifier = coordinate.split(":")
        return cls(organisation, name, version, classifier[0] if classifier else "", extension or "jar", sha256)

    def to_line(self) -> str:
        classifier = f":{self.classifier}" if self.classifier else ""
        extension = f"@{self.extension}" if self.extension != "jar" else ""
        return f"{self.organisation}:{self.name}:{self.version}{classifier}{extension} {self.sha256}"

    @property
    def file_name(self) -> str:
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.extension}"


def list_jars(jar_set: str) -> list[Jar]:
    text = files("playhead.pipeline").joinpath("jar_lists", f"{jar_set}.txt").read_text("utf-8")
    return [Jar.from_line(line) for line in text.splitlines() if line and not line.startswith("#")]


def cache_folder() -> Path:
    if named := os.environ.get("PLAYHEAD_CACHE"):
        return Path(named) / "jars"
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "playhead" / "jars"
    except RuntimeError:
        raise Invalid("there is no home folder to keep jars in", "set PLAYHEAD_CACHE") from None


def fetch_jars(jar_set: str, progress: Progress = lambda done, total: None) -> list[Path]:
    """Paths of all jars of a set; downloads what the cache does not have yet."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    jars = list_jars(jar_set)
    if any(_missing(folder, jars)):
        with _locked(folder / ".lock"):
            missing = list(_missing(folder, jars))  # another process may have fetched them while we waited
            _download(missing, folder, progress)
    return [folder / jar.file_name for jar in jars]


def are_cached(jar_set: str) -> bool:
    return not any(_missing(cache_folder(), list_jars(jar_set)))


def _missing(folder: Path, jars: Sequence[Jar]) -> Iterator[Jar]:
    return (jar for jar in jars if not (folder / jar.file_name).is_file())


def _download(jars: Sequence[Jar], folder: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        work = Path(scratch)
        (work / "ivy.xml").write_text(ivy_module(jars))
        settings = os.environ.get("PLAYHEAD_IVY_SETTINGS")
        if not settings:
            settings = str(work / "settings.xml")
            Path(settings).write_text(_SETTINGS)
        target = f"{work}/got/[artifact]-[revision](-[classifier]).[ext]"
        output = run_ivy(work / "ivy.xml", settings, folder / ".ivy", target, lambda n: progress(n, len(jars)))
        for jar in jars:
            _accept(jar, work / "got" / jar.file_name, folder, output)
    shutil.rmtree(folder / ".ivy", ignore_errors=True)


def _accept(jar: Jar, fetched: Path, folder: Path, output: Sequence[str]) -> None:
    if not fetched.is_file():
        # Ivy's output is long and repeats itself; its error lines have the reason.
        why = "; ".join(line.strip() for line in output if "ERROR" in line or "not found" in line)[:300]
        raise Unreachable(
            f"could not fetch {jar.file_name}{': ' + why if why else ''}",
            "run it again: the download continues where it stopped",
        )
    if hashlib.sha256(fetched.read_bytes()).hexdigest() != jar.sha256:
        shutil.rmtree(folder / ".ivy", ignore_errors=True)  # else the next run would use the same wrong file
        raise PlayheadError(
            f"{jar.file_name} is not the pinned file: its SHA-256 differs", "a mirror or proxy may alter files"
        )
    fetched.replace(folder / jar.file_name)


def ivy_module(jars: Sequence[Jar]) -> str:
    """An Ivy module that requests exactly these files, without their dependencies."""
    lines = []
    for jar in jars:
        classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
        lines.append(
            f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} rev={quoteattr(jar.version)}"
            f' transitive="false" conf="default-&gt;default"><artifact name={quoteattr(jar.name)} type="jar"'
            f" ext={quoteattr(jar.extension)}{classifier}/></dependency>"
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="playhead" module="jars"/>'
        '<configurations><conf name="default"/></configurations><dependencies>'
        + "".join(lines)
        + "</dependencies></ivy-module>"
    )


def run_ivy(
    module: Path, settings: str | None, cache: Path, target: str, fetched: Callable[[int], None] = lambda n: None
) -> list[str]:
    """Returns Ivy's output. `target` is the pattern of the files it writes; a file missing there could not be fetched."""
    command = [java(), "-jar", str(ivy_jar()), "-cache", str(cache), "-ivy", str(module)]
    if settings:
        command += ["-settings", settings]
    command += ["-retrieve", target, "-types", "jar", "bundle"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    lines: list[str] = []
    count = 0
    try:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            if "[SUCCESSFUL" in line:
                count += 1
                fetched(count)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
        if process.stdout:
            process.stdout.close()
    return lines


def java() -> str:
    """The `java` to run: `JAVA_HOME` if set, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    candidate = str(Path(home) / "bin" / "java") if home else "java"
    found = shutil.which(candidate)
    if not found:
        raise Invalid("no Java was found", "install Java 17 or newer, or set JAVA_HOME")
    return found


def java_version() -> str | None:
    """None when there is no Java, or its version is unknown. Most have it in a file; a JVM takes a tenth of a second for it."""
    try:
        found = java()
    except Invalid:
        return None
    with suppress(OSError, UnicodeError):
        release = (Path(found).resolve().parent.parent / "release").read_text("utf-8")
        if named := re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE):
            return named.group(1)
    try:
        output = subprocess.run([found, "-version"], capture_output=True, text=True, check=False, timeout=20).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r'version "([^"]+)"', output)
    return said.group(1) if said else None


def check_java() -> str:
    """The version. Kafka 4 needs Java 17; an older one would fail with an obscure error about class file versions."""
    java()
    found = java_version() or "unknown"
    major = found.removeprefix("1.").split(".")[0].split("-")[0]
    if not major.isdigit() or int(major) < 17:
        raise Invalid(f"Java {found} is too old", "install Java 17 or newer, or set JAVA_HOME to it")
    return found


def ivy_jar() -> Path:
    spec = find_spec("pyspark")
    if spec is None or not spec.origin:
        raise MissingExtra("lab", "pyspark")
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise NotFound("jar", "ivy-*.jar", hint="PySpark's own jar folder has no Ivy: reinstall pyspark")
    return found[-1]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
