"""A verification of a source without a read view (Scylla, Cassandra): rows as they are read, with all that the topics say.

Both change meanwhile. So what differs is looked at again: its rows are read again, and the topics from where they were read,
until both sides are equal, or have stayed as they are for long enough. Nothing is written anywhere but into a temporary folder.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import ConfigInvalid, Retriable, Skippable
from connectors.verify.cells import MOST_OPEN, CellComparison
from connectors.verify.source import BadRows
from worker.transforms.pipeline import build_pipeline
from worker.verify.forms import Forms
from worker.verify.messages import (
    POLL_S,
    RowThrottle,
    TopicReader,
    VerificationRequest,
    VerifyProgress,
    kafka_refusals,
    unreadable_message,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from connectors.api import SourceRecord
    from connectors.verify.rows import TableReport
    from connectors.verify.source import CellSource
    from connectors.verify.writes import Write

    Add = Callable[[str, Mapping[str, Any], list[Write]], None]

#: Into how many files the sides are divided follows from the number of messages; a row has one, about.
_ROWS_PER_MESSAGE: Final = 2


class CellVerification:
    """One run.

    Args:
        source: the connector's side.
        connector: the connector's configuration, references resolved.
        worker: the worker's properties: converters and Kafka clients.
        asked: what is asked.
    """

    def __init__(
        self, source: CellSource, connector: Mapping[str, str], worker: Mapping[str, str], asked: VerificationRequest
    ) -> None:
        self._source = source
        self._pipeline = build_pipeline(connector)
        self._forms = Forms(connector, worker, keys=source.reads_keys)
        self._worker = worker
        self._asked = asked
        self._settle_s = source.settle_s if asked.settle_s is None else asked.settle_s
        self._progress = asked.progress or VerifyProgress()
        self._throttle = RowThrottle(asked.rows_per_s)
        #: The table of each topic.
        self._homes: dict[str, str] = {}
        self.notes = source.notes

    async def names(self) -> list[str]:
        """The tables that would be compared.

        Raises:
            MillraceError: the source can't be asked.
        """
        try:
            await self._source.open(self._asked.includes)
            return list(self._source.tables)
        finally:
            await self._source.close()

    async def run(self) -> list[TableReport]:
        """Compare; one report per table. See ``reports`` for the errors."""
        return [report async for report in self.reports()]

    async def reports(self) -> AsyncIterator[TableReport]:
        """Compare the tables one after the other, and give the report of each.

        Raises:
            MillraceError: the source, Kafka or the worker can't be asked, or the topics did not reach the tables in time.
        """
        topics = TopicReader(self._worker, self._progress, self.notes)
        try:
            with kafka_refusals(self._worker):
                await self._source.open(self._asked.includes)
                await topics.start()
                self._homes = {table.topic: name for name, table in self._source.tables.items()}
                await topics.open(self._homes)
                for topic, name in self._homes.items():
                    yield await self._compare_table(topics, topic, name)
        finally:
            self._progress.end()
            await topics.stop()
            await self._source.close()
            await self._forms.close()

    async def _compare_table(self, topics: TopicReader, topic: str, name: str) -> TableReport:
        topics.choose({topic})
        expected = await topics.waiting() * _ROWS_PER_MESSAGE
        with CellComparison(
            {name: self._source.tables[name].cells},
            expected=expected,
            examples=self._asked.examples,
            folder=self._asked.folder,
        ) as comparison:
            bad = BadRows()
            await self._read_table(name, comparison.source, bad)
            if bad.count:
                self.notes.append(bad.note(name))
            await self._wait_delivered(topics, int(time.time() * 1000))
            await topics.read(lambda messages: self._add_messages(comparison.topic, messages))
            steps = comparison.compare(time.time())
            while (step := await asyncio.to_thread(next, steps, None)) is not None:
                self._progress.say(f"comparing: {step[0]} of {step[1]}")
            if len(comparison.open) >= MOST_OPEN:
                self.notes.append(
                    f"{name}: more than {MOST_OPEN} partitions differ: the others were not looked at again"
                )
            await self._settle_differences(comparison, topics, name)
            report = comparison.reports[name]
            report.topics.append(topic)
            report.condition = self._source.condition
            return report

    async def _settle_differences(self, comparison: CellComparison, topics: TopicReader, name: str) -> None:
        """Look again at what differs until it is equal, or has stayed as it is; once at least, whatever reading has taken."""
        deadline = time.monotonic() + self._asked.timeout_s
        changing = len(comparison.open)
        while comparison.open and changing and time.monotonic() < deadline:
            self._progress.say(
                f"waiting for changes that are under way: {len(comparison.open)} partitions differ", now=True
            )
            await asyncio.sleep(self._settle_s)
            comparison.reread()
            await self._read_table(name, comparison.source_again, BadRows())
            await topics.read(lambda messages: self._add_messages(comparison.topic_again, messages))
            changing = await asyncio.to_thread(comparison.look_again, time.time())
        await asyncio.to_thread(comparison.finish, time.time())

    async def _wait_delivered(self, topics: TopicReader, time_ms: int) -> None:
        """Wait until the connector says that everything before ``time_ms`` is delivered, or until the topics are quiet."""
        if self._asked.offsets is None:
            await topics.quiet(self._settle_s, self._asked.timeout_s)
            return
        deadline = time.monotonic() + self._asked.timeout_s
        while True:
            saved = [(item["partition"], item["offset"] or {}) for item in await asyncio.to_thread(self._asked.offsets)]
            position = self._source.reached(saved, time_ms)
            if position is None or position[0]:
                return
            if time.monotonic() > deadline:
                raise Retriable(
                    f"the connector did not reach the time at which the tables were read within {self._asked.timeout_s:g} s; "
                    f"it is {position[1]}. Look at its status and lag, or wait longer with --timeout"
                )
            self._progress.say(f"waiting for the connector: it is {position[1]}")
            await asyncio.sleep(POLL_S)

    # The two sides.

    async def _read_table(self, name: str, add: Add, bad: BadRows) -> None:
        read = 0
        async for records in self._source.records(name, bad):
            read += len(records)
            await asyncio.to_thread(self._add_records, name, add, bad, records)
            await self._throttle.spent(len(records))
            self._progress.say(f"reading {name}: {read} rows")

    def _add_records(self, name: str, add: Add, bad: BadRows, records: Sequence[SourceRecord]) -> None:
        table = self._source.tables[name]
        for record in records:
            try:
                sent = self._pipeline.apply(record)
                if sent is None:
                    continue
                self._check_home(name, sent.topic)
                key = self._forms.written(0, sent.key_schema, sent.key)
                value = self._forms.written(1, sent.value_schema, sent.value)
            except Skippable as error:
                bad.add(error)
                continue
            said = table.writes(key, value)
            if said is not None:
                add(name, *said)

    def _check_home(self, name: str, topic: str) -> None:
        if self._homes.get(topic) != name:
            raise ConfigInvalid(
                f"a transform sends rows of {name} to {topic}: verify reads topics that have one table each, under the name "
                f"that the connector gives them ({self._source.tables[name].topic})"
            )

    async def _add_messages(self, add: Add, messages: Sequence[Any]) -> None:
        for message in messages:
            name = self._homes[message.topic]
            try:
                await self._forms.prepare(message)
                key = self._forms.read(message.topic, 0, message.key)
                value = self._forms.read(message.topic, 1, message.value)
                said = self._source.tables[name].writes(key, value)
            except (msgspec.MsgspecError, Skippable, ValueError, KeyError, TypeError) as error:
                raise unreadable_message(message, error) from error
            if said is not None:
                add(name, *said)
