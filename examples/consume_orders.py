"""Writes orders from a topic as invoices to a database, exactly once.

    playhead lab up                                   # a local Kafka; it becomes the current context
    python examples/consume_orders.py sqlite:///invoices.db

An order is JSON: {"id": 17, "customer": "ann", "cents": 4200}. Other records go to the table `rejects` with topic, partition and
offset, so that one bad record does not stop the others. You can stop it with Ctrl-C or SIGTERM, kill it, or start a second
instance: every order is invoiced once.
"""

import argparse
import json
import signal
import sys
from collections.abc import Sequence

import playhead
from playhead.consumer import Record
from playhead.errors import Fenced, PlayheadError

Row = dict[str, str | int]

TABLES = (
    "create table if not exists invoices (order_id bigint, customer text, cents bigint)",
    "create table if not exists rejects (topic text, part int, position bigint, reason text)",
)
INVOICE = "insert into invoices (order_id, customer, cents) values (:id, :customer, :cents)"
REJECT = "insert into rejects (topic, part, position, reason) values (:topic, :part, :position, :reason)"


def order_of(value: bytes | None) -> Row:
    order = json.loads(value or b"null")
    return {"id": int(order["id"]), "customer": str(order["customer"]), "cents": int(order["cents"])}


def sorted_out(records: Sequence[Record]) -> tuple[list[Row], list[Row]]:
    invoices: list[Row] = []
    rejects: list[Row] = []
    for record in records:
        try:
            invoices.append(order_of(record.value))
        except (ValueError, KeyError, TypeError) as error:
            where: Row = {"topic": record.topic, "part": record.partition, "position": record.offset}
            rejects.append({**where, "reason": f"{type(error).__name__}: {error}"})
    return invoices, rejects


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes orders as invoices, exactly once.")
    parser.add_argument("store", help="sqlite:///invoices.db or postgresql://user@host/database")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--bootstrap-server", help="without it: the current context of playhead")
    parser.add_argument("--stop-when-idle", type=float, metavar="SECONDS")
    wanted = parser.parse_args()
    with playhead.consume(
        [wanted.topic],
        wanted.group,
        wanted.store,
        bootstrap_servers=wanted.bootstrap_server,
        stop_when_idle=wanted.stop_when_idle,
        publish=True,  # so that kafka-consumer-groups.sh shows the lag
    ) as batches:
        signal.signal(signal.SIGTERM, lambda *_: batches.stop())
        for batch in batches:
            invoices, rejects = sorted_out(batch.records)
            try:
                with batch.transaction() as tx:
                    for table in TABLES:
                        tx.execute(table)
                    tx.execute(INVOICE, invoices)
                    tx.execute(REJECT, rejects)
            except Fenced as error:
                sys.stderr.write(
                    f"not committed: {error.what}\n"
                )  # the next batch starts at the other consumer's position
            else:
                sys.stdout.write(f"{len(invoices)} invoices, {len(rejects)} rejects: {batch.ranges!r}\n")


if __name__ == "__main__":
    try:
        main()
    except PlayheadError as error:
        sys.exit(f"error: {error.what}" + (f"\n  {error.hint}" if error.hint else ""))
    except KeyboardInterrupt:
        sys.exit(130)
