"""An application for the tests: every record becomes a row, in the transaction that moves its offset.

It says what happens on stdout. `hold`: before the commit of this batch (counted from 1), "inside" or "before" its transaction,
it says `holding` and waits for a line on stdin.
"""

import json
import random
import signal
import sys
import time
from typing import Any

import playhead
from playhead.errors import Fenced


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def hold() -> None:
    say("holding")
    sys.stdin.readline()


def main(topic: str, group: str, store: str, table: str, bootstrap: str, **options: Any) -> None:
    holding = options.get("hold")
    at = options.get("hold_at", 1)
    insert = f"insert into {table} values (:topic, :partition, :start, :value)"
    with playhead.consume(
        [topic],
        group,
        store,
        bootstrap_servers=bootstrap,
        settings=options["settings"],
        max_records=options.get("max_records", 20),
        on_assigned=lambda _, places: say(f"assigned {sorted(p.partition for p in places)}"),
        on_revoked=lambda _, places: say(f"revoked {sorted(p.partition for p in places)}"),
        on_lost=lambda _, places: say(f"lost {sorted(p.partition for p in places)}"),
    ) as batches:
        signal.signal(signal.SIGTERM, lambda *_: batches.stop())
        for number, batch in enumerate(batches, 1):
            if (number, holding) == (at, "before"):
                hold()
            rows = [
                {"topic": r.topic, "partition": r.partition, "start": r.offset, "value": (r.value or b"").decode()}
                for r in batch.records
            ]
            try:
                with batch.transaction() as tx:
                    tx.execute(insert, rows)
                    time.sleep(random.uniform(0, options.get("work", 0)))
                    if (number, holding) == (at, "inside"):
                        hold()
            except Fenced as error:
                say(f"fenced: {error.what}")
            else:
                say(f"committed {len(rows)}")


if __name__ == "__main__":
    try:
        main(**json.loads(sys.argv[1]))
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)
