"""The file connector's task: reads lines of one or several files, or of the standard input, and yields them as records."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING

from connectors.api import BadRecord, Batch, SourceRecord, SourceTask
from connectors.errors import Skippable
from connectors.file.config import TOPIC
from connectors.file.stdin import StandardInput
from connectors.schema import STRING
from connectors.text_files.lines import LineSplitter, byte_order, is_part_of_mark, join_lines, mark_length
from connectors.text_files.options import DIRECTORY, read_settings
from connectors.text_files.reader import FILENAME, POSITION, read_files

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from connectors.api import Position
    from connectors.text_files.options import FileReadSettings


class FileStreamSourceTask(SourceTask):
    """Reads its files in turn, a block at a time; each file's bytes are read in a thread."""

    aliases = ("org.apache.kafka.connect.file.FileStreamSourceTask",)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield batches of lines until cancelled.

        Raises:
            Fatal: a file can't be read, or a saved offset is not one of this connector's.
            Retriable: a file can't be read at the moment.
        """
        config = self.context.config
        options, topic = read_settings(config), config[TOPIC]

        def make_records(
            partition: Position, _before: Position, lines: list[str], offsets: Sequence[Position]
        ) -> list[SourceRecord]:
            now = int(time.time() * 1000)
            return [
                SourceRecord(partition, offset, topic, line, STRING, None, None, None, (), now)
                for line, offset in zip(lines, offsets, strict=True)
            ]

        source = (
            read_files(self.context, options, make_records, topic)
            if options.files or config[DIRECTORY]
            else _standard_input(options, topic)
        )
        async with aclosing(source) as batches:
            async for batch in batches:
                yield batch
                del batch  # not kept while the next one is waited for


def _make_splitter(options: FileReadSettings, head: bytes) -> LineSplitter:
    return LineSplitter(
        byte_order(options.encoding, head),
        limit=options.line_limit,
        replace=options.replace_malformed,
        cut=options.split_long,
    )


async def _standard_input(options: FileReadSettings, topic: str) -> AsyncGenerator[Batch, None]:
    """Lines of the standard input; their offsets say nothing, as in Kafka Connect."""
    partition: Position = {FILENAME: None}
    offset: Position = {POSITION: None}
    splitter: LineSplitter | None = None
    head = b""
    source = StandardInput()
    try:
        while True:
            data = await source.read()
            if splitter is None:
                head += data
                if data and is_part_of_mark(options.encoding, head):
                    continue
                splitter = _make_splitter(options, head)
                lines = splitter.feed(head[mark_length(options.encoding, head) :])
            else:
                lines = splitter.feed(data)
            if not data:
                lines = join_lines(lines, splitter.finish())
            now = int(time.time() * 1000)
            records = [
                SourceRecord(partition, offset, topic, input_line, STRING, timestamp=now)
                for input_line in lines.strings
            ]
            bad = tuple(
                BadRecord(partition, offset, Skippable(f"standard input: {line.error}"), line.raw, topic)
                for line in lines.bad
            )
            for at in range(0, len(records), options.batch_size):
                yield Batch(records[at : at + options.batch_size])
            if bad:
                yield Batch([], bad)
            if not data:
                return
    finally:
        source.close()
