"""Connector configurations as the workers keep them, read straight from their config topic: for when no worker is up.

Values of a configuration may be secrets in clear; what leaves here is for looking up single keys, never for showing.
"""

import msgspec

from playhead.errors import NotFound
from playhead.kafka.client import Admin
from playhead.kafka.log import capture, read_latest
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline

_PREFIX = b"connector-"


class _Properties(msgspec.Struct):
    properties: dict[str, str | None]


def read_connector_configs(
    settings: ClientSettings, topic: str, deadline: Deadline
) -> dict[str, dict[str, str | None]]:
    """Connector name -> its configuration. A cluster whose config topic is not there has no connectors."""
    with Admin(settings, deadline) as admin:
        try:
            captured = capture(admin, topic, deadline)
        except NotFound:
            return {}
        latest = read_latest(admin, captured, deadline)
    found = {}
    for record in latest.records:
        if record.key is not None and record.key.startswith(_PREFIX) and record.value is not None:
            try:
                properties = msgspec.json.decode(record.value, type=_Properties).properties
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # not a configuration: the workers skip it too
            found[record.key.removeprefix(_PREFIX).decode("utf-8", "replace")] = properties
    return found
