"""The lab's S3 server as pyarrow sees it: objects in one and in many parts, killed, stopped and started again."""

import os

import pytest
from pyarrow import fs

from playhead.errors import Invalid, NotFound
from playhead.lab import Lab

PART = 5 * 1024 * 1024  # the least that S3 takes for a part that is not the last


def store_of(lab: Lab, credential: str = "") -> fs.S3FileSystem:
    return fs.S3FileSystem(
        endpoint_override=lab.s3_url,
        access_key=lab.s3_identity,
        secret_key=credential or lab.s3_credential,
        region="us-east-1",
        connect_timeout=2,
        request_timeout=5,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )


def names(store: fs.S3FileSystem, bucket: str) -> list[str]:
    found = store.get_file_info(fs.FileSelector(bucket, recursive=True))
    return sorted(info.path for info in found if info.type == fs.FileType.File)


def put(store: fs.S3FileSystem, path: str, data: bytes) -> None:
    with store.open_output_stream(path) as stream:
        stream.write(data)


def test_an_object_in_many_parts_comes_back_whole(s3_lab):
    s3_lab.make_bucket("many-parts")
    store = store_of(s3_lab)
    data = os.urandom(3 * PART + 17)
    put(store, "many-parts/topics/t/partition=0/t+0+0000000000.json", data)
    put(store, "many-parts/small", b"one part")
    with store.open_input_stream("many-parts/topics/t/partition=0/t+0+0000000000.json") as stream:
        assert stream.read() == data
    assert names(store, "many-parts") == ["many-parts/small", "many-parts/topics/t/partition=0/t+0+0000000000.json"]
    put(store, "many-parts/small", b"written again")
    with store.open_input_stream("many-parts/small") as stream:
        assert stream.read() == b"written again"


def test_a_killed_server_comes_back_with_what_was_completed_and_nothing_else(s3_lab):
    s3_lab.make_bucket("killed")
    store, url = store_of(s3_lab), s3_lab.s3_url
    put(store, "killed/whole", b"there")
    stream = store.open_output_stream("killed/torn")
    stream.write(os.urandom(3 * PART))
    stream.flush()
    s3_lab.kill("s3")
    with pytest.raises(OSError, match="killed"):
        stream.close()
    with pytest.raises(OSError, match="whole"):
        put(store, "killed/whole", b"lost")
    s3_lab.start("s3")
    assert s3_lab.s3_url == url
    assert names(store, "killed") == ["killed/whole"]
    put(store, "killed/torn", b"now whole")
    assert names(store, "killed") == ["killed/torn", "killed/whole"]
    with store.open_input_stream("killed/whole") as stored:
        assert stored.read() == b"there"


def test_objects_outlive_down_and_up_at_the_same_address(s3_lab):
    s3_lab.make_bucket("stays")
    put(store_of(s3_lab), "stays/a", b"1")
    url = s3_lab.s3_url
    s3_lab.down()
    s3_lab.up()
    assert s3_lab.s3_url == url
    assert names(store_of(s3_lab), "stays") == ["stays/a"]


def test_a_wrong_key_and_a_lab_without_s3_are_turned_away(s3_lab, lab):
    s3_lab.make_bucket("locked")
    with pytest.raises(OSError, match=r"ACCESS_DENIED|SIGNATURE|Forbidden|403"):
        put(store_of(s3_lab, credential="guessed"), "locked/a", b"1")
    with pytest.raises(NotFound, match="'s3' does not exist"):
        _ = lab.s3_url
    with pytest.raises(Invalid, match="name of a bucket"):
        s3_lab.make_bucket("../up")
