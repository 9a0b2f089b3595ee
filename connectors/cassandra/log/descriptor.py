"""The head of a commit log segment, and the names of its files. Pure: no input or output happens here."""

from __future__ import annotations

import re
import struct
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from connectors.cassandra.model import LOG_VERSIONS
from connectors.errors import Fatal, Skippable

#: Bytes of a head without its JSON text.
FRAME: Final = 18

_NAME: Final = re.compile(r"CommitLog-(\d{1,9})-(\d{1,18})(\.log|_cdc\.idx)\Z", re.ASCII)
_HEAD: Final = struct.Struct(">IQH")
_WORD: Final = struct.Struct(">I")
_VERSIONS: Final = ", ".join(map(str, LOG_VERSIONS))
_ENCRYPTION: Final = ("encCipher", "encKeyAlias", "encIV")


class SegmentDamaged(Skippable):
    """Bytes of a segment are not what Cassandra can have written; the message says what is wrong, not where."""


class Descriptor(NamedTuple):
    """The contents of a segment's head.

    Attributes:
        version: of the format.
        log_id: number of the segment; the larger it is, the later the segment.
        compression: simple name of Cassandra's class that compressed the sections; empty: plain.
        size: of the head: the first sync marker is there.
    """

    version: int
    log_id: int
    compression: str
    size: int


def segment_name(version: int, log_id: int) -> str:
    """Name of a segment's file."""
    return f"CommitLog-{version}-{log_id}.log"


def index_name(version: int, log_id: int) -> str:
    """Name of the file that tells how far a segment was synced."""
    return f"CommitLog-{version}-{log_id}_cdc.idx"


def parse_name(name: str) -> tuple[int, int, bool] | None:
    """Version, id, and whether it is the index file; None for a file that is neither a segment nor an index."""
    match = _NAME.match(name)
    return (int(match[1]), int(match[2]), match[3] != ".log") if match else None


def encode_head(version: int, log_id: int, parameters: bytes) -> bytes:
    """A segment's head, with its checksum."""
    # The checksum takes the id's low word before its high one.
    check = crc32(struct.pack(">IIII", version, log_id & 0xFFFFFFFF, log_id >> 32, len(parameters)) + parameters)
    return _HEAD.pack(version, log_id, len(parameters)) + parameters + _WORD.pack(check)


def read_head(data: bytes, name: str, log_id: int) -> Descriptor | None:
    """The head of the segment whose file begins with ``data``; None: there is not enough of it yet.

    Args:
        data: the first bytes: at least 65,553, or the whole file where it is shorter.
        name: of the file, for messages.
        log_id: the id in the file's name.

    Raises:
        Fatal: an intact head of a kind that can't be read: another version, encryption, an unknown compression.
        SegmentDamaged: it is no head, or that of another segment.
    """
    if len(data) < FRAME or not any(data[:4]):
        return None
    version, head_id, length = _HEAD.unpack_from(data)
    size = FRAME + length
    if len(data) < size:
        return None
    parameters = data[_HEAD.size : size - 4]
    if encode_head(version, head_id, parameters)[-4:] != data[size - 4 : size]:
        raise SegmentDamaged("the checksum of the segment's head is wrong")
    if head_id != log_id:
        raise SegmentDamaged(f"the segment's head names the id {head_id}, the file's name {log_id}")
    if version not in LOG_VERSIONS:
        raise Fatal(
            f"{name} has version {version} of the commit log's format; what can be read is {_VERSIONS}, that is "
            f"Cassandra 4.0 and later (version 6 is written by 3.0 and 3.11: upgrade that node first)"
        )
    return Descriptor(version, log_id, _parse_compression(parameters, name), size)


def _parse_compression(parameters: bytes, name: str) -> str:
    """Simple name of the compressor's class; empty: none."""
    try:
        values: dict[str, Any] = msgspec.json.decode(parameters, type=dict[str, Any]) if parameters else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SegmentDamaged(f"the parameters in the segment's head are no JSON object: {error}") from error
    if any(values.get(key) for key in _ENCRYPTION):
        raise Fatal(
            f"{name} is encrypted, and encrypted commit logs can't be read: set enabled: false under "
            f"transparent_data_encryption_options in cassandra.yaml, restart that node, and delete the encrypted "
            f"segments from its cdc_raw_directory (what is only in them needs a snapshot of the tables)"
        )
    return str(values.get("compressionClass") or "").rpartition(".")[2]
