"""Which new connector of the files is a running one under another name.

Connect stores positions under the name: a connector whose name was changed in its file is a new one, which starts over beside the
old one. It is recognised if the old one is in no file, has the same class, and reads and writes the same.
"""

from collections.abc import Mapping

from playhead.connectors.plan.model import normalised

_IDENTITY = (
    "file", "connection.url", "connection.uri", "database.hostname", "database.dbname", "database.names", "database.include.list",
    "topic.prefix", "table.whitelist", "table.include.list", "tables", "query", "topic", "topics", "topics.regex",
    "s3.bucket.name",
)  # fmt: skip


def find_renames(new: Mapping[str, Mapping[str, str]], unnamed: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """New name -> the only connector that is in no file, has the same class and reads and writes the same."""
    pairs = [(one, old) for one in new for old in unnamed if is_same_pipeline(new[one], unnamed[old])]
    news, olds = [one for one, _ in pairs], [old for _, old in pairs]
    return {one: old for one, old in pairs if news.count(one) == 1 and olds.count(old) == 1}


def is_same_pipeline(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    left, right = ({key: value.strip() for key, value in normalised(config).items()} for config in (one, other))
    if not left.get("connector.class") or left.get("connector.class") != right.get("connector.class"):
        return False
    places = [(left.get(key), right.get(key)) for key in _IDENTITY]
    return left == right or (all(a == b for a, b in places) and any(a for a, _ in places))
