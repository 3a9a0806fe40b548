"""The lamp of a page in a real browser: it says `live` only while the page is renewed. The sources are the test's own."""

import time
from types import SimpleNamespace

import pytest

from browser import browser
from playhead.connectors import ConnectorRow, ShownConnector
from playhead.connectors.status import TaskRow
from playhead.errors import NotFound
from playhead.web import app, pipeline_page, sessions
from playhead.web.options import ServeOptions
from web_server import TOKEN, TOKENS, FakeSources, served


@pytest.fixture(scope="module")
def chrome():
    with browser() as opened:
        yield opened


class Watching:
    """A page of a user who is logged in. The poller asks when `news` is called."""

    def __init__(self, server, page) -> None:
        self.server = server
        self.page = page
        self.url = f"http://127.0.0.1:{server.port}/"
        page.goto(self.url)
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_load_state()

    def news(self) -> None:
        self.server.ask_once()

    def goes(self, path: str) -> None:
        self.page.goto(self.url + path)

    def lamp(self, text: str) -> str:
        self.page.locator("#lamp", has_text=text).wait_for(timeout=20_000)
        return str(self.page.inner_text("#lamp"))


@pytest.fixture
def watching(chrome, monkeypatch):
    monkeypatch.setattr(app, "STILL_SECONDS", 0.2)
    monkeypatch.setattr(pipeline_page, "list_", lambda *_, **__: [])
    there = {"orders_sink"}

    def show(_context, name, _deadline):
        if name not in there:
            raise NotFound("connector", name)
        task = TaskRow(0, "failed", "w:8083", "boom", "boom\nat here")
        return ShownConnector(ConnectorRow(name, "sink", "failed", 1, "C", "w:8083"), {}, (task,), ())

    monkeypatch.setattr(pipeline_page, "show_connector", show)
    with served(ServeOptions(tokens=TOKENS), FakeSources(states={"orders_sink": "failed"})) as server:
        server.ask_once()
        context = chrome.new_context()
        found = Watching(server, context.new_page())
        found.there = there  # type: ignore[attr-defined]
        yield found
        context.close()


def test_a_page_is_live_while_each_answer_reaches_it(watching):
    watching.lamp("live")
    watching.server.sources.states["orders_src"] = "paused"
    watching.news()
    watching.page.locator("tr", has_text="orders_src").get_by_text("paused").wait_for(timeout=20_000)
    assert watching.lamp("live") == "live"


def test_a_table_that_is_not_renewed_is_as_loaded(watching):
    watching.goes("positions")
    watching.news()
    assert watching.lamp("as loaded") == "as loaded"


def test_a_field_in_use_holds_the_page_and_leaving_it_renews_it(watching):
    watching.lamp("live")
    watching.page.get_by_label("Filter").focus()
    watching.server.sources.states["orders_src"] = "paused"
    watching.news()
    assert watching.lamp("while a field is in use").startswith("as of ")
    watching.page.get_by_label("Filter").blur()
    watching.lamp("live")
    watching.page.locator("tr", has_text="orders_src").get_by_text("paused").wait_for(timeout=20_000)


def test_a_trace_that_is_open_holds_the_page(watching):
    watching.goes("pipelines/orders_sink")
    watching.lamp("live")
    watching.page.locator("td summary").click()
    watching.news()
    watching.lamp("while a part is open")
    watching.page.locator("td summary").click()
    watching.lamp("live")


def test_a_connector_that_is_gone_leaves_its_page_with_the_reason(watching):
    watching.goes("pipelines/orders_sink")
    watching.lamp("live")
    watching.there.clear()
    watching.server.site.watched[0].lookups.forget()
    watching.news()
    said = watching.lamp("does not exist")
    assert said.startswith("not renewed since ")
    assert "boom" in watching.page.inner_text("main")  # what was seen last stays


@pytest.mark.parametrize("ends", ["logout", "expiry"])
def test_a_session_that_has_ended_is_shown(watching, monkeypatch, ends):
    watching.lamp("live")
    if ends == "logout":
        other = watching.page.context.new_page()
        other.goto(f"{watching.url}logout")
        other.get_by_role("button", name="Log out").click()
    else:
        late = time.monotonic() + sessions.LASTS_SECONDS + 1
        monkeypatch.setattr(sessions, "time", SimpleNamespace(monotonic=lambda: late))
    assert watching.lamp("logged out").startswith("logged out, as of ")


def test_a_server_that_is_away_is_shown_with_the_time(chrome):
    with served() as server:
        server.ask_once()
        page = chrome.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.locator("#lamp", has_text="live").wait_for(timeout=20_000)
    page.locator("#lamp", has_text="the server").wait_for(timeout=20_000)
    assert page.inner_text("#lamp").startswith("not renewed since ")
    page.close()
