"""Sinks that run on Spark: their positions in the ledger beside the logs, and their groups beside the ledger."""

from collections.abc import Iterator

from playhead.kafka.client import Admin
from playhead.kafka.groups import list_committed
from playhead.model import Deadline
from playhead.offsets.doctor.commands import Commands
from playhead.offsets.doctor.findings import Finding, Said
from playhead.offsets.doctor.positions import check_spots, spots_of
from playhead.offsets.published import find_fault
from playhead.offsets.workers import Connector
from playhead.stores.sink_ledger import SinkLedgerStore


def check_ledger(
    admin: Admin,
    store: SinkLedgerStore,
    connectors: dict[str, Connector],
    commands: Commands,
    deadline: Deadline,
) -> Iterator[Said]:
    """A run that finds its group elsewhere than the ledger says does not start: it cannot know who delivered what."""
    from playhead.offsets.to_ledger import find_group, read_sinks

    found = store.snapshot()
    yield from check_spots(admin, spots_of(found.entries, commands, groups=False), deadline)
    for sink in read_sinks(store, found.by_owner()):
        if sink.id is None or (sink.run and sink.run.is_running and not sink.run.is_silent):
            continue  # nothing was published yet, or its commits are on their way
        commits = list_committed(admin, find_group(admin, sink, connectors.get(sink.name), deadline), deadline)
        for tp, commit in sorted(commits.items()):
            if tp in sink.held and (fault := find_fault(commit, sink.held[tp], sink.id)):
                what = f"the group: {tp} {fault}. Its next run on Spark will not start"
                yield Finding(
                    "group-not-at-ledger", sink.name, what, commands.groups("reset", sink.name, "--to-ledger")
                )
