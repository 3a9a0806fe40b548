"""One poller for everyone who looks: what it keeps, and what it costs."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

from playhead.checkup import Version
from playhead.config.scrub import Scrub
from playhead.connectors import ConnectorList, ConnectorRow
from playhead.errors import Busy, NotFound, Unreachable
from playhead.model import Deadline
from playhead.web.app import SLOW_THREADS
from playhead.web.history import POINTS, History
from playhead.web.lookups import MOST_WAITING, Lookups
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
    # an answer counts for four times as long as it took, which may be a moment on a busy machine
    Deadline(10).wait_for(
        lambda: lookups.get("key", away).fault == "no worker answers", "the next question", every=0.01
    )
    assert lookups.get("key", away).value == 1
    with pytest.raises(NotFound):
        lookups.get("key", gone)


def test_a_question_that_failed_is_not_asked_again_within_the_interval():
    lookups, calls = Lookups(30.0), []

    def away(deadline):
        calls.append(1)
        raise Unreachable("no worker answers")

    for _ in range(5):
        with pytest.raises(Unreachable):
            lookups.get("key", away)
    assert len(calls) == 1
    lookups.forget()
    with pytest.raises(Unreachable):
        lookups.get("key", away)
    assert len(calls) == 2


def test_few_wait_for_a_question_and_the_others_get_an_answer_at_once():
    lookups, release, asked = Lookups(30.0), Event(), Event()

    def slow(deadline):
        asked.set()
        release.wait(20)
        return "answer"

    with ThreadPoolExecutor(40) as pool:
        first = pool.submit(lookups.get, "key", slow)
        assert asked.wait(10)
        others = [pool.submit(lookups.get, "key", slow) for _ in range(30)]
        Deadline(10).wait_for(lambda: sum(one.done() for one in others) == 30 - MOST_WAITING, "busy", every=0.01)
        release.set()
        assert first.result(10).value == "answer"
        busy = [one.exception(10) for one in others]
    assert sum(isinstance(one, Busy) for one in busy) == 30 - MOST_WAITING
    assert sum(one is None for one in busy) == MOST_WAITING


def test_an_answer_that_was_asked_before_a_write_is_not_kept_after_it():
    lookups, release, asked = Lookups(30.0), Event(), Event()

    def slow(deadline):
        asked.set()
        release.wait(20)
        return "before"

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lookups.get, "key", slow)
        assert asked.wait(10)
        lookups.forget()
        release.set()
        assert waiting.result(10).value == "before"
    assert lookups.get("key", lambda deadline: "after").value == "after"


def test_what_is_kept_is_bounded_in_number_and_age(monkeypatch):
    lookups = Lookups(0.0, most=3)
    for number in range(10):
        lookups.get(number, lambda deadline: "x" * 1000)
    assert len(lookups._kept) == 3
    monkeypatch.setattr("playhead.web.lookups.KEPT_SECONDS", -1.0)
    lookups.get("new", lambda deadline: 1)
    assert len(lookups._kept) == 0


def test_pages_that_wait_for_a_dead_worker_hold_up_neither_health_nor_metrics_nor_overview(monkeypatch):
    """More of them than there are threads, each for another connector."""
    release, begun = Event(), []

    def slow(context, name, deadline):
        begun.append(name)
        release.wait(30)
        raise Unreachable("no worker answers")

    monkeypatch.setattr("playhead.web.pipeline_page.show_connector", slow)
    with served() as server, ThreadPoolExecutor(60) as pool:
        server.ask_once()
        try:
            waiting = [pool.submit(server.get, f"/pipelines/p{number}") for number in range(60)]
            Deadline(10).wait_for(lambda: len(begun) >= SLOW_THREADS, "all threads waiting", every=0.01)
            began = time.monotonic()
            for path in (
                "/healthz",
                "/readyz",
                "/metrics",
                "/",
                "/?q=a",
                "/groups",
                "/api/v1/pipelines",
                "/static/live.js",
            ):
                assert server.get(path).status == 200, path
            assert time.monotonic() - began < 3
            assert len(begun) == SLOW_THREADS
        finally:
            release.set()
        assert {one.result().status for one in waiting} == {503}


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
    assert [one.name for one in chosen(every, "topic:order")] == ["c", "b", "a"]
    assert len(chosen(every, "orders")) == 3
    assert every[0].position == "orders-0 at 93 of 100"


class WithoutLags(FakeSources):
    """Workers that answer while no broker does."""

    def connectors(self, deadline):
        found = super().connectors(deadline) if not self.away else None
        if found is not None:
            return found
        rows = [ConnectorRow(name, "sink", "running", 1, "C", "w:8083") for name in self.names]
        return ConnectorList(tuple(rows), ("the lag is not known",))


def test_the_last_known_lag_stays_marked_stale_while_no_broker_answers():
    sources = WithoutLags(("a",))
    poller = asked(sources)
    sources.away = True
    for part in ("connectors", "groups"):
        poller.ask(part)
    [one] = list_pipelines(poller.seen, poller.history)
    assert (one.state, one.lag, one.stale) == ("running", 7, poller.seen.groups.at)
    sources.away = False
    for part in ("connectors", "groups"):
        poller.ask(part)
    [one] = list_pipelines(poller.seen, poller.history)
    assert (one.lag, one.stale) == (7, None)


class Fleet(FakeSources):
    def servers(self, deadline):
        away = Unreachable("no worker answers")
        return [Version("broker 1", "4.3"), Version("broker 2", "4.3"), Version("worker", None, "http://w:8083", away)]


def test_the_head_of_a_page_says_how_many_servers_answer():
    with served(sources=Fleet()) as server:
        server.ask_once()
        text = server.get("/groups").text
    assert "2 brokers" in text
    assert '<span class="pill wrong">0 of 1 workers answer</span>' in text


def test_a_slow_answer_is_followed_by_a_longer_pause_that_has_an_end():
    poller = Poller(FakeSources(), 5.0, Scrub())
    assert poller.pause("groups", 0.5) == 5.0
    assert poller.pause("groups", 3.0) == 12.0
    assert poller.pause("groups", 20.0) == 30.0, "the end of an outage would be seen late"
    assert poller.pause("servers", 0.5) == 30.0
    poller.seen = replace(poller.seen, groups=replace(poller.seen.groups, fault="no answer"))
    assert poller.pause("groups", 20.0) == 10.0, "a page would go on saying that nothing answers"
