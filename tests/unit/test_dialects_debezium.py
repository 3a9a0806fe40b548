"""The Debezium dialects and MongoDB's own: markers of snapshots, log positions in the words of each database."""

import pytest

from playhead.connect.dialects.debezium_mysql import parse_gtids
from playhead.connect.dialects.debezium_oracle import parse_commit_scn
from playhead.model import Map
from unit.dialect_checks import dialect, fatal, warned

PG = {"lsn": 0x16C5338, "lsn_proc": 0x16C5338, "lsn_commit": 0x16C50E0, "txId": 571, "ts_usec": 1650000000000000}


def test_an_lsn_is_set_in_the_words_of_postgresql_and_takes_its_companions_along():
    postgres = dialect("PostgresConnector")
    current = Map({**PG, "messageType": "INSERT", "lsn_events_processed": 3})
    completed = postgres.parse_fields({"lsn": "0/16B3748"}, current)
    lsn = 0x16B3748
    assert completed.offset == Map({**PG, "lsn": lsn, "lsn_proc": lsn, "lsn_commit": lsn})
    assert [note.split(" ")[0] for note in completed.notes] == ["lsn_proc", "messageType", "the"]
    kept = postgres.parse_fields({"lsn": "0/16B3748", "lsn_commit": "0/16B3700"}, current)
    assert kept.offset["lsn_commit"] == 0x16B3700
    assert postgres.parse_fields({"txId": "5"}, current).notes == ()
    assert fatal(postgres, {"server": "s"}, completed.offset.to_dict()) == []


def test_a_postgresql_position_is_readable():
    words = dialect("PostgresConnector").readable(Map({"server": "shop"}), Map(PG))
    assert words == "shop: LSN 0/16C5338, last commit 0/16C50E0, txId 571, 2022-04-15 05:20:00.000Z"


@pytest.mark.parametrize(
    ("a", "b", "sign"),
    [
        ({"lsn": 5}, {"lsn": 6}, -1),
        ({"lsn": 9, "lsn_proc": 9, "lsn_commit": 5}, {"lsn": 7, "lsn_proc": 7, "lsn_commit": 8}, -1),
        ({"lsn": 9, "lsn_proc": 9, "lsn_commit": 5}, {"lsn": 7, "lsn_proc": 7, "lsn_commit": 5}, 1),
        ({"lsn": 5}, {"lsn": 4, "lsn_proc": 4, "lsn_commit": 9}, 1),
        ({"lsn": -1}, {"lsn": 5}, 1),  # the upper half of the log, as a signed Long
        ({"lsn": "5"}, {"lsn": 5}, None),
        ({}, {"lsn": 5}, None),
    ],
)
def test_postgresql_positions_are_ordered_by_commit_then_place(a, b, sign):
    assert dialect("PostgresConnector").compare(Map(a), Map(b)) == sign


@pytest.mark.parametrize(
    ("offset", "is_fatal"),
    [
        ({"snapshot": "INITIAL", "snapshot_completed": False}, False),
        ({"snapshot": True}, False),
        ({"snapshot": "true", "snapshot_completed": "true"}, False),
        ({"snapshot": "INCREMENTAL"}, False),
        ({"snapshot": False}, False),
        ({"snapshot": "initial"}, True),
        ({"snapshot": "LAST"}, True),
        ({"snapshot": 1}, True),
        ({"snapshot_completed": 1}, True),
        ({"transaction_data_collection_order_public.orders": 5}, False),
        ({"transaction_data_collection_order_public.orders": "5"}, True),
        ({"transaction_id": 5}, True),
    ],
)
def test_markers_of_a_snapshot_are_checked_for_every_debezium_connector(offset, is_fatal):
    for name, place in (
        ("PostgresConnector", {"lsn": 5, "ts_usec": 5}),
        ("MySqlConnector", {"file": "b.1"}),
        ("OracleConnector", {"scn": "5"}),
        ("SqlServerConnector", {"commit_lsn": "NULL"}),
    ):
        partition = {"server": "s", "database": "d"} if name.startswith("SqlServer") else {"server": "s"}
        assert bool(fatal(dialect(name), partition, {**place, **offset})) is is_fatal, name


def test_a_snapshot_under_way_is_said_to_begin_again():
    said = warned(dialect("MySqlConnector"), {"server": "s"}, {"file": "b.1", "snapshot": "INITIAL"})
    assert any("takes it again" in each for each in said)
    done = {"file": "b.1", "snapshot": "INITIAL", "snapshot_completed": True}
    assert warned(dialect("MySqlConnector"), {"server": "s"}, done) == []


def test_postgresql_wants_longs():
    postgres = dialect("PostgresConnector")
    assert fatal(postgres, {"server": "s"}, {**PG, "lsn": 5.0}) == ["$.offset.lsn"]
    assert fatal(postgres, {"server": "s"}, {**PG, "ts_usec": "5"}) == ["$.offset.ts_usec"]
    assert fatal(postgres, {"server": "s"}, PG) == []
    assert len(warned(postgres, {"server": "s"}, {"txId": 5})) == 2  # no lsn, no ts_usec


BINLOG = Map({"file": "mysql-bin.000003", "pos": 154, "row": 1, "event": 3, "server_id": 223344, "ts_sec": 1650000000})


def test_moving_in_the_binary_log_forgets_what_counted_inside_the_old_transaction():
    mysql = dialect("MySqlConnector")
    moved = mysql.parse_fields({"pos": "1062699299"}, BINLOG)
    assert moved.offset == Map(
        {"file": "mysql-bin.000003", "pos": 1062699299, "server_id": 223344, "ts_sec": 1650000000}
    )
    assert moved.notes == ("event and row removed: they count what to skip at the previous position",)
    other_file = mysql.parse_fields({"file": "mysql-bin.000004"}, BINLOG)
    assert (other_file.offset["file"], other_file.offset["pos"]) == ("mysql-bin.000004", 4)
    kept = mysql.parse_fields({"pos": "500", "row": "2", "event": "1"}, BINLOG)
    assert (kept.offset["row"], kept.offset["event"]) == (2, 1)
    untouched = mysql.parse_fields({"ts_sec": "2022-04-15T05:20:00Z"}, BINLOG)
    assert untouched == (BINLOG, ())


def test_gtids_that_stay_are_said_to_decide():
    moved = dialect("MySqlConnector").parse_fields({"pos": "500"}, BINLOG.merged({"gtids": f"{UUID}:1-5"}))
    assert any("gtids is not changed" in note for note in moved.notes)


def test_binlog_fields_are_checked_as_the_connector_reads_them():
    mysql = dialect("MySqlConnector")
    assert fatal(mysql, {"server": "s"}, {"pos": 5}) == ["$.offset.file"]
    assert fatal(mysql, {"server": "s"}, {"file": "b.1", "pos": -1}) == ["$.offset.pos"]
    assert fatal(mysql, {"server": "s"}, {"file": "b.1", "pos": "x"}) == ["$.offset.pos"]
    assert fatal(mysql, {"server": "s"}, {"file": "b.1", "pos": "true"}) == ["$.offset.pos"]
    assert fatal(mysql, {"server": "s"}, {"file": "b.1", "pos": "154"}) == []  # it converts text
    assert "writes a whole number" in warned(mysql, {"server": "s"}, {"file": "b.1", "pos": "154"})[0]
    assert "GTID" in warned(mysql, {"server": "s"}, {"file": "b.1", "gtids": "nonsense"})[0]
    assert mysql.readable(Map({"server": "shop"}), Map({"file": "b.000003", "pos": 154, "ts_sec": 1650000000})) == (
        "shop: b.000003:154, 2022-04-15 05:20:00.000Z"
    )


UUID, OTHER = "3E11FA47-71CA-11E1-9E33-C80AA9429562", "4E11FA47-71CA-11E1-9E33-C80AA9429562"


@pytest.mark.parametrize(
    ("a", "b", "sign"),
    [
        ({"file": "b.000009", "pos": 900}, {"file": "b.000010", "pos": 4}, -1),
        ({"file": "b.000009", "pos": 900}, {"file": "b.000009", "pos": 90}, 1),
        ({"file": "b.9", "pos": 9, "event": 1}, {"file": "b.9", "pos": 9, "event": 2}, -1),
        ({"file": "b.9", "pos": 9, "event": 2, "row": 1}, {"file": "b.9", "pos": 9, "event": 2}, 1),
        ({"file": "b.9", "pos": 9}, {"file": "other.10", "pos": 9}, None),
        ({"file": "b.9", "gtids": f"{UUID}:1-5"}, {"file": "b.1", "gtids": f"{UUID}:1-9"}, -1),
        ({"file": "b.9", "gtids": f"{UUID}:1-5:7-9"}, {"file": "b.1", "gtids": f"{UUID}:1-9"}, -1),
        ({"file": "b.9", "gtids": f"{UUID}:1-9,{OTHER}:1"}, {"file": "b.1", "gtids": f"{UUID.lower()}:1-9"}, 1),
        ({"file": "b.9", "gtids": f"{UUID}:1-9"}, {"file": "b.1", "gtids": f"{OTHER}:1-9"}, None),
        ({"file": "b.9", "gtids": f"{UUID}:1-4:5-9"}, {"file": "b.8", "gtids": f"{UUID}:1-9"}, 1),
        ({"file": "b.9", "gtids": f"{UUID}:1-9"}, {"file": "b.8"}, None),
        ({"file": "b.9", "gtids": "0-1-100"}, {"file": "b.8", "gtids": "0-2-101"}, -1),
        ({"file": "b.9", "gtids": "0-1-100,1-1-5"}, {"file": "b.8", "gtids": "0-1-90,1-1-6"}, None),
    ],
)
def test_binlog_positions_are_ordered_by_gtids_or_by_place(a, b, sign):
    mysql = dialect("MySqlConnector")
    assert mysql.compare(Map(a), Map(b)) == sign
    assert mysql.compare(Map(b), Map(a)) == (None if sign is None else -sign)


def test_gtid_sets_are_read_in_the_forms_servers_print():
    assert parse_gtids(f"{UUID}:1-3:5,\n{OTHER}:1") == {UUID.lower(): [(1, 3), (5, 5)], OTHER.lower(): [(1, 1)]}
    assert parse_gtids(f"{UUID}:1-3:blue:4-5") == {UUID.lower(): [(1, 3)], f"{UUID.lower()}:blue": [(4, 5)]}
    assert parse_gtids("nonsense") is None and parse_gtids(UUID) is None


SQL = {"commit_lsn": "00000025:00000448:0003", "change_lsn": "00000025:00000448:0002", "event_serial_no": 2}
SQL_PARTITION = {"server": "s", "database": "d"}


def test_sql_server_log_sequence_numbers_stay_text():
    sql = dialect("SqlServerConnector")
    assert sql.parse_field("commit_lsn", "00000025:00000448:0003") == "00000025:00000448:0003"
    assert sql.parse_field("change_lsn", "NULL") == "NULL"
    assert fatal(sql, SQL_PARTITION, SQL) == []
    assert fatal(sql, {"server": "s"}, SQL) == []  # before version 2
    assert fatal(sql, SQL_PARTITION, {**SQL, "change_lsn": None}) == []
    assert fatal(sql, SQL_PARTITION, {**SQL, "commit_lsn": "25:448:3"}) == ["$.offset.commit_lsn"]
    assert fatal(sql, SQL_PARTITION, {**SQL, "event_serial_no": "2"}) == ["$.offset.event_serial_no"]


def test_another_transaction_of_sql_server_is_read_from_its_beginning():
    moved = dialect("SqlServerConnector").parse_fields({"commit_lsn": "00000025:00000450:0001"}, Map(SQL))
    assert moved.offset == Map({"commit_lsn": "00000025:00000450:0001", "change_lsn": "NULL", "event_serial_no": 0})
    assert len(moved.notes) == 1
    same = dialect("SqlServerConnector").parse_fields({"commit_lsn": str(SQL["commit_lsn"])}, Map(SQL))
    assert same == (Map(SQL), ())


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        ({"commit_lsn": "00000025:0000044A:0001"}, -1),
        ({"change_lsn": "00000025:00000447:0009"}, 1),
        ({"event_serial_no": 3}, -1),
        ({"change_lsn": "NULL"}, None),
        ({"commit_lsn": "25:0"}, None),
        ({}, 0),
    ],
)
def test_sql_server_positions_are_ordered(change, sign):
    assert dialect("SqlServerConnector").compare(Map(SQL), Map({**SQL, **change})) == sign


def test_system_change_numbers_stay_text_and_take_commits_along():
    oracle = dialect("OracleConnector")
    current = Map({"scn": "900", "commit_scn": "1000:1:0a001b00-0b,990:2:", "txId": "0a", "scn_idx": 4})
    moved = oracle.parse_fields({"scn": "500"}, current)
    assert moved.offset == Map({"scn": "500", "commit_scn": "500:1:,500:2:"})
    assert len(moved.notes) == 2
    assert fatal(oracle, {"server": "s"}, moved.offset.to_dict()) == []
    assert oracle.parse_field("scn", "18446744073709551616") == "18446744073709551616"


@pytest.mark.parametrize(
    ("offset", "is_fatal"),
    [
        ({"scn": "5", "commit_scn": "6:1:"}, False),
        ({"scn": 5, "commit_scn": 6}, False),  # as versions before 1.5 wrote it
        ({"scn": "5", "commit_scn": None}, False),
        ({"scn": "five"}, True),
        ({"scn": 5.0}, True),
        ({"scn": "5", "commit_scn": "6:1"}, True),
        ({"scn": "5", "commit_scn": "6:one:"}, True),
        ({"lcr_position": "00000000"}, False),
    ],
)
def test_system_change_numbers_are_checked(offset, is_fatal):
    assert bool(fatal(dialect("OracleConnector"), {"server": "s"}, offset)) is is_fatal


def test_an_scn_after_a_commit_is_a_warning():
    said = warned(dialect("OracleConnector"), {"server": "s"}, {"scn": "1000", "commit_scn": "1200:1:,900:2:"})
    assert said == ["$.offset.scn: is after commit_scn 900: what was committed between the two is not read"]
    assert parse_commit_scn("5:a:b:2") == {2: 5}


@pytest.mark.parametrize(
    ("a", "b", "sign"),
    [
        ({"scn": "99"}, {"scn": "100"}, -1),
        ({"scn": "99", "commit_scn": "200:1:"}, {"scn": "99", "commit_scn": "150:1:"}, 1),
        ({"scn": "99", "commit_scn": "200:1:"}, {"scn": "100", "commit_scn": "150:1:"}, None),
        ({"scn": "99", "commit_scn": "200:1:"}, {"scn": "99", "commit_scn": "200:2:"}, None),
        ({"lcr_position": "0a"}, {"lcr_position": "0B"}, -1),
        ({"lcr_position": "0a"}, {"scn": "5"}, None),
    ],
)
def test_oracle_positions_are_ordered(a, b, sign):
    assert dialect("OracleConnector").compare(Map(a), Map(b)) == sign


def test_a_resume_token_decides_and_has_no_order():
    mongo = dialect("MongoDbConnector")
    moved = mongo.parse_fields({"sec": "5"}, Map({"sec": 1, "ord": 1, "resume_token": "AAA="}))
    assert "resume_token is set" in moved.notes[0]
    assert mongo.compare(Map({"resume_token": "A"}), Map({"resume_token": "B"})) is None
    assert mongo.compare(Map({"sec": 1, "ord": 9}), Map({"sec": 2, "ord": 1})) == -1
    assert fatal(mongo, {"server_id": "s"}, {"sec": 1, "ord": 2.0}) == ["$.offset.ord"]
    own = dialect("MongoSourceConnector")
    assert own.compare(Map({"_id": '{"_data":"82"}'}), Map({"_id": '{"_data":"83"}'})) is None


def test_mongodbs_own_connector_wants_a_token_as_json_text():
    mongo, place = dialect("MongoSourceConnector"), {"ns": "mongodb://h/db.c"}
    assert fatal(mongo, place, {"_id": '{"_data":"8263"}', "HEARTBEAT": "true"}) == []
    assert fatal(mongo, place, {"_id": "8263"}) == ["$.offset._id"]
    assert fatal(mongo, place, {"_id": '{"_data":"8263"}', "copy": True}) == ["$.offset.copy"]
    assert fatal(mongo, place, {}) == ["$.offset._id"]
    assert mongo.readable(Map(place), Map({"_id": '{"_data":"8263"}', "copy": "true"})) == (
        "mongodb://h/db.c: resume token 8263, copying existing data"
    )


def test_vitess_and_spanner_are_known_as_far_as_their_maps_show():
    vitess, spanner = dialect("VitessConnector"), dialect("SpannerConnector")
    assert fatal(vitess, {"server": "s"}, {"vgtid": '[{"keyspace":"k"}]'}) == []
    assert fatal(vitess, {"server": "s"}, {"vgtid": "MySQL56/x"}) == ["$.offset.vgtid"]
    earlier, later = Map({"offset": "2022-11-29T05:59:55Z"}), Map({"offset": "2022-11-29T05:59:55.1Z"})
    assert spanner.compare(earlier, later) == -1
    assert spanner.compare(earlier, Map({"offset": "soon"})) is None
