"""Two folders of files, written by any program."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from playhead.errors import Invalid, PlayheadError
from playhead.pipeline.audit.compare import MOST, Cut, compare
from playhead.pipeline.audit.contents import key_of_fields, key_of_row
from playhead.pipeline.audit.folder import PARQUET, column_names, folder_side, kind_of, list_files, open_place
from playhead.pipeline.audit.judge import Rules, judge
from playhead.pipeline.audit.model import Pair
from playhead.pipeline.audit.pairs import SAME_DATA, of_digests, of_items, with_digests
from playhead.pipeline.spark import count_slots

KIND = "folders"


def audit_folders(  # noqa: PLR0913, PLR0917  the options of the command
    spark: Callable[[], SparkSession],
    source: str,
    target: str,
    key: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    level: int = 2,
    most: int = MOST,
    say: Callable[[str], None] = lambda _text: None,
) -> Pair:
    """`columns` None: all. Rows are matched by `key`, or by a column called id."""
    began = time.monotonic()
    places = [open_place(text) for text in (source, target)]
    if level == 0:
        raise Invalid("folders have no ledger: level 0 compares nothing", "use --level 1 or 2")
    try:
        files = [list_files(place) for place in places]
        both = list(zip(places, files, strict=True))
        kinds = {kind_of(file.name) for some in files for file in some}
        if None in kinds or len(kinds) > 1:
            raise Invalid(
                "the folders hold files of several kinds, or of a kind that is not known",
                "use one kind: .parquet, .json",
            )
        slots = count_slots(spark())
        of_path = frozenset(name for place, some in both for name in column_names(place, some))
        left, right = (folder_side(place, some, slots, columns=columns, of_path=of_path) for place, some in both)
        key_of = key_of_fields(key) if key else key_of_row
        found = compare(spark(), left, right, deep=level > 1, cut=Cut(most, key_of), say=say)
    except PlayheadError as error:
        what = f"{error.what}; {error.hint}" if error.hint else error.what
        return Pair(KIND, places[0].shown, places[1].shown, error=what, kind=KIND)
    pair = with_digests(Pair(KIND, places[0].shown, places[1].shown, kind=KIND), found)
    if found.differing is None:
        pair = of_digests(pair, () if kinds == {PARQUET} else [SAME_DATA])
    else:
        rules = Rules(key_of, is_json=kinds != {PARQUET})
        pair = of_items(pair, judge(found.differing, rules).items, found.more)
    return replace(pair, seconds=round(time.monotonic() - began, 3))
