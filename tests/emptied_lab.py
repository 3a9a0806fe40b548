"""The shared lab, emptied after each file of tests: two files may use the same names, and no file pays for what another left."""

from collections.abc import Iterable

from kafka_jvm import KAFKA_JVM
from playhead.connect.rest import Rest
from playhead.errors import NotFound, PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.groups import delete_groups, list_groups
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import delete_topic, list_topics
from playhead.kafka.transactions import PlainProducer
from playhead.lab import Lab
from playhead.model import Deadline

OFFSETS = "connect-offsets"
WORKER_GROUP = "lab"


def empty(lab: Lab) -> None:
    """Connectors, groups, topics, positions, tables and databases go; roles stay."""
    deadline = Deadline(60)
    settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})
    with Rest(lab.connect_urls, deadline) as rest:
        for name in rest.list_connectors():
            rest.delete_connector(name)
    with Admin(settings, deadline) as admin:
        _delete_groups(admin, (found.name for found in list_groups(admin, deadline)), deadline)
        for topic in list_topics(admin, deadline):
            if not topic.startswith(("__", "connect-")):
                _delete_topic(admin, topic, deadline)
    _forget_positions(lab, settings, deadline)
    _drop_tables(lab)


def _delete_groups(admin: Admin, names: Iterable[str], deadline: Deadline) -> None:
    for name in names:
        if name != WORKER_GROUP:
            try:
                delete_groups(admin, [name], deadline)
            except PlayheadError:
                continue  # a member that was killed has not timed out yet; no other test uses its group


def _delete_topic(admin: Admin, topic: str, deadline: Deadline) -> None:
    try:
        delete_topic(admin, topic, deadline)
    except NotFound:
        return  # a test deleted it a moment ago


def _forget_positions(lab: Lab, settings: ClientSettings, deadline: Deadline) -> None:
    newest = {(one.partition, one.key): one.value for one in KAFKA_JVM.read(lab.bootstrap_servers, OFFSETS)}
    with PlainProducer(settings, deadline) as producer:
        for (partition, key), value in newest.items():
            if value is not None and key is not None:
                producer.produce(OFFSETS, key, None, partition=partition)


def _drop_tables(lab: Lab) -> None:
    others = "datname NOT IN (current_database(), 'postgres') AND NOT datistemplate"
    names = lab.psql(f"SELECT datname FROM pg_database WHERE {others}")
    for name in names.splitlines():
        lab.psql(f'DROP DATABASE "{name}" WITH (FORCE)')
    schemas = lab.psql("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'")
    for name in schemas.splitlines():
        lab.psql(f'DROP SCHEMA "{name}" CASCADE')
    lab.psql("CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC")
