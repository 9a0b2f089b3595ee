"""Signals to a run, from the signal table and from the signal topic, and heartbeats that come back in the binlog."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Retriable, Skippable
from connectors.mysql.position import shards, start
from connectors.mysql.position.positions import file_number
from connectors.mysql.stream.heartbeat import parse
from connectors.mysql.stream.signals import KafkaSignals, Signal, SignalPosition, parse_row
from connectors.snapshot.requests import REQUEST

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence

    from connectors.api import Position
    from connectors.mysql.model import StreamSettings
    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.run.batching import BatchMaker
    from connectors.mysql.schema.tables import MySqlTableState
    from connectors.mysql.stream.latency import HeartbeatLatency

#: Pause before a read of the signal topic is retried.
_RETRY_S: Final = 5.0


class RunSignals:
    """Carries out signals.

    Args:
        settings: of the stream.
        batches: knows the snapshots and the position.
        latency: hears of heartbeats.
        cursor: where the stream is.
        log: for signals that ask for a line, and for those that are ignored.

    Attributes:
        moved_to: where the stream must continue because of a signal: the run ends then.
        moved_by: where that signal is in the binlog; "": it has come another way.
        moved_by_record: where it is in the signal topic; "": it has come another way.
    """

    def __init__(
        self,
        settings: StreamSettings,
        batches: BatchMaker,
        latency: HeartbeatLatency,
        cursor: BinlogCursor,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.moved_to: SignalPosition | None = None
        self.moved_by = self.moved_by_record = ""
        self._settings = settings
        self._batches = batches
        self._latency = latency
        self._cursor = cursor
        self._log = log
        self._channel: asyncio.Task[None] | None = None
        #: Requests that signals of the topic have made or changed, as they were then, and that are not durable yet.
        self._not_durable: dict[str, str] = {}
        #: The record of the topic that was read last; the one that has set the position; and that one in a durable offset.
        self._read_record = self._moving_record = self._durable_record = ""

    def start(self) -> None:
        """Read the signal topic, if there is one. Does not block."""
        settings = self._settings
        if "kafka" in settings.channels and settings.signal_brokers:
            shard = shards.format_shard(settings.shard).replace("/", "-of-")
            group = f"{settings.signal_group}-{settings.prefix}-{shard}"
            self._channel = asyncio.create_task(
                self._read_topic(KafkaSignals(settings.signal_brokers, settings.signal_topic, group, settings.prefix))
            )

    async def close(self) -> None:
        """Stop; may be repeated."""
        if self._channel is not None:
            self._channel.cancel()
            await asyncio.gather(self._channel, return_exceptions=True)

    def committed(self, offsets: Sequence[tuple[Position, Position]]) -> None:
        """Offsets have become durable."""
        for _, offset in offsets:
            self._durable_record = offset.get(start.MOVED_BY_RECORD, self._durable_record)
        if not self._not_durable:
            return
        snapshots = self._batches.snapshots
        for partition, offset in offsets:
            name = partition.get(start.SNAPSHOT)
            if name in self._not_durable and offset.get(REQUEST) in {
                self._not_durable[name],
                snapshots.request_json(name),
            }:
                del self._not_durable[name]

    def take_rows(self, state: MySqlTableState, op: str, rows: list[Any], at: str, written_s: int) -> None:
        """The stream has met rows of the signal table or of the heartbeat table.

        Args:
            state: of the table.
            op: what the event does.
            rows: for "u" pairs (before, after) one after the other.
            at: file and position of the event.
            written_s: its time, seconds since 1970.
        """
        if state.kind == "heartbeat":
            # Without FULL row images the image after has only what was set.
            updated = (
                [{**before, **after} for before, after in zip(rows[::2], rows[1::2], strict=True)] if op == "u" else []
            )
            for row in updated or (rows if op == "c" else ()):
                heartbeat = parse(row)
                if heartbeat.source == self._settings.prefix:
                    file, _, pos = at.rpartition(":")
                    self._latency.read(heartbeat.sent_us, (file_number(file), int(pos)))
        elif op == "c":
            for row in rows:
                try:
                    signal = parse_row(row, at, written_s * 1000)
                    if signal is not None:
                        self._obey(signal, at)
                except Skippable as error:
                    self._log.warning("a signal is ignored: %s", error)

    def _obey(self, signal: Signal, at: str = "") -> None:
        """Carry out a signal; ``at``: its place in the binlog, "" for one of the topic."""
        snapshots = self._batches.snapshots
        outcome = snapshots.signal(signal)
        if not at and outcome.changed:
            self._not_durable |= {
                request.id: snapshots.request_json(request.id)
                for request in outcome.requests
                if not snapshots.ended(request.id)
            }
        if outcome.position is not None and not at and self._cursor.is_moved_by(signal.at):
            self._moving_record = self._cursor.now()[start.MOVED_BY_RECORD]
            return
        if outcome.position is not None and at and self._cursor.moved_back:
            self._log.info("signal %s was obeyed before: the stream continues behind it", signal.id)
            return
        if outcome.message:
            self._log.info("%s", outcome.message.replace("{}", str(self._batches.saved)))
        if outcome.position is not None:
            self.moved_to, self.moved_by, self.moved_by_record = outcome.position, at, "" if at else signal.at
            self._moving_record = self.moved_by_record

    async def _read_topic(self, channel: KafkaSignals) -> None:
        """Carry out the signals of the topic; retry where it can't be read."""
        while True:
            try:
                await channel.start()
                while True:
                    for signal in await channel.read():
                        self._read_record = signal.at
                        try:
                            self._obey(signal)
                        except Skippable as error:
                            self._log.warning("a signal is ignored: %s", error)
                    if self._moving_record in {"", self._durable_record} and not any(
                        map(self._batches.snapshots.request_json, self._not_durable)
                    ):
                        # Else a crash would lose what the signals ask for: it is in no offset yet.
                        await channel.commit()
                        if self._read_record:
                            self._cursor.forget_record(self._read_record)
            except Retriable as error:
                self._log.warning("%s; the topic is read again", error)
                await asyncio.sleep(_RETRY_S)
            finally:
                await channel.close()
