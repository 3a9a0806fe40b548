"""Groups that are not consumer groups: share groups, streams groups, Connect's workers and others.

librdkafka describes a share or streams group as dead, like a group that does not exist. A commit could then be tried where it has
no meaning. We therefore read the type with a plain ListGroups request of our own. A broker that requires SASL or a client
certificate cannot be queried this way. librdkafka's old listing still shows that such a group exists; its type is then
"share or streams".
"""

import struct
import warnings
from collections.abc import Iterator

from playhead.kafka.client import Admin, Broker
from playhead.kafka.faults import translated
from playhead.kafka.groups import CONSUMER_TYPES, GroupListing, list_groups
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import seconds
from playhead.kafka.wire import ask, ask_brokers, connected
from playhead.model import Deadline

UNTOLD = "share or streams"
_LIST_GROUPS, _VERSION = 16, 5
_NO_FILTERS = b"\1\1"  # states and types: two empty arrays


def list_other_groups(admin: Admin, deadline: Deadline) -> list[GroupListing]:
    """Every group that the calls for consumer groups do not return, with its type: share, streams, connect, ..."""
    found = _listed_with_type(admin, deadline)
    if found is None:
        found = _listed_without_type(admin, deadline)
    return sorted((group for group in found if group.type not in CONSUMER_TYPES), key=lambda group: group.name)


def _listed_with_type(admin: Admin, deadline: Deadline) -> list[GroupListing] | None:
    """Every group that the brokers report; None if one of them cannot be queried."""
    found = ask_brokers(admin, deadline, _ask)
    return None if found is None else [group for groups in found.values() for group in groups]


def _ask(settings: ClientSettings, broker: Broker, patience: float) -> Iterator[GroupListing]:
    with connected(settings, broker.host, broker.port, patience) as connection:
        answer = ask(connection, _LIST_GROUPS, _VERSION, _NO_FILTERS)
    _throttle, error = struct.unpack(">ih", answer.take(6))
    if error:
        raise IndexError(f"the broker answered with error {error}")
    for _ in range(answer.varint() - 1):
        name, protocol, state, kind = (answer.text() for _ in range(4))
        answer.skip_tags()
        is_consumer = kind.lower() in CONSUMER_TYPES and protocol in ("", "consumer")
        yield GroupListing(name, kind.lower() if is_consumer or kind.lower() != "classic" else protocol, state.lower())


def _listed_without_type(admin: Admin, deadline: Deadline) -> list[GroupListing]:
    """All groups of the old call, without the consumer groups. It returns the protocol of classic groups only."""
    consumer_groups = {group.name for group in list_groups(admin, deadline)}
    with translated("listing groups"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the new call omits these groups
        found = admin.raw.list_groups(timeout=seconds(deadline))
    others = {str(group.id): group.protocol_type for group in found if group.id not in consumer_groups}
    return [GroupListing(name, protocol or UNTOLD, "unknown") for name, protocol in others.items()]
