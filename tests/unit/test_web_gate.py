"""What a request must pass before a page sees it."""

import html
import re
import socket
import time
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from playhead.config import Context
from playhead.config.scrub import Scrub
from playhead.errors import Invalid, Refused
from playhead.offsets.api import OwnerOffsets
from playhead.web import app, gate, sessions, slow_clients, svg
from playhead.web.lookups import Lookups
from playhead.web.options import VARIABLE, ServeOptions, parse_listen, read_tokens
from playhead.web.poller import Poller
from playhead.web.site import Watched
from web_server import TOKEN, TOKENS, FakeSources, served, show_connector_as

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def open_server():
    with served() as server:
        server.ask_once()
        yield server


@pytest.fixture(scope="module")
def locked():
    with served(ServeOptions(tokens=TOKENS, allow_writes=True)) as server:
        server.ask_once()
        yield server


@pytest.mark.parametrize("path", ["/", "/nothing-here", "/api/v1/pipelines", "/metrics", "/static/style.css", "/login"])
def test_every_answer_has_every_header(open_server, path):
    headers = open_server.get(path).headers
    for name, value in gate.HEADERS.items():
        assert headers[name] == value
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "server" not in headers


def test_pages_have_no_inline_script_or_style(open_server):
    for path in ("/", "/positions", "/journal", "/groups", "/doctor"):
        text = open_server.get(path).text
        assert "<script>" not in text
        assert "style=" not in text
        assert "onclick" not in text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1:1", "127.0.0.1.evil.example", "", "[::1"]
)
def test_another_host_name_is_refused_as_dns_rebinding(open_server, host):
    assert open_server.get("/", host=host or " ").status == 421
    assert open_server.get("/api/v1/pipelines", host=host or " ").status == 421


def test_localhost_and_names_that_were_given_are_accepted(open_server):
    assert open_server.get("/", host=f"localhost:{open_server.port}").status == 200
    options = ServeOptions(port=80, hosts=("playhead.shop.example", "other:8443"))
    assert options.answers_to("playhead.shop.example:443")
    assert options.answers_to("OTHER:8443")
    assert not options.answers_to("other:1")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1"])
def test_a_write_from_another_origin_is_refused(locked, origin):
    cookie = locked.log_in()
    csrf = locked.get("/api/v1/session", **cookie).json["csrf"]
    refused = locked.post("/plans", {"csrf": csrf, "owner": "x"}, Origin=origin, **cookie)
    assert refused.status == 403
    assert "another site" in refused.text
    assert locked.post("/logout", {"csrf": csrf}, Sec_Fetch_Site="cross-site", **cookie).status == 403


def test_a_write_needs_the_csrf_token_of_its_session(locked):
    cookie, other = locked.log_in(), locked.log_in()
    foreign = locked.get("/api/v1/session", **other).json["csrf"]
    for form in ({}, {"csrf": "x"}, {"csrf": foreign}):
        assert locked.post("/logout", form, **cookie).status == 403
    own = locked.get("/api/v1/session", **cookie).json["csrf"]
    assert locked.post("/logout", {"csrf": own}, Origin=f"http://127.0.0.1:{locked.port}", **cookie).status == 303
    assert locked.get("/api/v1/pipelines", **cookie).status == 401


def test_without_a_login_nothing_but_the_login_is_shown(locked):
    for path in ("/", "/journal", "/api/v1/pipelines", "/metrics", "/events", "/api/openapi.json"):
        answer = locked.get(path)
        assert answer.status in (401, 303), path
        assert b"orders_sink" not in answer.body
    assert locked.get("/").headers["location"] == "/login?to=/"
    assert locked.get("/healthz").status == 200
    assert locked.get("/login").status == 200


def test_the_api_takes_a_bearer_token_and_no_other(locked):
    assert locked.get("/api/v1/pipelines", **BEARER).json[0]["name"] == "orders_sink"
    wrong = locked.get("/api/v1/pipelines", Authorization=f"Bearer {TOKEN}x")
    assert wrong.status == 401
    assert wrong.headers["content-type"] == "application/problem+json"
    assert locked.get("/api/v1/pipelines", Authorization=f"Basic {TOKEN}").status == 401


@pytest.mark.parametrize("name", ["token", "access_token", "Token", "api_key", "password"])
def test_a_token_in_the_address_is_refused_even_if_it_is_right(locked, name):
    refused = locked.get(f"/api/v1/pipelines?{name}={TOKEN}", **BEARER)
    assert refused.status == 400
    assert TOKEN not in refused.text


def test_the_login_sets_a_cookie_that_scripts_and_other_sites_do_not_get(locked):
    done = locked.post("/login", {"secret": TOKEN, "to": "/journal"})
    cookie = done.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert done.headers["location"] == "/journal"


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example/", "/\\evil.example"])
def test_a_login_leads_to_this_server_only(locked, to):
    assert locked.post("/login", {"secret": TOKEN, "to": to}).headers["location"] == "/"


def test_wrong_tokens_are_limited():
    with served(ServeOptions(tokens=TOKENS)) as server:
        wrong = [server.post("/login", {"secret": f"wrong-{number}"}).status for number in range(7)]
        assert wrong == [403, 403, 403, 403, 403, 429, 429]
        limited = server.post("/login", {"secret": TOKEN})
        assert limited.status == 429
        assert int(limited.headers["retry-after"]) > 0


def test_a_body_of_100_megabytes_is_refused_before_it_is_read(locked):
    began = time.monotonic()
    answer = locked.ask("POST", "/api/v1/plans", b"{}", Content_Length=str(100 << 20), **BEARER)
    assert answer.status == 413
    assert time.monotonic() - began < 5


def test_a_body_that_does_not_say_its_size_is_bounded_too(locked):
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    with socket.create_connection(("127.0.0.1", locked.port), 20) as client:
        head = f"POST /api/v1/plans HTTP/1.1\r\nHost: 127.0.0.1:{locked.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        client.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(17):
            client.sendall(chunk)
        assert b" 413 " in client.recv(1000)


def is_cut(client: socket.socket) -> bool:
    """The server ended the connection without an answer."""
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


def test_a_client_that_sends_its_head_slowly_is_cut_off(monkeypatch):
    monkeypatch.setattr(slow_clients, "HEAD_SECONDS", 0.3)
    with served() as server, socket.create_connection(("127.0.0.1", server.port), 10) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost:")
        assert is_cut(client)


def test_a_client_that_sends_its_body_slowly_gets_an_answer(monkeypatch):
    monkeypatch.setattr(gate, "BODY_SECONDS", 0.3)
    with served() as server, socket.create_connection(("127.0.0.1", server.port), 10) as client:
        head = f"POST /plans HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 100\r\n\r\nx"
        client.sendall(head.encode())
        assert b" 408 " in client.recv(1000)


def test_a_huge_head_is_refused(open_server):
    with socket.create_connection(("127.0.0.1", open_server.port), 10) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 100_000)
        assert b" 400 " in client.recv(1000)


def test_nothing_is_carried_out_on_a_server_that_is_read_only(open_server):
    csrf = open_server.get("/api/v1/session").json["csrf"]
    for path in ("/plans/abc/apply", "/api/v1/plans/abc/apply"):
        assert open_server.ask("POST", path, b"{}", X_CSRF_Token=csrf).status == 403
    assert "read-only" in open_server.get("/").text


def test_hostile_names_and_texts_are_shown_as_text():
    name = '<script>alert(1)</script>\u202e\x1b[31m"&'
    with served(sources=FakeSources((name,), {name: "failed"})) as server:
        server.ask_once()
        text = server.get("/").text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "<b>x</b>" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "\\u202e\\x1b[31m" in text


def test_an_open_page_asks_for_itself_by_the_address_that_was_sent_and_learns_why_that_failed(open_server):
    text = open_server.get("/?q=%3Cb%3E%E2%80%AE").text
    assert 'hx-get="/?q=%3Cb%3E%E2%80%AE"' in text
    gone = open_server.get("/plans/none", HX_Request="true")
    assert (gone.status, gone.text) == (404, "plan 'none' does not exist")  # htmx swaps no answer of this status
    assert '"noSwap": [204, 304, "4xx", "5xx"]' in text


def test_a_page_that_is_open_learns_that_its_session_has_ended(locked):
    cookie = locked.log_in()
    csrf = locked.get("/api/v1/session", **cookie).json["csrf"]
    assert locked.get("/", HX_Request="true", **cookie).status == 200
    locked.post("/logout", {"csrf": csrf}, **cookie)
    assert locked.get("/", HX_Request="true", **cookie).status == 401


@pytest.mark.parametrize("ends", ["logout", "expiry"])
def test_the_events_of_a_session_end_with_it(monkeypatch, ends):
    monkeypatch.setattr(app, "STILL_SECONDS", 0.05)
    with served(ServeOptions(tokens=TOKENS)) as server:
        server.ask_once()
        cookie = server.log_in()
        with socket.create_connection(("127.0.0.1", server.port), 10) as client:
            head = f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nCookie: {cookie['Cookie']}\r\n\r\n"
            client.sendall(head.encode())
            with client.makefile("rb") as lines:
                assert next(line for line in lines if line.startswith(b"event:")) == b"event: seen\n"
                assert next(line for line in lines if line.startswith(b":")) == b": still here\n"
                if ends == "logout":
                    csrf = server.get("/api/v1/session", **cookie).json["csrf"]
                    assert server.post("/logout", {"csrf": csrf}, **cookie).status == 303
                else:
                    late = time.monotonic() + sessions.LASTS_SECONDS + 1
                    monkeypatch.setattr(sessions, "time", SimpleNamespace(monotonic=lambda: late))
                assert next(line for line in islice(lines, 500) if line.startswith(b"event:")) == b"event: over\n"
        assert server.get("/api/v1/session", **cookie).status == 401


def test_a_bearer_keeps_its_events(monkeypatch):
    monkeypatch.setattr(app, "STILL_SECONDS", 0.05)
    with served(ServeOptions(tokens=TOKENS)) as server:
        with socket.create_connection(("127.0.0.1", server.port), 10) as client:
            head = f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
            client.sendall(head.encode())
            with client.makefile("rb") as lines:
                still = list(islice((line for line in lines if line.startswith(b":")), 3))
        assert still == [b": still here\n"] * 3


def test_a_login_leads_back_to_the_whole_address(locked):
    asked = "/positions?owner=group%3Aa%3Ab&context=shop"
    to = locked.get(asked).headers["location"]
    assert parse_qs(urlsplit(to).query) == {"to": [asked]}
    form = locked.get(to).text
    assert f'name="to" value="{asked.replace("&", "&amp;")}"' in form
    wrong = locked.post("/login", {"secret": "wrong", "to": asked})
    assert f'name="to" value="{asked.replace("&", "&amp;")}"' in wrong.text
    assert locked.post("/login", {"secret": TOKEN, "to": asked}).headers["location"] == asked


def test_wrong_bearer_tokens_are_limited_by_their_address():
    with served(ServeOptions(tokens=TOKENS)) as server:
        wrong = [server.get("/api/v1/session", Authorization=f"Bearer wrong-{n}").status for n in range(7)]
        assert wrong == [401, 401, 401, 401, 401, 429, 429]
        limited = server.get("/api/v1/session", **BEARER)
        assert limited.status == 429
        assert int(limited.headers["retry-after"]) > 0
        assert limited.headers["content-type"] == "application/problem+json"


def test_wrong_tokens_of_others_do_not_lock_out_a_program():
    logins = sessions.Sessions(TOKENS)
    for number in range(100):
        logins.find(None, "wrong", f"10.0.0.{number}")
    assert logins.wait_seconds("10.1.1.1") > 0  # the form
    assert logins.wait_seconds("10.1.1.1", own_only=True) == 0


def test_a_client_that_reads_slowly_does_not_hold_up_others():
    """A large page of which nothing is read, many times: others get theirs at once."""
    with served(sources=FakeSources([f"orders_{number}" for number in range(2000)])) as server:
        server.ask_once()
        clients = []
        try:
            for _ in range(60):
                client = socket.create_connection(("127.0.0.1", server.port), 10)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
                clients.append(client)
            began = time.monotonic()
            assert server.get("/healthz").status == 200
            assert len(server.get("/").body) > 500_000
            assert server.get("/metrics").status == 200
            assert time.monotonic() - began < 5
        finally:
            for client in clients:
                client.close()


def test_secrets_of_every_context_are_masked_in_an_error():
    with served() as server:
        other = Watched(
            Context("other", {}), Poller(FakeSources(), 1.0, Scrub()), Lookups(5.0), Scrub(["s3cr3t-of-other"])
        )
        server.site.watched = [*server.site.watched, other]
        assert server.get("/plans/x-s3cr3t-of-other", HX_Request="true").text == "plan 'x-***' does not exist"


@pytest.mark.parametrize("name", ["a:b", "pay@prod", "50%", "a b", "a/b", "ä+?#&"])
def test_links_lead_to_the_group_and_the_pipeline_that_they_name(monkeypatch, name):
    asked = []

    def shown(owner, **_):
        asked.append(owner)
        return OwnerOffsets(owner, "groups://b", {}, ())

    monkeypatch.setattr("playhead.web.editor.show", shown)
    monkeypatch.setattr("playhead.web.pipeline_page.list_", lambda *_, **__: [])
    show_connector_as(monkeypatch, ())
    with served(sources=FakeSources((name,))) as server:
        server.ask_once()
        [link] = re.findall(r'href="(/positions[?]owner=[^"]+)"', server.get("/groups").text)
        assert server.get(html.unescape(link)).status == 200
        assert asked == [f"group:connect-{name}"]
        [link] = re.findall(r'href="(/pipelines/[^"]+)"', server.get("/").text)
        assert server.get(html.unescape(link)).status == 200


def test_text_that_a_picture_holds_is_cleaned_too():
    drawn = svg.position_chart([[(1.0, 1.0), (3.0, 2.0)]], [(2.0, "moved by \u202e\x1b[31m<b>")])
    assert "moved by \\u202e\\x1b[31m&lt;b&gt;" in drawn


def test_a_secret_in_the_message_of_a_server_reaches_no_page_and_no_api():
    with served(sources=FakeSources(away=True)) as server:
        server.ask_once()
        for path in ("/", "/api/v1/status", "/metrics"):
            assert "hunter2" not in server.get(path).text
        assert "no broker answers" in server.get("/").text


def test_only_this_machine_without_a_token():
    with pytest.raises(Refused, match="no token is set"):
        ServeOptions("0.0.0.0")  # noqa: S104
    with pytest.raises(Refused, match="no token is set"):
        ServeOptions("playhead.example")
    with pytest.raises(Refused, match="--allow-writes needs a token"):
        ServeOptions(allow_writes=True)
    assert ServeOptions("::1").url == "http://[::1]:8080/"
    with pytest.raises(Invalid, match="belong together"):
        ServeOptions(cert=Path("x"))


def test_tokens_come_from_a_private_file_or_the_environment(tmp_path, monkeypatch):
    file = tmp_path / "tokens"
    file.write_text(f"# on call\nanna:{TOKEN}\n{'b' * 20}\n")
    file.chmod(0o644)
    with pytest.raises(Refused, match="other users"):
        read_tokens(file)
    file.chmod(0o600)
    tokens = read_tokens(file)
    assert tokens.find_name(TOKEN) == "anna"
    assert tokens.find_name("b" * 20) is not None
    assert tokens.find_name("") is None
    assert TOKEN not in repr(tokens)
    file.write_text("short\n")
    with pytest.raises(Invalid, match="at least 16"):
        read_tokens(file)
    monkeypatch.setenv(VARIABLE, f"otto:{TOKEN}")
    assert read_tokens(None).find_name(TOKEN) == "otto"


@pytest.mark.parametrize("text", ["", "8080", "host", "host:x", "host:99999", "::1"])
def test_an_address_to_listen_on_names_host_and_port(text):
    with pytest.raises(Invalid, match="not an address"):
        parse_listen(text)
