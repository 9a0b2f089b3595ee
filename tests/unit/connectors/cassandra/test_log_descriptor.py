from __future__ import annotations

import json

import pytest

from connectors.cassandra.log.descriptor import (
    SegmentDamaged,
    encode_head,
    index_name,
    parse_name,
    read_head,
    segment_name,
)
from connectors.errors import Fatal
from tests.support.commitlog import SegmentWriter, descriptor, flipped

ID = 1_795_302_597_155
NAME = segment_name(7, ID)


def test_names() -> None:
    assert NAME == f"CommitLog-7-{ID}.log" == SegmentWriter(ID).name
    assert parse_name(NAME) == (7, ID, False)
    assert parse_name(index_name(8, ID)) == (8, ID, True)


@pytest.mark.parametrize(
    "name",
    [
        "CommitLog-7.log",
        "CommitLog-7-12.log.tmp",
        "CommitLog-7-12_cdc.idx2",
        "xCommitLog-7-12.log",
        "",
        "CommitLog-7-12.idx",
        "CommitLog-7--12.log",
        "commitlog-7-12.log",
        "CommitLog-7-12.log\n",
        "CommitLog-7-\u0661.log",
    ],
)
def test_other_names(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.parametrize("version", [7, 8, 9])
@pytest.mark.parametrize("log_id", [1, ID, (1 << 32) - 1, 1 << 32, (1 << 63) - 1])
def test_heads(version: int, log_id: int) -> None:
    data = descriptor(version, log_id, b"{}")
    head = read_head(data + b"\1\2\3", NAME, log_id)
    assert head is not None
    assert (head.version, head.log_id, head.compression, head.size) == (version, log_id, "", len(data))
    assert encode_head(version, log_id, b"{}") == data


@pytest.mark.parametrize("name", ["LZ4Compressor", "org.apache.cassandra.io.compress.LZ4Compressor"])
def test_a_compression_is_known_by_its_simple_name(name: str) -> None:
    text = json.dumps({"compressionClass": name, "compressionParameters": {"x": "1"}}).encode()
    head = read_head(descriptor(7, ID, text), NAME, ID)
    assert head is not None
    assert head.compression == "LZ4Compressor"


def test_a_head_that_is_not_there_yet() -> None:
    data = descriptor(7, ID, b'{"compressionClass": "LZ4Compressor"}')
    for cut in range(len(data)):
        assert read_head(data[:cut], NAME, ID) is None
    assert read_head(bytes(1000), NAME, ID) is None


def test_every_damaged_byte_of_a_head_is_noticed() -> None:
    data = descriptor(7, ID, b'{"compressionClass": "LZ4Compressor"}')
    for at in range(len(data)):
        for mask in (1, 0x80):
            damaged = flipped(data, at, mask)
            # A longer one looks unfinished.
            if int.from_bytes(damaged[12:14], "big") > len(data) - 18:
                assert read_head(damaged, NAME, ID) is None
            else:
                with pytest.raises(SegmentDamaged, match="checksum"):
                    read_head(damaged, NAME, ID)


def test_the_head_of_another_segment() -> None:
    with pytest.raises(SegmentDamaged, match=f"id {ID + 1}, the file's name {ID}"):
        read_head(descriptor(7, ID + 1, b"{}"), NAME, ID)


@pytest.mark.parametrize("version", [5, 6, 10])
def test_other_versions_are_refused_by_name(version: int) -> None:
    with pytest.raises(Fatal, match=f"{NAME} has version {version} .*7, 8, 9"):
        read_head(descriptor(version, ID, b"{}"), NAME, ID)


def test_encryption_is_refused_by_name() -> None:
    text = json.dumps({"encCipher": "AES/CBC/PKCS5Padding", "encKeyAlias": "testing:1", "encIV": "00"}).encode()
    with pytest.raises(Fatal, match=f"{NAME} is encrypted.*transparent_data_encryption_options in cassandra.yaml"):
        read_head(descriptor(7, ID, text), NAME, ID)


@pytest.mark.parametrize("text", [b"[1]", b"{", b"\xff"])
def test_parameters_that_are_no_object(text: bytes) -> None:
    with pytest.raises(SegmentDamaged, match="no JSON object"):
        read_head(descriptor(7, ID, text), NAME, ID)
