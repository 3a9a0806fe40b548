"""Chains of the JDBC sink beside the connector itself: the same records, the same options, the same tables.

Needs a folder with the plugin: PLAYHEAD_TEST_PLUGINS. The plugin is not part of the project: without it these tests are skipped.
The oracle is psql.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from contract.workers import ask
from integration.on_spark import OnSpark
from integration.sinks_on_the_lab import FIRST_MS, Headers
from integration.switching import open_pair_ledger
from playhead.errors import TimedOut
from playhead.lab import LabOptions
from playhead.model import ConnectorSpec, Deadline

PLUGINS = os.environ.get("PLAYHEAD_TEST_PLUGINS", "")  # read before the tests get an environment of their own
pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(560),
    pytest.mark.skipif(not PLUGINS, reason="PLAYHEAD_TEST_PLUGINS names no folder with a JDBC plugin"),
]
KINDS = "org.apache.kafka.connect.transforms."
JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
CONNECT = "org.apache.kafka.connect.data."


def field(named: str, kind: str, /, *, optional: bool = False, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": named, **more}


INNER = {"type": "struct", "fields": [field("x", "int32"), field("y", "string", optional=True)]}
ROW = [
    field("id", "int32"),
    field("name", "string", optional=True),
    field("amount", "double", optional=True),
    field("ms", "int64", optional=True),
    field("day", "int32", optional=True, name=f"{CONNECT}Date", version=1),
    field("at", "int64", optional=True, name=f"{CONNECT}Timestamp", version=1),
    field("price", "bytes", optional=True, name=f"{CONNECT}Decimal", version=1, parameters={"scale": "2"}),
    field("flag", "boolean", optional=True, default=True),
]
NESTED = [field("id", "int32"), {**INNER, "optional": True, "field": "in"}]


def envelope(fields: list[dict[str, Any]], payload: Mapping[str, Any]) -> bytes:
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()


def row(number: int, **more: Any) -> bytes:
    made = {"id": number, "name": f"n{number}", "amount": number + 0.5, "ms": 1_700_000_000_123 + number}
    made |= {"day": 19_000 + number, "at": 1_700_000_000_123, "price": "AfQ=", "flag": None}
    return envelope(ROW, made | more)


def key(number: int) -> bytes:
    return envelope([field("id", "int32")], {"id": number})


@dataclass(frozen=True)
class Sent:
    key: bytes | None
    value: bytes | None
    headers: tuple[str, ...] = ()


ROWS = [Sent(key(n), row(n), ("odd",) if n % 2 else ()) for n in range(1, 7)]
AGAIN = [Sent(key(2), row(2, name="other", amount=None)), Sent(key(9), row(9, at=None, day=None, price=None, ms=None))]
GONE = [Sent(key(1), None), Sent(key(77), None)]


def chain(*stages: tuple[str, Mapping[str, str]]) -> dict[str, str]:
    made = {"transforms": ",".join(f"s{at}" for at in range(len(stages)))}
    for at, (kind, options) in enumerate(stages):
        made |= {f"transforms.s{at}.type": KINDS + kind} | {f"transforms.s{at}.{k}": v for k, v in options.items()}
    return made


UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key"}
PREDICATES = {
    "predicates": "odd,gone",
    "predicates.odd.type": f"{KINDS}predicates.HasHeaderKey",
    "predicates.odd.name": "odd",
    "predicates.gone.type": f"{KINDS}predicates.RecordIsTombstone",
}
PLACES = {"topic.field": "of", "partition.field": "part", "offset.field": "off", "timestamp.field": "ts"}
CASES: dict[str, tuple[dict[str, str], list[Sent]]] = {
    "replaced": (
        chain(
            ("ReplaceField$Value", {"exclude": "flag,ms", "renames": "amount:total,name:who"}),
            ("Cast$Value", {"spec": "total:string,id:int64,day:string"}),
        ),
        ROWS + AGAIN,
    ),
    "times": (
        chain(
            ("TimestampConverter$Value", {"field": "ms", "target.type": "Timestamp"}),
            ("TimestampConverter$Value", {"field": "at", "target.type": "string", "format": "yyyy-MM-dd HH:mm:ss.SSS"}),
            ("TimestampConverter$Value", {"field": "day", "target.type": "unix"}),
        ),
        ROWS + AGAIN,
    ),
    "cast": (
        chain(("Cast$Value", {"spec": "id:float32,amount:int32,ms:boolean,flag:int8,price:string,name:string"})),
        ROWS + AGAIN,
    ),
    "placed": (
        chain(
            ("InsertField$Value", {**PLACES, "static.field": "s", "static.value": "v"}),
            ("MaskField$Value", {"fields": "name,amount,flag"}),
            ("SetSchemaMetadata$Value", {"schema.name": "n", "schema.version": "3"}),
        ),
        ROWS + AGAIN,
    ),
    "flat": (
        {"pk.mode": "record_value", "pk.fields": "id", "insert.mode": "upsert"}
        | chain(("Flatten$Value", {"delimiter": "_"})),
        [
            Sent(None, envelope(NESTED, {"id": 1, "in": {"x": 5, "y": "why"}})),
            Sent(None, envelope(NESTED, {"id": 2, "in": None})),
            Sent(None, envelope(NESTED, {"id": 1, "in": {"x": 6, "y": None}})),
        ],
    ),
    "keyed": (
        UPSERT
        | {"pk.fields": "who"}
        | chain(("ValueToKey", {"fields": "name"}), ("ExtractField$Key", {"field": "name"})),
        ROWS + AGAIN,
    ),
    "pairs": (UPSERT | chain(("ValueToKey", {"fields": "id,name"})), ROWS + AGAIN),
    "deleted": (
        UPSERT
        | {"pk.fields": "id", "delete.enabled": "true"}
        | chain(("InsertField$Value", {"static.field": "s", "static.value": "v"}), ("Cast$Key", {"spec": "id:int64"})),
        ROWS + AGAIN + GONE,
    ),
    "kept": (
        UPSERT
        | {"pk.fields": "id", "delete.enabled": "true"}
        | chain(("Filter", {"predicate": "gone"}), ("ReplaceField$Value", {"include": "id,name"}))
        | PREDICATES,
        ROWS + GONE,
    ),
    "routed": (
        {"pk.mode": "kafka"}
        | chain(
            ("RegexRouter", {"regex": "(.*)", "replacement": "$1_odd", "predicate": "odd"}),
            ("ReplaceField$Value", {"include": "id,name"}),
        )
        | PREDICATES,
        ROWS + AGAIN,
    ),
    "lines": (
        {"value.converter": STRING}
        | chain(("HoistField$Value", {"field": "line"}), ("InsertField$Value", {"offset.field": "off"})),
        [Sent(None, b"one"), Sent(None, "zw\u00f6lf".encode())],
    ),
    "failing": (
        {"errors.tolerance": "all"} | chain(("Cast$Value", {"spec": "name:int32"})),
        [Sent(None, row(n, name=name)) for n, name in enumerate(["7", "x", None, "-12", "99999999999"])],
    ),
    "hoisted": (
        UPSERT
        | {"pk.fields": "id", "key.converter": STRING}
        | chain(("HoistField$Key", {"field": "id"}), ("TimestampRouter", {"topic.format": "${topic}_${timestamp}"})),
        [Sent(b"a", row(1)), Sent(b"b", row(2)), Sent(b"a", row(3))],
    ),
}


def produce(servers: str, topic: str, records: Sequence[Sent]) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for at, one in enumerate(records):
        headers: Headers = [(name, b"") for name in one.headers]
        producer.produce(topic, one.value, one.key, 0, timestamp=FIRST_MS + at, headers=headers)
    assert producer.flush(30) == 0


@dataclass
class Tables:
    lab: Any

    def seen(self, side: str, case: str) -> dict[str, Any]:
        """Tables of one side: columns with their types, primary keys and rows, without the name of the side."""
        found = {}
        names = self.lab.psql(
            f"SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE '{side}\\_{case}%' ORDER BY 1"
        )
        for table in names.split():
            columns = self.lab.psql(
                "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute "
                f"WHERE attrelid = '\"{table}\"'::regclass AND attnum > 0 ORDER BY 1"
            ).splitlines()
            keys = self.lab.psql(
                f"SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = '\"{table}\"'::regclass AND contype = 'p'"
            ).strip()
            listed = ", ".join(f'"{one.split("|")[0]}"' for one in columns)
            rows = sorted(self.lab.psql(f'SELECT {listed} FROM "{table}"').splitlines())
            found[table.removeprefix(f"{side}_")] = (columns, keys, rows)
        return found

    def are(self, side: str, case: str, wanted: dict[str, Any]) -> bool:
        return self.seen(side, case) == wanted


def test_tables_behind_a_chain_are_those_of_the_connector(make_lab, spark, tmp_path):
    lab = make_lab(LabOptions(plugin_path=(PLUGINS,)))
    on_spark = OnSpark(lab, spark, open_pair_ledger(tmp_path))
    tables = Tables(lab)
    specs = []
    for case, (options, records) in CASES.items():
        on_spark.make_topic(case, 1)
        produce(lab.bootstrap_servers, case, records)
        config = {
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "topics": case,
            "connection.url": lab.jdbc_url,
            "auto.create": "true",
            "key.converter": JSON,
            "value.converter": JSON,
            **options,
        }
        real = {**config, "table.name.format": "real_${topic}"}
        code, body = ask(f"{lab.connect_urls[0]}/connectors", "POST", {"name": f"real_{case}", "config": real})
        assert code == 201, (case, body)
        specs.append(ConnectorSpec(f"ours_{case}", {**config, "table.name.format": "ours_${topic}"}))
    done = {one.name.removeprefix("ours_"): one for one in on_spark.run(*specs)}
    differences = []
    for case in CASES:
        ours = tables.seen("ours", case)
        try:
            Deadline(45).wait_for(partial(tables.are, "real", case, ours), "the connector")
        except TimedOut:
            status = ask(f"{lab.connect_urls[0]}/connectors/real_{case}/status")[1]
            differences.append(
                f"{case}: ours {ours} ({done[case].error})\n  real {tables.seen('real', case)}\n  {status}"
            )
        else:
            assert ours, case
    assert not differences, "\n".join(differences)
