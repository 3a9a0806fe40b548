"""One connection to the cluster of a context, for all operations on topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playhead.config import Context
from playhead.kafka.client import Admin
from playhead.kafka.properties import client_settings
from playhead.model import Deadline


@dataclass(frozen=True, slots=True)
class Session:
    """`notes`: notes about the client settings."""

    admin: Admin
    context: Context
    deadline: Deadline
    notes: tuple[str, ...] = ()


@contextmanager
def open_session(context: Context, deadline: Deadline) -> Iterator[Session]:
    settings = client_settings(context)
    with Admin(settings, deadline) as admin:
        yield Session(admin, context, deadline, settings.notes)
