"""What the worker file says about the connectors that would run on that worker.

It has the offsets topic, the group.id at the start of the transactional ids, whether the workers run exactly once, and the client
settings of their connectors. Spark keeps a source's position where those workers would. Nothing here is guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from playhead.config import Context, Setting
from playhead.config.references import declared_providers, resolve
from playhead.connect.keys import transactional_id
from playhead.connect.rest import open_rest
from playhead.errors import Invalid, NotFound, Refused, Unreachable
from playhead.kafka.client import describe_cluster
from playhead.kafka.properties import ClientSettings, client_settings, translate
from playhead.model import ConnectorSpec, Deadline
from playhead.offsets.workers import Worker, worker_of
from playhead.pipeline.classes import ConnectorKind, get_kind
from playhead.stores.config_topic import read_fencing_counts

CATALOG_RELEASE = "10.9.4"


@dataclass(frozen=True, slots=True)
class ConnectHome:
    """`group_id` and the name of a connector give the transactional ids that Connect's own tasks would use."""

    settings: ClientSettings
    cluster_id: str
    group_id: str
    topic: str
    exactly_once: bool
    worker: Worker
    fencing: Mapping[str, int]

    def transactional_id(self, connector: str, number: int) -> str:
        return transactional_id(self.group_id, connector, number)

    def producer_settings(self, config: Mapping[str, str]) -> ClientSettings:
        """The settings of a connector's producers: `producer.` of the worker file, then the connector's own overrides."""
        return laid_over(self.settings, PRODUCER, side_properties(PRODUCER, self.worker, config))


def find_worker(context: Context) -> Worker:
    """The worker file, which says where positions are kept. Sends no request over the network."""
    worker = worker_of(context)
    if worker is None:
        raise Invalid(
            "no worker properties file is given, so it is unknown where positions are kept",
            "give --worker-config worker.properties, or worker-config in the context",
        )
    if not worker.get("offset.storage.topic") or not worker.get("group.id"):
        raise Invalid(
            "the worker file names no offset.storage.topic and group.id",
            "Spark keeps positions where distributed workers do: give the file of a distributed worker",
        )
    return worker


def find_home(context: Context, deadline: Deadline) -> ConnectHome:
    worker = find_worker(context)
    settings = client_settings(context)
    configs = worker.get("config.storage.topic")
    return ConnectHome(
        settings,
        describe_cluster(settings, deadline).id,
        worker["group.id"],
        worker["offset.storage.topic"],
        worker.is_exactly_once,
        worker,
        read_fencing_counts(settings, configs, deadline) if configs else {},
    )


def finds_with_catalog(context: Context, connector_class: str, deadline: Deadline) -> bool | None:
    """Whether the plugin installed on the workers searches for `db.schema.table`; only one release of Confluent's does. None:
    unknown."""
    if not context.connect_urls:
        return None
    try:
        with open_rest(context, deadline.share()) as rest:
            versions = [plugin.version for plugin in rest.list_plugins() if plugin.class_ == connector_class]
    except Unreachable:
        return None
    if not versions:
        return None
    return connector_class.startswith("io.confluent.") and versions[0] == CATALOG_RELEASE


def check_not_in_connect(context: Context, spec: ConnectorSpec, home: ConnectHome, deadline: Deadline) -> None:
    """Refuses a connector that a Connect worker runs: one of the two engines would be fenced at its next commit.

    If no worker answers, fencing keeps the two engines apart. It does not fence tasks of workers without exactly-once support.
    """
    kind = get_kind(spec.connector_class)
    try:
        if not context.connect_urls:
            raise Unreachable("no Connect worker is named")
        with open_rest(context, deadline.share()) as rest:
            status = rest.find_status(spec.name)
            tasks = len(rest.list_tasks(spec.name)) if status else 0
    except NotFound:
        return
    except Unreachable as error:
        # A sink's tasks are kept out of its group, and no worker runs a class of Python.
        if home.exactly_once or kind.is_sink or kind is ConnectorKind.PYTHON_SOURCE:
            return
        raise Refused(
            f"whether a worker without exactly-once support runs {spec.name} is unknown: {error.what}",
            "name a worker with --connect, or use --force if you know that none runs it",
        ) from None
    if status is not None and (status.connector.state != "STOPPED" or tasks):
        # Tasks of a sink are not fenced: they are members of its group, and a run does not join a group with members.
        otherwise = "" if kind.is_sink else ", or --force to fence its tasks"
        raise Refused(
            f"{spec.name} is {status.connector.state} in Connect with {tasks} task(s)",
            f"playhead connectors stop {spec.name} --execute{otherwise}",
        )


PRODUCER, CONSUMER = "producer.", "consumer."


def side_properties(side: str, worker: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    """The properties of the side PRODUCER or CONSUMER, under Java's names. The config's references are resolved already; the
    worker's are resolved here, by the providers that the worker file declares."""
    override, providers = f"{side}override.", declared_providers(worker)
    named = {key.removeprefix(side): resolve(value, providers) for key, value in worker.items() if key.startswith(side)}
    return named | {key.removeprefix(override): value for key, value in config.items() if key.startswith(override)}


def laid_over(settings: ClientSettings, side: str, properties: Mapping[str, str]) -> ClientSettings:
    """The settings with these properties added; a property replaces a setting of the same name."""
    translated = translate({key: Setting(value, side + key) for key, value in properties.items()})
    return replace(
        settings,
        common={**settings.common, **translated.common},
        producer={**settings.producer, **translated.producer},
        consumer={**settings.consumer, **translated.consumer},
    )
