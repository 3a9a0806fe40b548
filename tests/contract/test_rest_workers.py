"""Two real workers: followers that forward, rebalances, one that hangs, one that is killed."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contract.workers import Connectors, ask, offset_at, path_of
from playhead.connect import transport
from playhead.connect.rest import Rest
from playhead.errors import OutcomeUnknown, TimedOut
from playhead.lab import Lab, LabOptions
from playhead.model import Deadline

WORKERS = ("worker-1", "worker-2")


@pytest.fixture(scope="module")
def pair(make_lab: Callable[[LabOptions], Lab]) -> Iterator[Lab]:
    """A worker that is killed is missed after 6 s, the shortest the broker allows."""
    quick = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}
    lab = make_lab(LabOptions(workers=2, postgres=False, worker_overrides=quick))
    yield lab
    lab.down()


@pytest.fixture
def both(pair: Lab) -> Iterator[Rest]:
    with Rest(pair.connect_urls, Deadline(90)) as rest:
        yield rest


@pytest.fixture
def connectors(pair: Lab, both: Rest, tmp_path: Path) -> Iterator[Connectors]:
    made = Connectors(pair, both, tmp_path, Deadline(90))
    yield made
    made.clear()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "READ_BACK_SECONDS", 2.0)


def leader_of(lab: Lab) -> str:
    """The part that leads, by the last assignment the workers logged."""
    lines = [line for name in WORKERS for line in lab.log_of(name).read_text().splitlines() if "leaderUrl='" in line]
    found = re.findall(r"leaderUrl='(.*?)/'", max(lines))
    return WORKERS[lab.connect_urls.index(found[-1])]


def follower_of(lab: Lab) -> str:
    return next(name for name in WORKERS if name != leader_of(lab))


def url_of(lab: Lab, name: str) -> str:
    return lab.connect_urls[WORKERS.index(name)]


@contextmanager
def paused(lab: Lab, name: str) -> Iterator[None]:
    lab.pause(name)
    try:
        yield
    finally:
        lab.resume(name)
        wait_until_whole(lab)


def wait_until_whole(lab: Lab) -> None:
    """Both say that they are in order again."""
    deadline = Deadline(60)
    for name in WORKERS:
        deadline.wait_for(lambda url=url_of(lab, name): ask(url + "/health")[0] == 200, f"{name} to be well")  # type: ignore[misc]


def test_a_follower_forwards_every_write_to_its_leader(pair: Lab, connectors: Connectors, unique):
    name = connectors.expects(unique("forwarded"))
    config = connectors.source_config("none")
    with Rest([url_of(pair, follower_of(pair))], Deadline(60)) as rest:
        assert rest.create_connector(name, config, "STOPPED").config == {**config, "name": name}
        connectors.settles(name, "STOPPED")
        assert rest.patch_config(name, {"batch.size": "3"})["batch.size"] == "3"
        assert rest.put_config(name, config) is False
        rest.alter_offsets(name, [offset_at("/a", 1)])
        assert rest.get_offsets(name) == [offset_at("/a", 1)]
        rest.delete_offsets(name)
        rest.stop(name)
        rest.restart(name)
        assert ask(url_of(pair, leader_of(pair)) + path_of(name) + "/config")[1] == {**config, "name": name}
        rest.delete_connector(name)
    leader = url_of(pair, leader_of(pair))
    Deadline(30).wait_for(lambda: ask(leader + path_of(name))[0] == 404, "the deletion to be seen")


@pytest.mark.parametrize("name", ["a b?c#d", "\"q\" 'r'", "zażółć €", "a+b&c=d"])
def test_a_name_with_unusual_characters_survives_forwarding(pair: Lab, connectors: Connectors, name: str):
    connectors.expects(name)
    with Rest([url_of(pair, follower_of(pair))], Deadline(60)) as rest:
        rest.create_connector(name, connectors.source_config("none"), "STOPPED")
        connectors.settles(name, "STOPPED")
        rest.put_config(name, connectors.source_config("other"))
        assert ask(url_of(pair, leader_of(pair)) + path_of(name) + "/config")[1]["topic"] == "other"
        rest.delete_connector(name)
        rest_of = Deadline(30)
        rest_of.wait_for(lambda: name not in rest.list_connectors(), "the deletion to be seen")


def test_a_log_level_for_the_cluster_reaches_every_worker_and_for_one_worker_only_it(pair: Lab):
    logger = "org.apache.kafka.connect.file"
    first, second = [f"{url}/admin/loggers/{logger}" for url in pair.connect_urls]
    with Rest(pair.connect_urls[:1], Deadline(60)) as rest:
        assert rest.set_logger(logger, "WARN", cluster=True) == []
        for url in (first, second):
            Deadline(30).wait_for(lambda url=url: _level(url) == "WARN", "the level to arrive")  # type: ignore[misc]
        assert logger in rest.set_logger(logger, "ERROR")
    assert (_level(first), _level(second)) == ("ERROR", "WARN")


def test_connectors_are_created_changed_and_deleted_while_a_worker_leaves_and_comes_back(
    pair: Lab, connectors: Connectors, both: Rest, unique
):
    """Stopped before the first change: a worker that gets the stop signal between changes may stop slowly."""
    follower = follower_of(pair)
    pair.stop(follower)
    returning = threading.Thread(target=pair.start, args=(follower,))
    try:
        _live_through(connectors, both, unique("left"))
    finally:
        returning.start()
    try:
        while returning.is_alive():
            _live_through(connectors, both, unique("returning"))
    finally:
        returning.join()
    wait_until_whole(pair)
    _live_through(connectors, both, unique("back"))
    for url in pair.connect_urls:
        assert not set(ask(url + "/connectors")[1]) & set(connectors.made)


def test_a_worker_that_hangs_is_passed_over_by_reads(pair: Lab):
    hanging, other = follower_of(pair), leader_of(pair)
    with paused(pair, hanging):
        with Rest([url_of(pair, hanging), url_of(pair, other)], Deadline(4)) as rest:
            assert sorted(rest.list_connectors()) == sorted(ask(url_of(pair, other) + "/connectors")[1])
        with Rest([url_of(pair, hanging)], Deadline(1)) as rest, pytest.raises(TimedOut, match="did not answer"):
            rest.list_connectors()


def test_a_write_to_a_worker_that_hangs_has_an_unknown_outcome(pair: Lab, connectors: Connectors, unique, impatient):
    name = connectors.expects(unique("hanging"))
    hanging = follower_of(pair)
    with paused(pair, hanging), Rest([url_of(pair, hanging)], Deadline(1)) as rest:
        with pytest.raises(OutcomeUnknown, match="reading back failed") as caught:
            rest.put_config(name, connectors.source_config("none"))
        assert caught.value.exit_code == 5


def test_a_write_to_a_worker_that_hangs_is_read_back_from_the_other(pair: Lab, connectors: Connectors, unique):
    """The other worker shows the state that was wanted, and the write is not sent to it as well."""
    config = connectors.source_config("none")
    name = connectors.make(unique("hanging"), config, "STOPPED")
    hanging, other = follower_of(pair), leader_of(pair)
    with paused(pair, hanging), Rest([url_of(pair, hanging), url_of(pair, other)], Deadline(1)) as rest:
        assert rest.put_config(name, config) is False


def test_when_the_leader_is_killed_the_other_url_is_asked_and_the_write_waits_for_a_new_leader(
    pair: Lab, connectors: Connectors, unique
):
    config = connectors.source_config("none")
    name = connectors.make(unique("survives"), config, "STOPPED")
    killed, survivor = leader_of(pair), follower_of(pair)
    urls = [url_of(pair, killed), url_of(pair, survivor)]
    wanted = {**config, "batch.size": "9"}

    def written() -> bool:
        """A worker that has just lost its leader may keep a request for 90 s: that is said as unknown, and asked again."""
        with Rest(urls, Deadline(20)) as rest:
            try:
                rest.put_config(name, wanted)
            except OutcomeUnknown:
                return False
            return rest.get_config(name)["batch.size"] == "9"

    pair.kill(killed)
    try:
        with Rest(urls, Deadline(60)) as rest:
            assert name in rest.list_connectors()
        Deadline(150).wait_for(written, "the write after the leader's death")
        assert leader_of(pair) == survivor
    finally:
        pair.start(killed)
    wait_until_whole(pair)


def _level(url: str) -> str | None:
    status, body = ask(url)
    return str(body["level"]) if status == 200 else None


def _live_through(connectors: Connectors, rest: Rest, name: str) -> None:
    connectors.make(name, connectors.source_config("none"), "STOPPED")
    rest.put_config(name, connectors.source_config("other"))
    rest.resume(name)
    rest.stop(name)
    rest.delete_connector(name)
