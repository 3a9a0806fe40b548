"""The sinks by their connector class: whose options they have, how they are opened, where their ledger must be."""

from collections.abc import Mapping

from playhead.errors import Fault
from playhead.pipeline import rejects
from playhead.pipeline.kinds import Kind
from playhead.pipeline.sinks import Sink
from playhead.pipeline.sinks.subscription import check_subscription

Config = Mapping[str, str]


def sink_faults(kind: Kind, config: Config, worker: Config) -> list[Fault]:
    """Everything that is wrong with the config, as far as the config alone can tell."""
    if kind is Kind.FILES_SINK:
        from playhead.pipeline.sinks.files.opening import check_options
    elif kind is Kind.JDBC_SINK:
        from playhead.pipeline.sinks.jdbc import check_options
    else:
        from playhead.pipeline.sinks.file import check_options
    return [*check_subscription(config), *check_options(config, worker), *rejects.check_options(config, worker)]


def open_sink(kind: Kind, config: Config, worker: Config) -> Sink:
    if kind is Kind.FILES_SINK:
        from playhead.pipeline.sinks.files.sink import open_files_sink

        return open_files_sink(config, worker)
    if kind is Kind.JDBC_SINK:
        from playhead.pipeline.sinks.jdbc import open_jdbc_sink

        return open_jdbc_sink(config, worker)
    from playhead.pipeline.sinks.file import open_file_sink

    return open_file_sink(config, worker)


def target_ledger_url(kind: Kind, config: Config) -> str | None:
    """Of a sink whose rows and ranges are one transaction: its own database. None: the ledger of the run."""
    if kind is not Kind.JDBC_SINK:
        return None
    from playhead.pipeline.sinks.jdbc import ledger_url

    return ledger_url(config)


def is_for_one_machine(kind: Kind, config: Config) -> bool:
    """Whether its target is a file of this machine."""
    if kind is Kind.FILES_SINK:
        return config.get("store.url", "").startswith("file:")
    if kind is Kind.JDBC_SINK:
        return config.get("connection.url", "").strip().lower().startswith("jdbc:sqlite:")
    return True
