"""How far a change to fewer partitions is: one JSON file per topic, beside the offset map, replaced whole at every stage."""

from enum import StrEnum
from pathlib import Path

import msgspec

from playhead.config import Context
from playhead.errors import Invalid
from playhead.files import replace_file
from playhead.pipeline.copy.offset_map import map_folder, short_name


class Stage(StrEnum):
    """What is done. From SWITCHING on connectors are stopped; MOVED: positions and configs are those of the new topic, and
    connectors are not yet started again. ABORTING: it goes back, from any of them."""

    STARTED = "started"
    CREATED = "created"
    VERIFIED = "verified"
    SWITCHING = "switching"
    MOVED = "moved"
    SWITCHED = "switched"
    FINISHED = "finished"
    ABORTING = "aborting"


AFTER_SWITCH = frozenset({Stage.MOVED, Stage.SWITCHED})


class MovedConnector(msgspec.Struct, frozen=True):
    """`state`: before it was stopped. `before`, `after`: of the keys of its config that change; None: not there."""

    name: str
    type: str
    state: str
    before: dict[str, str | None]
    after: dict[str, str | None]


class Record(msgspec.Struct, frozen=True):
    """`settings`: of the new topic, as they are when all is finished; None: the broker's default. `starts`: of the source, before
    the first record was copied. `verified_*`: up to there both topics were compared. `source_ends`: up to there the old topic is
    copied, once everyone was moved. `edits`: ids of the journal, of the positions that were moved. `repeats`: by owner of a
    position, how many records it reads again."""

    topic: str
    target: str
    partitions: int
    source_id: str
    stage: Stage = Stage.STARTED
    target_id: str = ""
    settings: dict[str, str | None] = {}
    starts: dict[int, int] = {}
    verified_source: dict[int, int] = {}
    verified_target: dict[int, int] = {}
    is_merged: bool = False
    connectors: list[MovedConnector] = []
    edits: list[str] = []
    source_ends: dict[int, int] = {}
    repeats: dict[str, int] = {}
    version: int = 1


def record_path(context: Context, folder: Path | None, cluster: str, topic: str) -> Path:
    return map_folder(context, folder, cluster, topic, "").parent / f"{short_name(topic)}.shrink.json"


def find_record(path: Path) -> Record | None:
    """The last record of this topic, finished or not."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise Invalid(f"{path} cannot be read: {error}") from None


def list_records(folder: Path) -> list[Record]:
    """Of all topics of a cluster."""
    found = map(find_record, sorted(folder.glob("*.shrink.json")))
    return [one for one in found if one is not None]


def save_record(path: Path, record: Record) -> Record:
    replace_file(path, msgspec.json.format(msgspec.json.encode(record)))
    return record
