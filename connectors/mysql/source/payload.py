"""MySQL's compressed transactions: the events inside one TRANSACTION_PAYLOAD event.

An uncompressed transaction may be larger than memory. Beyond a few megabytes a thread uncompresses it into a pipe, so that
only a bounded part of it is in memory at any time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Final

import cramjam

from connectors.errors import Fatal
from connectors.mysql.source.binlog_events import HEADER_SIZE, read_lenenc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_END: Final = 0
_SIZE: Final = 1
_COMPRESSION: Final = 2
_UNCOMPRESSED: Final = 3
_ZSTD: Final = 0
_NONE: Final = 255
#: Up to here a transaction is uncompressed at once.
_AT_ONCE: Final = 8 << 20
_CHUNK_BYTES: Final = 1 << 20


def transaction_payload(event: bytes, *, at_once: int = _AT_ONCE) -> Iterator[bytes]:
    """The events inside, in order: they have no checksums, and no positions of their own.

    Close the iterator if it isn't read to its end. Memory: the event and a few megabytes (or its largest inner event).

    Raises:
        Fatal: the event is cut, damaged, or compressed in a way that is not known.
    """
    fields, start = _read_fields(event)
    size = fields.get(_SIZE, len(event) - start)
    kind = fields.get(_COMPRESSION, _NONE)
    length = fields.get(_UNCOMPRESSED, size if kind == _NONE else at_once + 1)
    payload = memoryview(event)[start : start + size]
    if len(payload) != size:
        raise Fatal(
            f"a compressed transaction has {len(payload)} bytes in place of {size}; check the binlog with mysqlbinlog"
        )
    if kind == _NONE:
        chunks: Iterable[bytes | memoryview] = (payload,)
    elif kind != _ZSTD:
        raise Fatal(
            f"a transaction is compressed in the unknown way {kind}: upgrade this program, or SET GLOBAL "
            "binlog_transaction_compression=OFF and begin behind it"
        )
    elif length <= at_once:
        chunks = (_uncompress_whole(payload, length),)
    else:
        chunks = _uncompress_piped(payload)
    return _split_events(chunks)


def _read_fields(event: bytes) -> tuple[dict[int, int], int]:
    fields: dict[int, int] = {}
    at = HEADER_SIZE
    try:
        while True:
            field, at = read_lenenc(event, at)
            if field == _END:
                return fields, at
            size, at = read_lenenc(event, at)
            if field in {_SIZE, _COMPRESSION, _UNCOMPRESSED}:
                fields[field] = read_lenenc(event, at)[0]
            at += size
    except IndexError as error:
        raise Fatal(
            f"a compressed transaction of {len(event)} bytes is cut: {event[:64].hex()}; check the binlog with "
            "mysqlbinlog"
        ) from error


def _uncompress_whole(payload: memoryview, length: int) -> bytes:
    target = bytearray(length)
    try:
        size = cramjam.zstd.decompress_into(payload, target)
    except cramjam.DecompressionError as error:
        raise _damaged_error(error) from error
    if size != length:
        raise _damaged_error(f"{size} bytes in place of {length}")
    return bytes(target)


def _damaged_error(reason: object) -> Fatal:
    return Fatal(
        f"a compressed transaction can't be uncompressed: {reason}; check the binlog with mysqlbinlog "
        "--verify-binlog-checksum"
    )


def _uncompress_piped(payload: memoryview) -> Iterator[bytes]:
    """Yield the uncompressed bytes in chunks."""
    reading, writing = os.pipe()
    errors: list[Exception] = []

    def work() -> None:
        try:
            # The library writes to files only, and this is one; it works without the interpreter's lock.
            cramjam.zstd.decompress_into(
                payload, cramjam.File(f"/dev/fd/{writing}", read=False, write=True, truncate=False)
            )
        except Exception as error:  # noqa: BLE001 - the reader raises it
            errors.append(error)
        finally:
            os.close(writing)

    thread = threading.Thread(target=work, name="binlog-payload", daemon=True)
    thread.start()
    try:
        while chunk := os.read(reading, _CHUNK_BYTES):
            yield chunk
    finally:
        os.close(reading)  # the thread, should it still write, gets an error by that and ends
        thread.join()
    if errors:
        raise _damaged_error(errors[0])


def _split_events(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Whole events from chunks that end anywhere."""
    parts: list[bytes] = []
    length, required = 0, HEADER_SIZE
    with contextlib.ExitStack() as stack:
        if hasattr(chunks, "close"):
            stack.callback(chunks.close)
        for chunk in chunks:
            parts.append(bytes(chunk))
            length += len(chunk)
            if length < required:
                continue  # a large event comes in many chunks: they are joined once
            data = b"".join(parts)
            at, end, required = 0, length, HEADER_SIZE
            while end - at >= HEADER_SIZE:
                size = int.from_bytes(data[at + 9 : at + 13], "little")
                if size < HEADER_SIZE:
                    raise _damaged_error(f"an event in it has {size} bytes")
                if end - at < size:
                    required = size
                    break
                yield data[at : at + size]
                at += size
            parts = [data[at:]]
            length = end - at
    if length:
        raise _damaged_error(f"{length} bytes are left at its end")
