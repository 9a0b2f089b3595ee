"""Heartbeats of UMS: messages that name their table and a time, and have no rows. Without Spark."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connectors.formats.ums import INCREMENT_HEARTBEAT, Namespace
from spark_jobs.reports.met_heartbeats import MetHeartbeat

if TYPE_CHECKING:
    from spark_jobs.reports.met_heartbeats import MetHeartbeats

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Protocol(msgspec.Struct, gc=False):
    part: str | None = None


class _Schema(msgspec.Struct, gc=False):
    namespace: str


class _Row(msgspec.Struct, gc=False):
    tuple: list[str | None]


class _Heartbeat(msgspec.Struct, gc=False):
    protocol: _Protocol
    schema: _Schema
    payload: list[_Row]


_decode: Final = msgspec.json.Decoder(_Heartbeat).decode


def read_heartbeat(batch: pa.RecordBatch, index: int) -> MetHeartbeat:
    """The heartbeat that a raw record of ``batch`` is.

    Raises:
        ValueError: it has no time, or something else is not as in UMS.
    """
    message = _decode(batch.column("value")[index].as_py())
    if not message.payload or not message.payload[0].tuple:
        raise ValueError("the heartbeat has no time")
    namespace = Namespace.parse(message.schema.namespace)
    sent = datetime.fromisoformat(message.payload[0].tuple[0] or "").replace(tzinfo=UTC)
    return MetHeartbeat(
        batch.column("topic")[index].as_py(),
        batch.column("partition")[index].as_py(),
        # Every shard of a table promises for itself.
        ".".join((*namespace[5:], message.protocol.part or "")),
        (sent - _EPOCH) // timedelta(microseconds=1),
        batch.column("timestamp")[index].cast(pa.int64()).as_py(),
        ".".join(namespace[:4]),
    )


def note_heartbeats(batch: pa.RecordBatch, beats: MetHeartbeats) -> None:
    """Note those among raw records; those that are not as in UMS are left out.

    Their keys tell them apart, whatever a key converter puts around the text.
    """
    is_beat = pc.match_substring(batch.column("key"), f"{INCREMENT_HEARTBEAT}.")
    if not is_beat.true_count:
        return
    for index in pc.indices_nonzero(is_beat).to_pylist():
        with suppress(ValueError, TypeError):
            beats.note(read_heartbeat(batch, index))
