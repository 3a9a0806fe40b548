"""Topics to tables of PostgreSQL and SQLite, as the JDBC sink connectors of Confluent and Aiven write them, but exactly once.

Options are read without a database driver; only who opens the sink needs one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from playhead.pipeline.sinks.jdbc.address import ledger_url
from playhead.pipeline.sinks.jdbc.options import check_options

if TYPE_CHECKING:
    from playhead.pipeline.sinks import Sink

__all__ = ["check_options", "ledger_url", "open_jdbc_sink"]


def open_jdbc_sink(config: Mapping[str, str], worker: Mapping[str, str]) -> "Sink":
    from playhead.pipeline.sinks.jdbc.opening import open_jdbc_sink as opened

    return opened(config, worker)
