"""The topics' side of a comparison of rows: here, or in a process of its own while this one reads the source."""

from __future__ import annotations

import asyncio
import multiprocessing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from connectors.errors import Retriable, Skippable
from connectors.mysql.verify import MessageReader
from connectors.verify.rows import TopicRows, message_position
from worker.verify.forms import Forms
from worker.verify.messages import TopicReader, VerifyProgress, kafka_refusals, unreadable_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.connection import Connection

    from connectors.mysql.model import BinlogPosition
    from connectors.mysql.stream.logical import Logical
    from connectors.verify.rows import Structures


class TopicSide(NamedTuple):
    """The topics to read, and the files that rows go into; can be sent to another process.

    Attributes:
        connector: the connector's configuration, references resolved.
        worker: the worker's properties.
        topics: the topics.
        keys: table -> names of the key's fields.
        plain: topic -> the table whose plain rows it has.
        parts: table -> the logical table that it is a partition of.
        row_ends: system-versioned table -> the field that says when a row ended.
        columns: table -> its columns as the topic would show them now.
        position: of the source's view.
        folder: of the comparison.
        files: how many files it has.
    """

    connector: dict[str, str]
    worker: dict[str, str]
    topics: frozenset[str]
    keys: dict[str, tuple[str, ...]]
    plain: dict[str, str]
    parts: dict[str, Logical]
    row_ends: dict[str, str]
    columns: dict[str, tuple[str, ...]]
    position: BinlogPosition
    folder: str
    files: int

    def reader(self, position: BinlogPosition | None) -> MessageReader:
        """Reads messages of the topics, or with None those that are made of the source's rows."""
        return MessageReader(self.keys, self.plain, position, self.parts, self.row_ends)


async def read_messages(reader: MessageReader, forms: Forms, rows: TopicRows, messages: Sequence[Any]) -> None:
    """Add what messages say.

    Raises:
        ConfigInvalid: one is not understood.
    """
    for message in messages:
        try:
            await forms.prepare(message)
            key = forms.read(message.topic, 0, message.key)
            value = forms.read_value(message.topic, message.value)
            for change in reader.changes(message.topic, key, value):
                if change.kind == "set" and change.row is not None:
                    rows.row(change.table, change.key, change.row, message_position(message.partition, message.offset))
                elif change.kind == "later":
                    rows.later(change.table, change.key)
                else:
                    rows.gone(change.table, change.key, change.row)
        except (msgspec.MsgspecError, Skippable, ValueError, KeyError, TypeError) as error:
            raise unreadable_message(message, error) from error


async def read_in_process(side: TopicSide) -> Mapping[str, Structures]:
    """Read the topics to their present end in a process of its own; the structures that rows have there.

    The process ends with this call, also where it is cancelled.

    Raises:
        MillraceError: they can't be read, or the process was killed.
    """
    # Spawned: a fork would take the event loop and open connections along.
    spawning = multiprocessing.get_context("spawn")
    receiving, sending = spawning.Pipe(duplex=False)
    process = spawning.Process(target=_read_side, args=(side, sending), daemon=True)
    process.start()
    sending.close()
    try:
        outcome: Mapping[str, Structures] | Exception = await asyncio.to_thread(receiving.recv)
    except EOFError:
        await asyncio.to_thread(process.join)
        raise Retriable(
            f"the process that reads the topics ended (exit code {process.exitcode}): was it killed, or is memory short?"
        ) from None
    finally:
        process.kill()
        await asyncio.to_thread(process.join)
        receiving.close()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _read_side(side: TopicSide, results: Connection) -> None:
    try:
        outcome: Mapping[str, Structures] | Exception = asyncio.run(_read_all(side))
    except Exception as error:  # noqa: BLE001 - raised where they were asked for
        outcome = error
    results.send(outcome)


async def _read_all(side: TopicSide) -> Mapping[str, Structures]:
    forms = Forms(side.connector, side.worker, row_events=True)
    topics = TopicReader(side.worker, VerifyProgress(shown=False), [])
    rows = TopicRows(side.folder, side.files, side.columns)
    reader = side.reader(side.position)
    try:
        with kafka_refusals(side.worker):
            await topics.start()
            await topics.open(side.topics)
            await topics.read(lambda messages: read_messages(reader, forms, rows, messages))
    finally:
        rows.files.close()
        await topics.stop()
        await forms.close()
    return rows.structures
