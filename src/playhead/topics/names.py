"""Resolves words to topics, and finds the topics that belong to Kafka or Connect itself.

A word is an exact name, or a pattern like `shop-*`. Kafka's own topics start with two underscores. Those of a Connect cluster are
known only from its worker file, because they may have any name.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from playhead.config import Context, read_properties
from playhead.errors import Invalid, NotFound
from playhead.kafka.topics import list_topics
from playhead.topics.session import Session

_PATTERN = frozenset("*?[")
_OF_CONNECT = {
    "offset.storage.topic": "the offsets topic of the Connect cluster",
    "config.storage.topic": "the config topic of the Connect cluster",
    "status.storage.topic": "the status topic of the Connect cluster",
}


def list_topic_names(session: Session) -> list[str]:
    return list_topics(session.admin, session.deadline)


def find_topics(known: Sequence[str], words: Sequence[str]) -> list[str]:
    """The matching topics, each once. A name that does not exist, or a pattern without a match, is `NotFound`.

    A pattern skips Kafka's own topics unless it starts with an underscore itself.
    """
    found: dict[str, None] = {}
    for word in words:
        if not word:
            raise Invalid("a topic needs a name")
        if word in known:
            found[word] = None
        elif _PATTERN & set(word):
            matching = [name for name in known if fnmatchcase(name, word) and (word[0] == "_" or not is_kafkas(name))]
            if not matching:
                raise NotFound("topic like", word, known)
            found |= dict.fromkeys(matching)
        else:
            raise NotFound("topic", word, known)
    return list(found)


def is_kafkas(name: str) -> bool:
    return name.startswith("__")


def topics_of_connect(context: Context) -> dict[str, str]:
    """Topic -> what the Connect cluster of the context's worker file stores in it. Empty without such a file."""
    path = context.path("worker-config")
    if path is None:
        return {}
    properties = {entry.key: entry.value.strip() for entry in read_properties(path)}
    return {properties[key]: what for key, what in _OF_CONNECT.items() if properties.get(key)}


def why_internal(name: str, of_connect: Mapping[str, str]) -> str | None:
    """Why users should not change this topic; None for all others."""
    if is_kafkas(name):
        return "a topic of Kafka itself"
    return of_connect.get(name)
