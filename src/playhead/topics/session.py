"""One connection to the cluster of a context, for everything that is asked or done about topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playhead.config import Context
from playhead.kafka.client import Admin
from playhead.kafka.properties import client_settings
from playhead.model import Deadline


@dataclass(frozen=True, slots=True)
class Session:
    """`notes`: what the settings of the client have to say."""

    admin: Admin
    context: Context
    deadline: Deadline
    notes: tuple[str, ...] = ()


@contextmanager
def open_session(context: Context, deadline: Deadline) -> Iterator[Session]:
    settings = client_settings(context)
    with Admin(settings, deadline) as admin:
        yield Session(admin, context, deadline, settings.notes)
