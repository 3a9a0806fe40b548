"""The pages in a real browser, on the lab. Kafka's own tools say what became of a position."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from browser import browser
from integration.groups import described, fill
from playhead.kafka.client import make_producer
from playhead.lab import Lab, LabOptions
from playhead.model import Deadline, TopicPartition

TOKEN = "a-token-of-this-test-0123"
AXE = Path(__file__).parent.parent / "vendor" / "axe.min.js"
SHOTS = os.environ.get("SCREENSHOTS")  # a folder: the pictures of the documents are made by these tests
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
TEXT = "org.apache.kafka.connect.storage.StringConverter"


class Served:
    """`playhead serve` as a user starts it."""

    def __init__(self, lab: Lab, folder: Path, *words: str) -> None:
        tokens = folder / "tokens"
        tokens.write_text(f"anna:{TOKEN}\n")
        tokens.chmod(0o600)
        named = ["--connect", ",".join(lab.connect_urls)] if lab.connect_urls else []
        asked = ["--allow-writes", "--token-file", str(tokens), "-b", lab.bootstrap_servers, *named, *words]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "playhead", "serve", "--listen", "127.0.0.1:0", "--interval", "500ms", *asked],
            stderr=subprocess.PIPE,
            text=True,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("PLAYHEAD_")},
                **{name: str(folder / name) for name in ("PLAYHEAD_JOURNAL", "XDG_CONFIG_HOME", "XDG_STATE_HOME")},
            },
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"http://[^ ]+/", line)
        assert found, line
        self.url = found.group(0)

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=20)


@pytest.fixture(scope="module")
def chrome():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def serving(lab, tmp_path_factory):
    server = Served(lab, tmp_path_factory.mktemp("serve"))
    yield server
    server.end()


@pytest.fixture
def page(chrome, serving):
    """A page of a user who is logged in. Whatever its console says is an error."""
    context = chrome.new_context(viewport={"width": 1280, "height": 800})
    opened = context.new_page()
    log_in(opened, serving.url)
    said: list[str] = []
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
    yield opened
    context.close()
    assert [text for text in said if "409 (Conflict)" not in text] == []  # a refused plan is an answer


def log_in(page, url, token=TOKEN):
    page.goto(url)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_load_state()


def shot(page, name):
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png")


def committed(lab: Lab, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """By a plain client."""
    consumer = Consumer({"bootstrap.servers": lab.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[KafkaPartition(*place, offset) for place, offset in offsets.items()], asynchronous=False)
    consumer.close()


@pytest.fixture
def sink(lab, rest, new_topic, unique, tmp_path, deadline):
    """A file sink that runs and has read five records."""
    topic, name = new_topic(), unique("sink")
    producer = make_producer_of(lab)
    for number in range(5):
        producer.produce(topic, f"record {number}")
    assert producer.flush(20) == 0
    config = {"connector.class": FILE_SINK, "topics": topic, "file": str(tmp_path / "out.txt"), "value.converter": TEXT}
    rest.create_connector(name, {**config, "key.converter": TEXT, "tasks.max": "1"})
    deadline.wait_for(lambda: described_or_none(lab, f"connect-{name}", topic) == 5, "the sink reading five records")
    yield name, topic, tmp_path / "out.txt"
    rest.delete_connector(name)


def make_producer_of(lab: Lab):
    from playhead.kafka.properties import ClientSettings

    return make_producer(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}))


def described_or_none(lab: Lab, group: str, topic: str) -> int | None:
    try:
        return described(lab, group).get((group, TopicPartition(topic, 0)))
    except Exception:  # noqa: BLE001  (Kafka's tool fails for a group that does not exist yet)
        return None


def test_a_wrong_token_is_refused_and_the_right_one_leads_to_the_overview(chrome, serving):
    opened = chrome.new_page()
    log_in(opened, serving.url, "a-wrong-token-0123456789")
    assert "this token is not known" in opened.inner_text("main")
    log_in(opened, serving.url)
    assert opened.inner_text("h1") == "Pipelines"
    opened.close()


def test_a_position_is_moved_with_plan_apply_and_undo(page, serving, lab, sink):
    name, topic, out = sink
    group, place = f"connect-{name}", TopicPartition(topic, 0)
    page.goto(f"{serving.url}positions?owner={name}")
    assert f"{name} is running" in page.inner_text("main")
    page.locator("input[name=value]").fill("-3")
    page.get_by_label("stop it first").check()
    shot(page, "positions")
    page.get_by_role("button", name="Show the plan").click()
    assert "Nothing is changed yet" in page.inner_text("main")
    assert described(lab, group)[group, place] == 5
    assert f"--shift-by -3 --topic {topic}:0 --stop" in page.inner_text("pre")
    page.get_by_role("button", name="Carry out the plan").click()
    assert "changed" in page.inner_text("table")
    assert f"{name} was running: resumed" in page.inner_text("main")
    Deadline(30).wait_for(lambda: out.read_text().splitlines().count("record 4") == 2, "the sink reading again")
    assert out.read_text().splitlines() == [f"record {n}" for n in (0, 1, 2, 3, 4, 2, 3, 4)]
    page.goto(f"{serving.url}journal")
    assert "anna@" in page.inner_text("table")


def test_a_group_is_reset_over_two_topics_and_back(page, serving, lab, new_topic, settings_of, unique):
    group, first, second = unique("billing"), new_topic(2), new_topic()
    for topic, partition in ((first, 0), (first, 1), (second, 0)):
        fill(settings_of, topic, partition, range(1, 11))
    committed(lab, group, {(first, 0): 7, (first, 1): 8, (second, 0): 9})
    page.goto(f"{serving.url}positions?owner=group:{group}")
    page.get_by_label(f"move {first}-1").uncheck()
    page.locator("select[name=word]").select_option("earliest")
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_role("button", name="Carry out the plan").click()
    at = {place: offset for (_, place), offset in described(lab, group).items()}
    assert at == {TopicPartition(first, 0): 0, TopicPartition(first, 1): 8, TopicPartition(second, 0): 0}
    page.get_by_role("button", name="Plan the undo").click()
    page.get_by_role("button", name="Carry out the plan").click()
    at = {place: offset for (_, place), offset in described(lab, group).items()}
    assert at == {TopicPartition(first, 0): 7, TopicPartition(first, 1): 8, TopicPartition(second, 0): 9}


def test_a_plan_whose_position_moved_is_refused_and_not_carried_out_twice(
    page, serving, lab, new_topic, settings_of, unique
):
    group, topic = unique("billing"), new_topic()
    fill(settings_of, topic, 0, range(1, 11))
    committed(lab, group, {(topic, 0): 7})
    page.goto(f"{serving.url}positions?owner=group:{group}")
    page.locator("input[name=value]").fill("-2")
    page.get_by_role("button", name="Show the plan").click()
    committed(lab, group, {(topic, 0): 9})
    page.get_by_role("button", name="Carry out the plan").click()
    assert "moved since the plan was created" in page.inner_text("main")
    assert described(lab, group)[group, TopicPartition(topic, 0)] == 9


def test_a_connector_that_fails_and_recovers_is_shown_without_a_reload(page, serving, rest, sink):
    name, _topic, out = sink
    row = page.locator("tr", has_text=name)
    page.goto(f"{serving.url}?q={name}")
    row.locator(".pill.ok").wait_for(timeout=20_000)
    config = rest.get_config(name)
    rest.put_config(name, {**config, "file": str(out.parent / "missing" / "out.txt")})
    row.locator(".pill.wrong").wait_for(timeout=40_000)
    assert "failed" in row.inner_text()
    page.goto(serving.url)
    row.locator(".pill.wrong").wait_for(timeout=20_000)
    shot(page, "overview")
    rest.put_config(name, config)
    row.locator(".pill.ok").wait_for(timeout=40_000)
    page.goto(f"{serving.url}pipelines/{name}")
    assert "FileStreamSinkConnector" in page.inner_text("main")
    shot(page, "pipeline")


def test_hostile_names_values_and_records_are_shown_as_text(page, serving, lab, rest, new_topic, unique, deadline):
    name, topic = unique("<img src=x onerror=alert(1)>\u202e"), new_topic()
    producer = make_producer_of(lab)
    producer.produce(topic, b"<script>alert(2)</script>\x1b[31m\xe2\x80\xae", key=b"<b>key</b>")
    assert producer.flush(20) == 0
    config = {
        "connector.class": FILE_SINK,
        "topics": topic,
        "file": "/dev/null",
        "hostile": "<script>alert(3)</script>",
    }
    rest.create_connector(name, {**config, "value.converter": TEXT, "key.converter": TEXT})
    try:
        alerts: list[str] = []
        page.on("dialog", lambda dialog: alerts.append(dialog.message))
        page.goto(f"{serving.url}?q=onerror")
        page.get_by_text("<img src=x onerror=alert(1)>\\u202e").wait_for(timeout=20_000)
        page.get_by_role("link", name="onerror").click()
        page.get_by_text("<script>alert(3)</script>").wait_for(timeout=20_000)
        page.goto(f"{serving.url}topics/{topic}")
        assert "<script>alert(2)</script>\\x1b[31m\\u202e" in page.inner_text("table")
        assert "<b>key</b>" in page.inner_text("table")
        assert page.locator("main script, main img").count() == 0
        assert alerts == []
    finally:
        rest.delete_connector(name)


@pytest.mark.parametrize("path", ["", "positions", "groups", "topics", "runs", "doctor", "journal"])
def test_axe_finds_no_serious_fault_in_light_and_dark(page, serving, path):
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(serving.url + path)
        page.evaluate(AXE.read_text())
        found = page.evaluate("async () => (await axe.run()).violations.map(v => [v.impact, v.id, v.nodes[0].html])")
        assert [one for one in found if one[0] in ("serious", "critical")] == []


def test_a_phone_of_390_pixels_gets_cards_and_no_sideways_scrolling(page, serving, sink):
    page.set_viewport_size({"width": 390, "height": 800})
    for path in ("", f"pipelines/{sink[0]}", f"positions?owner={sink[0]}", "journal"):
        page.goto(serving.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.goto(serving.url)
    assert page.locator("table.cards tbody tr").first.evaluate("row => getComputedStyle(row).display") == "block"


def test_everything_but_the_live_updates_works_without_javascript(chrome, serving, lab, new_topic, settings_of, unique):
    group, topic = unique("billing"), new_topic()
    fill(settings_of, topic, 0, range(1, 11))
    committed(lab, group, {(topic, 0): 7})
    context = chrome.new_context(java_script_enabled=False)
    opened = context.new_page()
    log_in(opened, serving.url)
    assert opened.inner_text("h1") == "Pipelines"
    opened.goto(f"{serving.url}positions?owner=group:{group}")
    opened.locator("select[name=word]").select_option("latest")
    opened.get_by_role("button", name="Show the plan").click()
    opened.get_by_role("button", name="Carry out the plan").click()
    assert described(lab, group)[group, TopicPartition(topic, 0)] == 10
    context.close()


def test_a_broker_that_dies_is_named_and_what_was_seen_stays(chrome, make_lab, tmp_path):
    lab = make_lab(LabOptions(workers=0, postgres=False))
    server = Served(lab, tmp_path, "--timeout", "5s")
    opened = chrome.new_page()
    try:
        from playhead.kafka.properties import ClientSettings

        settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})
        from playhead.kafka.client import Admin
        from playhead.kafka.topics import create_topic

        with Admin(settings, Deadline(30)) as admin:
            create_topic(admin, "orders", 1, Deadline(30))
        fill(settings, "orders", 0, range(1, 11))
        committed(lab, "billing", {("orders", 0): 4})
        log_in(opened, server.url)
        opened.goto(f"{server.url}groups")
        opened.get_by_role("link", name="billing").wait_for(timeout=20_000)
        lab.kill("broker-1")
        opened.get_by_text("groups: no answer").wait_for(timeout=60_000)
        assert "billing" in opened.inner_text("table")
        assert "Shown is what was seen" in opened.inner_text("main")
        lab.start("broker-1")
        opened.get_by_text("groups: no answer").wait_for(state="detached", timeout=60_000)
    finally:
        opened.close()
        server.end()
