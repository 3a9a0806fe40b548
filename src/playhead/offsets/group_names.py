"""Which groups a word means: a name as it is, or a pattern like `billing-*` for every group it matches."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from playhead.errors import Invalid, NotFound, PlayheadError, Refused
from playhead.kafka.groups import list_groups
from playhead.stores.groups import GroupsStore

_PATTERN = frozenset("*?[")


def find_groups(store: GroupsStore, words: Sequence[str], *, must_exist: bool = False) -> list[str]:
    """A pattern that matches nothing is an error; a name that no group has is one only with `must_exist`."""
    if "" in words:
        raise Invalid("a group needs a name")
    if not must_exist and not any(_PATTERN & set(word) for word in words):
        return list(dict.fromkeys(words))
    known = list_group_names(store)
    found: dict[str, None] = {}
    for word in words:
        if word in known:
            found[word] = None
        elif _PATTERN & set(word):
            matching = [name for name in known if fnmatchcase(name, word)]
            if not matching:
                raise NotFound("group like", word, known)
            found |= dict.fromkeys(matching)
        elif must_exist:
            raise _absence(store, word, known)
        else:
            found[word] = None
    return list(found)


def _absence(store: GroupsStore, name: str, known: Sequence[str]) -> PlayheadError:
    from playhead.kafka.group_types import list_other_groups

    with store.session() as admin:
        others = {group.name: group.type for group in list_other_groups(admin, store.deadline)}
    if name in others:
        return Refused(f"{name} is a {others[name]} group, not a consumer group", "use the tool of that kind of group")
    return NotFound("group", name, known)


def list_group_names(store: GroupsStore) -> list[str]:
    with store.session() as admin:
        return [group.name for group in list_groups(admin, store.deadline)]
