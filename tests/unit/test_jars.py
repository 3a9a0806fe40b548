"""Pinned jars: only the file that was meant enters the cache. Ivy is replaced by a fake that leaves the files of the test."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import PlayheadError, Unreachable
from playhead.pipeline import jars
from playhead.pipeline.jars import Jar, cache_folder, fetch_jars, ivy_module, list_jars

WORD = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
JARS = st.builds(
    Jar,
    WORD,
    WORD,
    WORD,
    st.just("") | WORD,
    st.sampled_from(["jar", "zip"]),
    st.binary(min_size=32, max_size=32).map(bytes.hex),
)


def jar(name: str, content: bytes) -> Jar:
    return Jar("org.example", name, "1.0", "", "jar", hashlib.sha256(content).hexdigest())


class Ivy:
    """Leaves `files` where Ivy would and remembers how often it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []

    def run(
        self, module: Path, settings: str | None, cache: Path, target: str, fetched: Callable[[int], None]
    ) -> list[str]:
        self.asked.append(module.read_text())
        cache.mkdir(exist_ok=True)
        (cache / "downloaded").touch()
        folder = Path(target).parent
        folder.mkdir(parents=True)
        for count, (name, content) in enumerate(self.files.items(), 1):
            (folder / name).write_bytes(content)
            fetched(count)
        return ["INFO: hello", "  SERVER ERROR: Bad Gateway", "module not found: x"]


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ivy:
    made = Ivy()
    monkeypatch.setenv("PLAYHEAD_CACHE", str(tmp_path))
    monkeypatch.setattr(jars, "run_ivy", made.run)
    monkeypatch.setattr(jars, "list_jars", lambda name: [jar("a", b"A"), jar("b", b"B")])
    return made


def cached() -> list[str]:
    return sorted(path.name for path in cache_folder().iterdir() if path.name != ".lock")


@given(JARS)
def test_a_line_is_read_back_as_the_same_jar(made):
    assert Jar.from_line(made.to_line()) == made


def test_a_line_names_coordinates_kind_and_hash():
    made = Jar("org.x", "y", "1.2", "linux", "zip", "ab" * 32)
    assert made.to_line() == f"org.x:y:1.2:linux@zip {'ab' * 32}"
    assert made.file_name == "y-1.2-linux.zip"
    assert Jar.from_line(f"org.x:y:1.2 {'ab' * 32}").file_name == "y-1.2.jar"


@pytest.mark.parametrize("name", ["kafka", "s3", "debezium", "spark-kafka"])
def test_every_pinned_jar_has_a_whole_hash_and_a_name_of_its_own(name):
    pinned = list_jars(name)
    assert pinned
    assert all(len(bytes.fromhex(item.sha256)) == 32 for item in pinned)
    assert len({item.file_name for item in pinned}) == len(pinned)


def test_right_jars_enter_the_cache_and_are_not_asked_for_again(ivy):
    ivy.files = {"a-1.0.jar": b"A", "b-1.0.jar": b"B"}
    progress: list[tuple[int, int]] = []
    paths = fetch_jars("x", lambda done, total: progress.append((done, total)))
    assert [path.read_bytes() for path in paths] == [b"A", b"B"]
    assert progress == [(1, 2), (2, 2)]
    assert cached() == ["a-1.0.jar", "b-1.0.jar"]
    assert fetch_jars("x") == paths
    assert len(ivy.asked) == 1


def test_only_what_is_missing_is_asked_for(ivy):
    cache_folder().mkdir(parents=True)
    (cache_folder() / "a-1.0.jar").write_bytes(b"A")
    ivy.files = {"b-1.0.jar": b"B"}
    fetch_jars("x")
    assert 'name="b"' in ivy.asked[0]
    assert 'name="a"' not in ivy.asked[0]


def test_a_jar_with_the_wrong_hash_is_refused_and_does_not_enter_the_cache(ivy):
    ivy.files = {"a-1.0.jar": b"A", "b-1.0.jar": b"evil"}
    with pytest.raises(PlayheadError, match=r"^b-1\.0\.jar is not the pinned file") as caught:
        fetch_jars("x")
    assert caught.value.hint == "a mirror or proxy may alter files"
    assert "b-1.0.jar" not in cached()


def test_after_a_wrong_hash_nothing_of_the_download_is_used_again(ivy):
    ivy.files = {"a-1.0.jar": b"A", "b-1.0.jar": b"evil"}
    with pytest.raises(PlayheadError):
        fetch_jars("x")
    assert cached() == ["a-1.0.jar"]  # neither Ivy's own cache, which holds the wrong file, nor scratch
    ivy.files = {"b-1.0.jar": b"B"}
    assert [path.read_bytes() for path in fetch_jars("x")] == [b"A", b"B"]


def test_a_jar_that_could_not_be_fetched_is_named_with_ivys_reason_and_the_rest_is_kept(ivy):
    ivy.files = {"a-1.0.jar": b"A"}
    with pytest.raises(Unreachable) as caught:
        fetch_jars("x")
    assert caught.value.what == "could not fetch b-1.0.jar: SERVER ERROR: Bad Gateway; module not found: x"
    assert cached() == [".ivy", "a-1.0.jar"]  # Ivy goes on where it stopped


@given(st.lists(JARS, max_size=4))
def test_the_ivy_module_asks_for_exactly_these_files_and_nothing_they_need(wanted):
    root = ElementTree.fromstring(ivy_module(wanted))  # noqa: S314  (our own text)
    asked = [
        (
            d.get("org"),
            d.get("name"),
            d.get("rev"),
            d.find("artifact").get("{http://ant.apache.org/ivy/maven}classifier") or "",  # type: ignore[union-attr]
            d.find("artifact").get("ext"),  # type: ignore[union-attr]
        )
        for d in root.iter("dependency")
    ]
    assert asked == [(j.organisation, j.name, j.version, j.classifier, j.extension) for j in wanted]
    assert all(d.get("transitive") == "false" for d in root.iter("dependency"))
