"""The pages in a real browser, on the lab. Kafka's own tools say what became of a position."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from browser import browser
from integration.groups import described, fill
from playhead.connect.rest import Rest
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
        every = [] if "--interval" in words else ["--interval", "500ms"]
        asked = ["--allow-writes", "--token-file", str(tokens), "-b", lab.bootstrap_servers, *named, *every, *words]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "playhead", "serve", "--listen", "127.0.0.1:0", *asked],
            stderr=subprocess.PIPE,
            text=True,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("PLAYHEAD_")},
                **{name: str(folder / name) for name in ("PLAYHEAD_JOURNAL", "XDG_CONFIG_HOME", "XDG_STATE_HOME")},
            },
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"https?://[^ ]+/", line)
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
    opened = chrome.new_page(viewport={"width": 390, "height": 800})
    log_in(opened, serving.url, "a-wrong-token-0123456789")
    assert "this token is not known" in opened.inner_text("main")
    assert axe_faults(opened) == []
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    log_in(opened, serving.url)
    assert opened.inner_text("h1") == "Pipelines"
    opened.close()


def test_a_position_is_moved_with_plan_apply_and_undo(page, serving, lab, sink, rest):
    name, topic, out = sink
    group, place = f"connect-{name}", TopicPartition(topic, 0)
    page.goto(f"{serving.url}positions?owner={name}")
    assert f"{name} is running" in page.inner_text("main")
    page.locator("input[name=value]").fill("-3")
    page.get_by_label("stop it first").check()
    page.get_by_role("button", name="Show the plan").click()
    assert "Nothing is changed yet" in page.inner_text("main")
    assert described(lab, group)[group, place] == 5
    assert f"--shift-by -3 --topic {topic}:0 --stop" in page.inner_text("pre")
    page.get_by_role("button", name="Carry out the plan").click()
    assert "changed" in page.inner_text("#plan table")
    assert f"{name} was running: resumed" in page.inner_text("main")
    Deadline(30).wait_for(lambda: out.read_text().splitlines().count("record 4") == 2, "the sink reading again")
    assert out.read_text().splitlines() == [f"record {n}" for n in (0, 1, 2, 3, 4, 2, 3, 4)]
    page.goto(f"{serving.url}journal")
    assert "anna@" in page.inner_text("table")
    rest.stop(name)
    Deadline(30).wait_for(lambda: states_of(lab, name) == ("STOPPED", []), "the sink stopping")
    Deadline(30).wait_for(lambda: described(lab, group)[group, place] == 5, "its last commit")
    page.goto(f"{serving.url}positions?owner={name}")
    page.locator("input[name=value]").fill("-2")
    for button, at in (
        ("Show the plan", 5),
        ("Carry out the plan", 3),
        ("Plan the undo", 3),
        ("Carry out the plan", 5),
    ):
        page.get_by_role("button", name=button).click()
        page.locator("#plan").wait_for()
        assert described(lab, group)[group, place] == at, button
    assert states_of(lab, name) == ("STOPPED", [])


def test_a_shift_of_a_busy_sink_counts_from_where_it_stops(page, serving, lab, sink):
    """It reads twenty records between the plan and its second button."""
    name, topic, out = sink
    group, place = f"connect-{name}", TopicPartition(topic, 0)
    page.goto(f"{serving.url}positions?owner={name}")
    page.locator("input[name=value]").fill("-3")
    page.get_by_label("stop it first").check()
    page.get_by_role("button", name="Show the plan").click()
    assert "The shift counts from where the owner stops" in page.inner_text("#plan")
    producer = make_producer_of(lab)
    for number in range(5, 25):
        producer.produce(topic, f"record {number}")
    assert producer.flush(20) == 0
    Deadline(60).wait_for(lambda: described(lab, group)[group, place] == 25, "the sink reading on", every=1)
    page.get_by_role("button", name="Carry out the plan").click()
    assert "changed" in page.inner_text("#plan table")
    Deadline(30).wait_for(lambda: out.read_text().splitlines().count("record 24") == 2, "the sink reading again")
    assert out.read_text().splitlines() == [f"record {n}" for n in (*range(25), 22, 23, 24)]


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
    page.get_by_text("carried out").wait_for()
    at = {place: offset for (_, place), offset in described(lab, group).items()}
    assert at == {TopicPartition(first, 0): 0, TopicPartition(first, 1): 8, TopicPartition(second, 0): 0}
    page.get_by_role("button", name="Plan the undo").click()
    page.get_by_role("button", name="Carry out the plan").click()
    page.get_by_text("carried out").wait_for()
    at = {place: offset for (_, place), offset in described(lab, group).items()}
    assert at == {TopicPartition(first, 0): 7, TopicPartition(first, 1): 8, TopicPartition(second, 0): 9}


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_every_way_to_move_a_group_ends_where_kafkas_own_tool_says(page, serving, lab, new_topic, settings_of, unique):
    group, other, topic = unique("billing"), unique("copy"), new_topic(2)
    for partition in (0, 1):
        fill(settings_of, topic, partition, range(1, 11))
    committed(lab, group, {(topic, 0): 7, (topic, 1): 8})

    def move(word: str, value: str = "", *, text: str = "", without: int | None = None, new: str = "") -> None:
        page.goto(f"{serving.url}positions?owner=group:{group}")
        page.locator("select[name=word]").select_option(word)
        page.locator("input[name=value]").fill(value)
        if without is not None:
            page.get_by_label(f"move {topic}-{without}").uncheck()
        if text:
            page.get_by_text("Offsets as a text").click()
            page.locator("textarea").fill(text)
        if new:
            page.get_by_label(f"new position of {topic}-0").fill(new)
        page.get_by_role("button", name="Show the plan").click()
        page.get_by_role("button", name="Carry out the plan").click()
        page.get_by_text("carried out").wait_for()

    def at(name: str) -> list[int | None]:
        found = described(lab, name)
        return [found.get((name, TopicPartition(topic, partition))) for partition in (0, 1)]

    for word, value, then in (("offset", "3", [3, 3]), ("shift_by", "2", [5, 5]), ("by_duration", "1h", [10, 10])):
        move(word, value)
        assert at(group) == then, word
    move("each", new="6", without=1)
    assert at(group) == [6, 10]
    move("file", text=f"{topic},0,4\n{topic},1,9\n")
    assert at(group) == [4, 9]
    move("copy", f"group:{other}")
    assert at(other) == [4, 9]
    move("forget", without=0)
    assert at(group) == [4, None]


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
    rest.put_config(name, config)
    row.locator(".pill.ok").wait_for(timeout=40_000)
    page.goto(f"{serving.url}pipelines/{name}")
    assert "FileStreamSinkConnector" in page.inner_text("main")


def states_of(lab: Lab, name: str) -> tuple[str, list[str]]:
    """As the worker itself says."""
    with urllib.request.urlopen(f"{lab.connect_urls[0]}/connectors/{name}/status") as answer:
        found = json.load(answer)
    return found["connector"]["state"], [task["state"] for task in found["tasks"]]


def test_a_connector_is_paused_resumed_restarted_and_stopped_by_its_buttons(page, serving, lab, sink):
    name, _topic, _out = sink

    def press(button: str) -> None:
        page.goto(f"{serving.url}pipelines/{name}")
        page.get_by_role("button", name=button, exact=True).click(timeout=20_000)
        before = states_of(lab, name)
        assert "Nothing is changed yet" in page.inner_text("main")
        page.get_by_role("button", name="Carry out the plan").click()
        page.get_by_text("carried out").wait_for(timeout=60_000)
        assert states_of(lab, name) != before or "estart" in button

    press("Pause")
    assert states_of(lab, name) == ("PAUSED", ["PAUSED"])
    page.get_by_role("button", name="Plan the undo: resume").click()
    page.get_by_role("button", name="Carry out the plan").click()
    page.get_by_text("carried out").wait_for(timeout=60_000)
    assert states_of(lab, name) == ("RUNNING", ["RUNNING"])
    page.goto(f"{serving.url}pipelines/{name}")
    page.locator(".pill.ok").first.wait_for(timeout=20_000)
    press("restart task 0")
    assert f"connectors restart {name} --task 0" in page.inner_text("pre")
    assert states_of(lab, name) == ("RUNNING", ["RUNNING"])
    press("Stop")
    assert states_of(lab, name) == ("STOPPED", [])
    page.goto(f"{serving.url}journal")
    rows = page.locator("tr", has_text=name).all_inner_texts()
    assert len(rows) == 4
    assert all("anna@" in row and "1 changed" in row for row in rows)


def test_a_connector_is_deleted_by_its_button_under_the_name_of_the_user(page, serving, lab, rest, sink):
    name, topic, _out = sink
    config = rest.get_config(name)
    page.goto(f"{serving.url}pipelines/{name}")
    page.get_by_role("button", name="Delete", exact=True).click(timeout=20_000)
    assert "Nothing is changed yet" in page.inner_text("main")
    assert name in names_of(lab)
    page.get_by_role("button", name="Carry out the plan").click()
    page.get_by_text("carried out").wait_for(timeout=60_000)
    assert name not in names_of(lab)
    assert described(lab, f"connect-{name}")[f"connect-{name}", TopicPartition(topic, 0)] == 5  # its offsets are kept
    page.goto(f"{serving.url}journal")
    assert "anna@" in page.locator("tr", has_text=name).first.inner_text()
    rest.create_connector(name, config)  # which the fixture deletes


def names_of(lab: Lab) -> list[str]:
    with urllib.request.urlopen(f"{lab.connect_urls[0]}/connectors") as answer:
        return list(json.load(answer))


def test_hostile_names_values_and_records_are_shown_as_text(page, serving, lab, rest, new_topic, unique, deadline):
    name, topic = unique("<img src=x onerror=alert(1)>\u202e"), new_topic()
    producer = make_producer_of(lab)
    producer.produce(topic, b"<script>alert(2)</script>\x1b[31m\xe2\x80\xae", key=b"<b>key</b>")
    assert producer.flush(20) == 0
    config = {
        "connector.class": FILE_SINK,
        "topics": topic,
        "file": "/dev/null",
        "hostile": "<script>alert(3)</script>\u202e\x1b[31m",
    }
    rest.create_connector(name, {**config, "value.converter": TEXT, "key.converter": TEXT})
    try:
        alerts: list[str] = []
        page.on("dialog", lambda dialog: alerts.append(dialog.message))
        page.goto(f"{serving.url}?q=onerror")
        page.get_by_text("<img src=x onerror=alert(1)>\\u202e").wait_for(timeout=20_000)
        page.get_by_role("link", name="onerror").click()
        page.get_by_text("<script>alert(3)</script>\\u202e\\x1b[31m", exact=True).wait_for(timeout=20_000)
        assert not {"\u202e", "\x1b"} & set(page.content())
        page.goto(f"{serving.url}topics/{topic}")
        assert "<script>alert(2)</script>\\x1b[31m\\u202e" in page.inner_text("table")
        assert "<b>key</b>" in page.inner_text("table")
        assert page.locator("main script, main img").count() == 0
        assert alerts == []
    finally:
        rest.delete_connector(name)


@pytest.mark.parametrize("path", ["", "positions", "groups", "topics", "runs", "doctor", "journal", "lab"])
def test_axe_finds_no_serious_fault_in_light_and_dark(page, serving, path):
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(serving.url + path)
        assert axe_faults(page) == []


def axe_faults(page) -> list[list[str]]:
    page.evaluate(AXE.read_text())
    found = page.evaluate("async () => (await axe.run()).violations.map(v => [v.impact, v.id, v.nodes[0].html])")
    return [one for one in found if one[0] in ("serious", "critical")]


def test_a_phone_of_390_pixels_gets_cards_and_no_sideways_scrolling(page, serving, sink):
    page.set_viewport_size({"width": 390, "height": 800})
    records = f"topics/{sink[1]}?form=json"
    for path in ("", f"pipelines/{sink[0]}", f"positions?owner={sink[0]}", "journal", "groups", "logout", records):
        page.goto(serving.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert axe_faults(page) == [], path
    page.goto(f"{serving.url}positions?owner={sink[0]}")
    page.locator("input[name=value]").fill("-1")
    page.get_by_role("button", name="Show the plan").click()
    page.locator("#plan").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert axe_faults(page) == []
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


SECRET = "a-literal-secret-of-the-shop"
LAKE = """\
connectors:
  lake_orders:
    engine: spark
    config:
      connector.class: io.confluent.connect.s3.S3SinkConnector
      topics: orders
      store.url: {folder}
      format.class: io.confluent.connect.s3.format.json.JsonFormat
      flush.size: 300
      key.converter: org.apache.kafka.connect.storage.StringConverter
      value.converter: org.apache.kafka.connect.json.JsonConverter
      value.converter.schemas.enable: false
"""


class Shop:
    """Pipelines of a shop: a source and sinks on Connect, a sink on Spark; one has failed, one is paused, two are behind."""

    def __init__(self, lab: Lab, rest, folder: Path) -> None:
        self.lab = lab
        self.rest = rest
        self.folder = folder
        self.ledger = f"sqlite:///{folder / 'ledger.db'}"
        self.file = folder / "lake.yaml"
        self.file.write_text(LAKE.format(folder=(folder / "lake").as_uri()))
        self.names = ("web_log", "orders_table", "audit_copy")

    def produce(self, each: int) -> None:
        producer = make_producer_of(self.lab)
        for number in range(each):
            for partition in range(4):
                producer.produce("orders", json.dumps({"id": number, "amount": number % 97}), partition=partition)
        assert producer.flush(30) == 0

    def open(self, deadline: Deadline) -> None:
        from playhead.kafka.client import Admin
        from playhead.kafka.properties import ClientSettings
        from playhead.kafka.topics import create_topic

        with Admin(ClientSettings({"bootstrap.servers": self.lab.bootstrap_servers}), deadline) as admin:
            create_topic(admin, "orders", 4, deadline)
        (self.folder / "access.log").write_text("GET /\n" * 400)
        text = {"key.converter": TEXT, "value.converter": TEXT, "tasks.max": "1"}
        source = "org.apache.kafka.connect.file.FileStreamSourceConnector"
        log = {"connector.class": source, "file": str(self.folder / "access.log"), "topic": "web_log", **text}
        self.rest.create_connector("web_log", log)
        for name in ("orders_table", "audit_copy"):
            out = str(self.folder / f"{name}.txt")
            config = {"connector.class": FILE_SINK, "topics": "orders", "file": out, "db.password": SECRET, **text}
            self.rest.create_connector(name, config)
        command = [sys.executable, "-m", "playhead", "run", str(self.file), "-b", self.lab.bootstrap_servers]
        command += ["--worker-config", str(self.lab.worker_config)]  # not that of the user who runs the test
        for each in (300, 600, 300, 300) if SHOTS else (1500,):  # several runs, so that a picture has a history
            self.produce(each)
            subprocess.run([*command, "--ledger", self.ledger], check=True, capture_output=True, timeout=200)
        sinks = ("orders_table", "audit_copy")
        deadline.wait_for(lambda: all(self.committed(name) == 6000 for name in sinks), "the sinks reading all")

    def committed(self, name: str) -> int:
        try:
            return sum(offset or 0 for offset in described(self.lab, f"connect-{name}").values())
        except Exception:  # noqa: BLE001  (Kafka's tool fails for a group that does not exist yet)
            return 0

    def fall_behind(self) -> None:
        self.rest.pause("audit_copy")
        broken = "/srv/missing/orders.txt"  # it is on a picture of the documents
        self.rest.put_config("orders_table", {**self.rest.get_config("orders_table"), "file": broken})
        self.produce(80)

    def close(self) -> None:
        for name in self.names:
            self.rest.delete_connector(name)


@pytest.fixture(scope="module")
def shop(chrome, make_lab):
    """On a lab of its own, so that the pictures of the documents show nothing else."""
    lab = make_lab(LabOptions(postgres=False))
    with tempfile.TemporaryDirectory(prefix="shop-") as name, Rest(lab.connect_urls, Deadline(500)) as rest:
        folder = Path(name)  # a short one: it is on a picture of the documents
        found = Shop(lab, rest, folder)
        words = ("--ledger", found.ledger, "-f", str(found.file), "--worker-config", str(lab.worker_config))
        found.open(Deadline(600 if SHOTS else 240))
        server = Served(lab, folder, "--interval", "1s", *words)
        found.fall_behind()
        yield found, server
        server.end()
        found.close()


@pytest.fixture
def at_shop(chrome, shop):
    found, server = shop
    context = chrome.new_context(viewport={"width": 1280, "height": 760})
    opened = context.new_page()
    log_in(opened, server.url)
    yield opened, server.url, found
    context.close()


def test_the_overview_of_a_shop_has_connect_and_spark_in_one_table(at_shop):
    page, url, _ = at_shop
    for name, text in (
        ("orders_table", "failed"),
        ("audit_copy", "paused"),
        ("lake_orders", "finished"),
        ("web_log", "running"),
    ):
        page.locator("tr", has_text=name).get_by_text(text).first.wait_for(timeout=40_000)
    page.locator("tr", has_text="lake_orders").get_by_text("320").first.wait_for(timeout=40_000)
    first = page.locator("tbody tr").first.inner_text()
    assert "orders_table" in first  # what is wrong comes first, with its sentence
    assert "missing/orders.txt" in first
    page.get_by_text("live", exact=True).wait_for(timeout=20_000)
    assert "1 broker · 1 worker" in " ".join(page.inner_text(".servers").split())
    page.goto(f"{url}?q=level:wrong")
    assert page.locator("tbody tr").count() == 1
    page.goto(url)
    page.locator("svg.spark polyline").nth(2).wait_for(state="attached", timeout=30_000)
    shot(page, "overview")


def test_a_sink_on_spark_shows_its_ranges_its_way_and_no_secret(at_shop):
    page, url, shop = at_shop
    page.goto(f"{url}pipelines/lake_orders")
    main = page.inner_text("main")
    assert "topic orders" in main
    assert "320 behind" in main
    assert f"{shop.file.name}:2" in main
    assert "As in its file." in main
    assert page.locator("svg.ledger").count() == 4
    assert page.locator("svg.ledger rect.committed").count() >= 4
    assert axe_faults(page) == []
    page.evaluate("window.scrollTo(0, 0)")
    shot(page, "pipeline")
    page.goto(f"{url}pipelines/orders_table")
    assert "db.password" in page.inner_text("main")
    assert SECRET not in page.content()


def test_a_range_is_opened_without_javascript(chrome, at_shop):
    _, url, shop = at_shop
    context = chrome.new_context(java_script_enabled=False)
    page = context.new_page()
    log_in(page, url)
    page.goto(f"{url}pipelines/lake_orders")
    page.locator("svg.ledger a").first.click()
    page.locator("#ranges table").wait_for()
    shown = page.inner_text("#ranges")
    name = re.findall(r"[\w+./:-]+\.json", shown)[0]
    assert list((shop.folder / "lake").rglob(name.rpartition("/")[2])), name  # the object that it names is there
    page.get_by_role("link", name="newest of all partitions").click()
    assert page.locator("#ranges table").count() == 0
    context.close()


def test_a_move_shows_what_is_what_will_be_and_what_was_done_on_one_page(at_shop):
    page, url, shop = at_shop
    page.goto(f"{url}positions?owner=audit_copy")
    page.locator("input[name=value]").fill("-1,200")
    page.get_by_label("stop it first").check()
    page.get_by_role("button", name="Show the plan").click()
    assert page.get_by_label("new position of orders-0").input_value() == "300"
    assert "1,200 offsets are read again" in page.inner_text("#plan")
    assert "--shift-by -1200 --topic orders:0,1,2,3 --stop" in page.inner_text("pre")
    assert axe_faults(page) == []
    page.set_viewport_size({"width": 1280, "height": 900})
    page.evaluate("window.scrollTo(0, 0)")
    shot(page, "positions")
    page.get_by_role("button", name="Carry out the plan").click()
    page.get_by_text("carried out").wait_for(timeout=60_000)
    assert shop.committed("audit_copy") == 4 * 300
    page.get_by_role("button", name="Plan the undo").click()
    page.get_by_role("button", name="Carry out the plan").click()
    page.get_by_text("carried out").wait_for(timeout=60_000)
    assert shop.committed("audit_copy") == 6000
    page.goto(f"{url}pipelines/audit_copy")
    assert page.locator("tr", has_text="moved 4 positions").count() == 2


def test_a_phone_reads_a_pipeline_and_a_plan_without_sideways_scrolling(at_shop):
    page, url, _ = at_shop
    page.set_viewport_size({"width": 390, "height": 800})
    for path in ("", "pipelines/lake_orders", "pipelines/orders_table", "positions?owner=audit_copy", "doctor", "lab"):
        page.goto(url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def carried_out(page, timeout=180_000):
    """The page follows a plan that goes on after its request."""
    page.locator("#plan .pill", has_text="carried out").first.wait_for(timeout=timeout)
    page.locator("#plan h1 .pill", has_text=re.compile("^carried out$")).wait_for(timeout=timeout)


def test_a_lost_object_is_replayed_from_the_page(at_shop):
    page, url, shop = at_shop
    lost = sorted((shop.folder / "lake").rglob("orders+*.json"))[1]
    content = lost.read_bytes()
    lost.unlink()
    page.goto(f"{url}pipelines/lake_orders")
    page.get_by_text("Replay a part").click()
    page.get_by_label("or an object").fill(lost.name)
    page.get_by_role("button", name="Show the plan").click()
    assert "rewrite" in page.inner_text("main")
    assert not lost.exists()
    page.get_by_role("button", name="Carry out the plan").click()
    carried_out(page)
    assert "generation 2" in page.inner_text("#plan tbody")
    assert lost.read_bytes() == content
    page.goto(f"{url}journal")
    assert "replay to its own place" in page.locator("tr", has_text="lake_orders").first.inner_text()
    assert page.locator("tr", has_text="lake_orders").first.inner_text().count("anna")


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_source_is_handed_over_to_spark_and_back_from_the_page(at_shop):
    page, url, shop = at_shop
    worker = shop.lab.connect_urls[0]

    def state() -> tuple[str, int]:
        with urllib.request.urlopen(f"{worker}/connectors/web_log/status") as answer:
            found = json.load(answer)
        return found["connector"]["state"], len(found["tasks"])

    page.goto(f"{url}pipelines/web_log")
    page.get_by_role("button", name="Hand over to Spark").click()
    assert "its config stays there" in page.inner_text(".steps")
    assert state() == ("RUNNING", 1)
    page.get_by_role("button", name="Carry out the plan").click()
    carried_out(page)
    assert state() == ("STOPPED", 0)
    assert "playhead run" in page.inner_text("#plan")
    page.get_by_role("button", name="Plan the undo").click()
    assert state() == ("STOPPED", 0)
    page.get_by_role("button", name="Carry out the plan").click()
    carried_out(page)
    assert state() == ("RUNNING", 1)
    page.goto(f"{url}journal")
    assert "anna" in page.locator("tr", has_text="handover to").first.inner_text()


def test_https_with_a_certificate_of_its_own(lab, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    files = ["-keyout", str(key), "-out", str(cert), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *words, *files], check=True, capture_output=True)
    server = Served(lab, tmp_path, "--cert", str(cert), "--key", str(key))
    try:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(cert))
        asked = urllib.request.Request(f"{server.url}api/v1/session", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(asked, context=trusted, timeout=20) as answer:
            assert json.load(answer)["name"] == "anna"
            assert answer.headers["strict-transport-security"]
        form = urllib.parse.urlencode({"secret": TOKEN}).encode()
        login = urllib.request.Request(f"{server.url}login", data=form)
        opener = urllib.request.build_opener(NoRedirect, urllib.request.HTTPSHandler(context=trusted))
        with pytest.raises(urllib.error.HTTPError) as done:
            opener.open(login, timeout=20)
        assert done.value.code == 303
        assert "Secure" in done.value.headers["set-cookie"]
        done.value.close()
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(server.url, timeout=20)
        port = int(server.url.rstrip("/").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 10) as plain:  # no answer without TLS
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200" not in plain.recv(100)
    finally:
        server.end()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_worker_or_a_broker_that_dies_is_named_and_what_was_seen_stays(chrome, make_lab, tmp_path):
    lab = make_lab(LabOptions(postgres=False))
    server = Served(lab, tmp_path, "--timeout", "5s", "--interval", "1s")
    opened = chrome.new_page()

    def dies_and_is_back(path: str, shown: str, server_name: str) -> None:
        opened.goto(f"{server.url}{path}")
        opened.get_by_role("link", name=shown).first.wait_for(timeout=20_000)
        said = opened.get_by_text(f"{path or 'connectors'}: no answer")
        lab.kill(server_name)
        said.wait_for(timeout=60_000)
        assert shown in opened.inner_text("table")
        assert "Shown is what was seen" in opened.inner_text("main")
        opened.goto(server.url)
        opened.locator("tr", has_text="orders_copy").get_by_text("stale, seen").wait_for(timeout=90_000)
        opened.goto(f"{server.url}{path}")
        said.wait_for(timeout=60_000)
        lab.start(server_name)
        said.wait_for(state="detached", timeout=90_000)

    try:
        from playhead.kafka.client import Admin
        from playhead.kafka.properties import ClientSettings
        from playhead.kafka.topics import create_topic

        settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})
        with Admin(settings, Deadline(30)) as admin:
            create_topic(admin, "orders", 1, Deadline(30))
        fill(settings, "orders", 0, range(1, 11))
        committed(lab, "billing", {("orders", 0): 4})
        out = {"connector.class": FILE_SINK, "topics": "orders", "file": str(tmp_path / "out.txt"), "tasks.max": "1"}
        with Rest(lab.connect_urls, Deadline(60)) as rest:
            rest.create_connector("orders_copy", {**out, "key.converter": TEXT, "value.converter": TEXT})
        log_in(opened, server.url)
        dies_and_is_back("", "orders_copy", "worker-1")
        opened.locator("tr", has_text="orders_copy").get_by_text("running").wait_for(timeout=60_000)
        dies_and_is_back("groups", "billing", "broker-1")
        opened.goto(server.url)
        opened.locator("tr", has_text="orders_copy").get_by_text("stale, seen").wait_for(
            state="detached", timeout=60_000
        )
    finally:
        opened.close()
        server.end()
