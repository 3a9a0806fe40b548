"""Long runs: many kills, many random histories. `make soak` runs them."""

import random
import subprocess
import sys
import time

import pytest
from confluent_kafka import Producer

from playhead.kafka.client import Admin
from playhead.kafka.log import capture, read_records
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic
from playhead.lab import Lab, LabOptions
from playhead.model import Deadline

pytestmark = pytest.mark.soak


@pytest.mark.timeout(1800)
def test_a_starter_killed_at_any_moment_leaves_a_lab_that_up_completes_and_down_ends(tmp_path):
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    lab = Lab(tmp_path / "lab")
    program = (
        "from pathlib import Path; from playhead.lab import Lab, LabOptions\n"
        f"Lab(Path({str(lab.folder)!r})).up(LabOptions())"
    )
    for round_ in range(12):
        starter = subprocess.Popen([sys.executable, "-c", program])
        try:
            starter.wait(timeout=chance.uniform(0.2, 14))
        except subprocess.TimeoutExpired:
            starter.kill()
            starter.wait()
        for part in lab.status():
            if part.pid and chance.random() < 0.3:
                lab.kill(part.name)
        if round_ % 2:
            lab.up()
            assert {part.state for part in lab.status()} == {"up"}, f"seed {seed}, round {round_}"
        lab.down()
        assert {part.state for part in lab.status()} <= {"down"}, f"seed {seed}, round {round_}"


@pytest.mark.timeout(1800)
def test_random_histories_of_transactions_read_as_kafkas_own_consumer_reads_them(make_lab):
    """Commits, aborts, open ends and plain records in random order over several partitions."""
    lab = make_lab(LabOptions(workers=0, postgres=False))
    settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})
    for round_ in range(25):
        seed = random.randrange(10**6)
        chance = random.Random(seed)
        deadline = Deadline(120)
        topic = f"history-{round_}-{seed}"
        with Admin(settings, deadline) as admin:
            create_topic(admin, topic, 3, deadline)
        producers = []
        for number in range(3):
            producer = Producer(
                {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": f"{topic}-{number}", "linger.ms": 0}
            )
            producer.init_transactions(30)
            producers.append(producer)
        for step in range(chance.randrange(5, 40)):
            producer = chance.choice(producers)
            producer.begin_transaction()
            for _ in range(chance.randrange(1, 6)):
                producer.produce(topic, f"{step}", partition=chance.randrange(3))
            producer.flush(30)
            producer.commit_transaction(30) if chance.random() < 0.6 else producer.abort_transaction(30)
        if chance.random() < 0.5:
            producers[0].begin_transaction()
            producers[0].produce(topic, "open", partition=0)
            producers[0].flush(30)
        with Admin(settings, deadline) as admin:
            captured = capture(admin, topic, deadline)
            ours = sorted((record.value or b"").decode() for record in read_records(admin, captured, deadline))
        shown = lab.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *["--bootstrap-server", lab.bootstrap_servers, "--topic", topic, "--from-beginning"],
            *["--isolation-level", "read_committed", "--timeout-ms", "3000"],
        )
        assert ours == sorted(shown.split()), f"seed {seed}"
    lab.down()


@pytest.mark.timeout(1800)
def test_a_broker_killed_again_and_again_loses_no_acknowledged_record(make_lab):
    lab = make_lab(LabOptions(workers=0, postgres=False))
    settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})
    with Admin(settings, Deadline(30)) as admin:
        create_topic(admin, "numbers", 1, Deadline(30))
    acknowledged: set[bytes] = set()

    def on_delivery(error, message):
        if error is None:
            acknowledged.add(message.value())

    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "enable.idempotence": True})
    number = 0
    for _ in range(8):
        until = time.monotonic() + random.uniform(0.5, 2)
        while time.monotonic() < until:
            producer.produce("numbers", b"%d" % number, on_delivery=on_delivery)
            producer.poll(0.001)
            number += 1
        lab.kill("broker-1")
        lab.up()
    assert producer.flush(60) == 0
    with Admin(settings, Deadline(60)) as admin:
        read = [r.value for r in read_records(admin, capture(admin, "numbers", Deadline(60)), Deadline(60))]
    assert len(read) == len(set(read)) == number > 1000
    assert acknowledged <= set(read)
    lab.down()
