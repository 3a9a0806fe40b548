"""Groups that are not consumer groups: share groups, streams groups, Connect's workers and others.

librdkafka describes a share or streams group as dead, like a group that does not exist. A commit could then be tried where it has
no meaning. The type is therefore read with the second client. If that is not possible, librdkafka's old listing still shows that
such a group exists; its type is then "share or streams".
"""

import warnings

from playhead.errors import PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.faults import translated
from playhead.kafka.groups import CONSUMER_TYPES, GroupListing, list_groups
from playhead.kafka.second_client import ask
from playhead.kafka.topics import seconds
from playhead.model import Deadline

UNTOLD = "share or streams"


def list_other_groups(admin: Admin, deadline: Deadline) -> list[GroupListing]:
    """Every group that the calls for consumer groups do not return, with its type: share, streams, connect, ..."""
    try:
        found = _listed_with_type(admin, deadline.share())
    except PlayheadError:
        found = _listed_without_type(admin, deadline)
    return sorted((group for group in found if group.type not in CONSUMER_TYPES), key=lambda group: group.name)


def _listed_with_type(admin: Admin, deadline: Deadline) -> list[GroupListing]:
    """Every group that the brokers report. Brokers before 3.8 report no types: their groups are all classic."""
    listed = ask(admin, "listing groups", lambda client: client.list_groups(), deadline)
    groups = []
    for one in listed:
        kind, protocol = (one.get("group_type") or "classic").lower(), one["protocol_type"]
        is_consumer = kind in CONSUMER_TYPES and protocol in ("", "consumer")
        shown = kind if is_consumer or kind != "classic" else protocol
        groups.append(GroupListing(one["group_id"], shown, (one.get("group_state") or "unknown").lower()))
    return groups


def _listed_without_type(admin: Admin, deadline: Deadline) -> list[GroupListing]:
    """All groups of the old call, without the consumer groups. It returns the protocol of classic groups only."""
    consumer_groups = {group.name for group in list_groups(admin, deadline)}
    with translated("listing groups"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the new call omits these groups
        found = admin.raw.list_groups(timeout=seconds(deadline))
    others = {str(group.id): group.protocol_type for group in found if group.id not in consumer_groups}
    return [GroupListing(name, protocol or UNTOLD, "unknown") for name, protocol in others.items()]
