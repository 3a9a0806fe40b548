"""`playhead offsets doctor`: stored positions that would surprise somebody, each with the command that mends it.

Nothing is written. The offsets topic is read once (twice where transactions were used) and all checks look at that. What a store
cannot show is said, never taken for health: through REST nobody sees orphans, twins and keys in the wrong place.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from playhead.connect.javafile import CorruptFile, decode_file
from playhead.connect.rest import open_rest
from playhead.errors import Invalid, PlayheadError, Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings, client_settings
from playhead.model import Map
from playhead.offsets.doctor.applies import Offsets, check_applies
from playhead.offsets.doctor.case import Case, Kept, TopicReading, keep, read_topic
from playhead.offsets.doctor.commands import Commands
from playhead.offsets.doctor.files import check_corrupt
from playhead.offsets.doctor.findings import Diagnosis, Finding, Said
from playhead.offsets.doctor.keys import check_foreign, check_keys
from playhead.offsets.doctor.positions import check_sinks, check_spots, spots_of
from playhead.offsets.doctor.topics import check_emptiness, check_policies, check_recreated, internal_topics
from playhead.offsets.doctor.transactions import check_aborted, check_transactions
from playhead.offsets.doctor.values import check_values
from playhead.offsets.journal import Entry, Journal
from playhead.offsets.select import Selection, select_store
from playhead.offsets.workers import Connector, list_configured, worker_of
from playhead.stores import Snapshot, Store
from playhead.stores.connect_rest import ConnectRest
from playhead.stores.groups import GroupsStore
from playhead.stores.offsets_topic import OffsetsTopic
from playhead.stores.opening import open_store
from playhead.stores.standalone_file import StandaloneFile

__all__ = ["Diagnosis", "Finding", "diagnose"]
