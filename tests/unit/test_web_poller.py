"""One poller for everyone who looks: what it keeps, and what it costs."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from playhead.config.scrub import Scrub
from playhead.errors import NotFound, Unreachable
from playhead.model import Deadline
from playhead.web.history import POINTS, History
from playhead.web.lookups import Lookups
from playhead.web.pipelines import chosen, level_of, list_pipelines
from playhead.web.poller import PARTS, Poller
from web_server import FakeSources, served


def asked(sources: FakeSources) -> Poller:
    poller = Poller(sources, 1.0, Scrub())
    for part in PARTS:
        poller.ask(part)
    return poller


def test_a_part_that_does_not_answer_keeps_its_last_value_with_its_age():
    sources = FakeSources()
    poller = asked(sources)
    before = poller.seen.connectors
    sources.away = True
    poller.ask("connectors")
    poller.ask("connectors")
    part = poller.seen.connectors
    assert part.value == before.value
    assert part.at == before.at
    assert "no broker answers" in part.fault
    assert part.since is not None
    assert poller.seen.faults["connectors"] == 2
    assert all(one.stale == before.at for one in list_pipelines(poller.seen, poller.history))
    sources.away = False
    poller.ask("connectors")
    assert poller.seen.connectors.fault == ""


class Broken(FakeSources):
    def connectors(self, deadline):
        raise ZeroDivisionError


def test_an_unexpected_error_does_not_end_the_poller():
    poller = asked(Broken())
    assert "ZeroDivisionError" in poller.seen.connectors.fault
    assert poller.seen.groups.value


def test_a_hundred_pages_cost_the_cluster_nothing():
    with served() as server:
        server.ask_once()
        before = server.sources.asked
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda _: server.get("/").status, range(100)))
        assert answers == [200] * 100
        assert server.get("/metrics").status == 200
        assert server.sources.asked == before


def test_an_open_page_hears_of_new_answers_and_the_poller_asks_by_itself():
    with served(parts=("connectors",)) as server:
        heard = Event()
        end = server.poller.listen(heard.set)
        assert heard.wait(10)
        end()
        Deadline(10).wait_for(lambda: server.poller.seen.version > 3, "more answers", every=0.01)


def test_lookups_are_shared_while_they_run_and_for_an_interval():
    lookups, release, calls = Lookups(30.0), Event(), []

    def ask(deadline):
        calls.append(1)
        release.wait(10)
        return "answer"

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(lookups.get, "key", ask) for _ in range(8)]
        Deadline(10).wait_for(lambda: bool(calls), "the first question", every=0.01)
        release.set()
        assert {one.result().value for one in waiting} == {"answer"}
    assert lookups.get("key", ask).value == "answer"
    assert len(calls) == 1
    lookups.forget()
    lookups.get("key", ask)
    assert len(calls) == 2


def test_a_lookup_that_fails_shows_the_last_answer_but_not_of_what_is_gone():
    lookups = Lookups(0.0)

    def away(deadline):
        raise Unreachable("no worker answers")

    def gone(deadline):
        raise NotFound("connector", "x")

    with pytest.raises(Unreachable):
        lookups.get("key", away)
    lookups.get("key", lambda deadline: 1)
    part = lookups.get("key", away)
    assert (part.value, part.fault) == (1, "no worker answers")
    with pytest.raises(NotFound):
        lookups.get("key", gone)


def test_the_history_is_bounded_and_gives_the_rate_of_the_last_minute():
    history = History()
    for second in range(0, 50_000, 10):
        history.add("p", 5, second * 3, at=float(second))
    assert len(history.of("p")) <= POINTS
    assert history.rate("p") == pytest.approx(3.0)
    assert history.rate("unknown") is None
    history.add("reset", 0, 100, at=1.0)
    history.add("reset", 0, 40, at=2.0)
    assert history.rate("reset") == 0


@pytest.mark.parametrize(
    ("state", "level"),
    [
        ("running", "ok"),
        ("finished", "ok"),
        ("running, 1 of 3 tasks failed", "wrong"),
        ("failed", "wrong"),
        ("silent for 5m 3s", "wrong"),
        ("paused", "attention"),
        ("running without tasks", "attention"),
        ("running, 1 of 2 tasks paused", "attention"),
        ("held back", "attention"),
    ],
)
def test_the_level_of_a_state(state, level):
    assert level_of(state) == level


def test_what_is_wrong_comes_first_and_words_filter():
    poller = asked(FakeSources(("a", "b", "c"), {"c": "failed", "b": "paused"}))
    every = list_pipelines(poller.seen, poller.history)
    assert [one.name for one in every] == ["c", "b", "a"]
    assert every[0].behind_seconds == 12.5
    assert [one.name for one in chosen(every, "state:failed")] == ["c"]
    assert [one.name for one in chosen(every, "", sort="name")] == ["a", "b", "c"]
    assert chosen(every, "engine:spark") == []
