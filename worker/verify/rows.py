"""A verification of a source with a read view (MySQL, MariaDB): one view, whose place in the log is known, with its topics.

Nothing is written anywhere but into a temporary folder.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import ConfigInvalid, Retriable, Skippable
from connectors.mysql.verify import SourceView, TableChanged, is_delivered, is_ums, key_condition
from connectors.verify.differences import differing_common_columns, row_difference
from connectors.verify.events import is_envelope
from connectors.verify.rows import Comparison, TableReport, key_identity, split_position
from connectors.verify.source import BadRows
from worker.transforms.pipeline import TransformError, TransformPipeline, build_pipeline
from worker.verify.forms import Forms
from worker.verify.messages import (
    POLL_S,
    RowThrottle,
    TopicReader,
    VerificationRequest,
    VerifyProgress,
    kafka_refusals,
)
from worker.verify.topics import TopicSide, read_in_process, read_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

    from connectors.api import SourceRecord
    from connectors.mysql.model import BinlogPosition
    from connectors.mysql.verify import MessageChange, MessageReader, TableEntry
    from connectors.verify.rows import Sample

#: With this many rows and messages the topics are read by another process.
MANY_ROWS: Final = 100_000
#: A table with at most this many rows is read once more where its keys can't be conditions, to show rows that differ.
_FEW_ROWS: Final = 100_000
#: Further views for tables that are altered while they are compared.
_MOST_VIEWS: Final = 3
#: Without offsets: how long the topics must have been quiet.
_SETTLE_S: Final = 5.0


class _Home(NamedTuple):
    """Where a table's events go, and what they look like."""

    topic: str
    plain: bool
    columns: tuple[str, ...]


def find_home(entry: TableEntry, position: BinlogPosition, pipeline: TransformPipeline) -> _Home:
    """Find out by sending a row without values through the connector's transforms."""
    probe = entry.records([dict.fromkeys((column.name for column in entry.table.columns), None)], position)
    try:
        record = pipeline.apply(probe[0]) if probe else None
    except TransformError:
        record = None  # a transform that needs values: the connector's own names it is
    if record is None or record.value_schema is None:
        return _Home(entry.builder.topic, plain=False, columns=entry.fields)
    if is_ums(record.value):
        return _Home(record.topic, plain=False, columns=entry.fields)
    schema = record.value_schema
    if is_envelope(record.value):
        after = schema.field("after")
        return _Home(
            record.topic, plain=False, columns=tuple(field.name for field in after.schema.fields) if after else ()
        )
    return _Home(
        record.topic,
        plain=True,
        columns=tuple(field.name for field in schema.fields if not field.name.startswith("__")),
    )


class RowVerification:
    """One run.

    Args:
        connector: the connector's configuration, references resolved.
        worker: the worker's properties: converters and Kafka clients.
        asked: what is asked.
    """

    def __init__(self, connector: Mapping[str, str], worker: Mapping[str, str], asked: VerificationRequest) -> None:
        # The class makes its ConfigDef with the worker's common options; what verify needs are the connector's own.
        from connectors.mysql.config.settings import CONFIG

        self._config = CONFIG.parse(connector)
        self._pipeline = build_pipeline(connector)
        self._forms = Forms(connector, worker, row_events=True)
        self._connector = connector
        self._worker = worker
        self._asked = asked
        self._settle_s = _SETTLE_S if asked.settle_s is None else asked.settle_s
        self._progress = asked.progress or VerifyProgress()
        self._throttle = RowThrottle(asked.rows_per_s)
        self.notes: list[str] = []

    async def names(self) -> list[str]:
        """The tables that would be compared.

        Raises:
            MillraceError: the source can't be asked.
        """
        return await self._find_names(self._asked.includes)

    async def _find_names(self, includes: Callable[[str], bool]) -> list[str]:
        view = SourceView(self._config)
        try:
            return await view.find(includes)
        finally:
            await view.close()

    async def run(self) -> list[TableReport]:
        """Compare; one report per table. See ``reports`` for the errors."""
        return [report async for report in self.reports()]

    async def reports(self) -> AsyncIterator[TableReport]:
        """Compare all tables in one view, and give the report of each as soon as it is compared; tables in one topic together.

        Tables that are altered meanwhile are compared in a view of their own at the end.

        Raises:
            MillraceError: the source, Kafka or the worker can't be asked, or the topics did not reach the place in time.
        """
        topics = TopicReader(self._worker, self._progress, self.notes)
        try:
            with kafka_refusals(self._worker):
                await topics.start()
                changed: dict[str, TableChanged] = {}
                async for report in self._compare_view(topics, self._asked.includes, changed):
                    yield report
                for _ in range(_MOST_VIEWS):
                    names = await self._keep_existing(changed)
                    if not names:
                        return
                    changed = {}
                    async for report in self._compare_view(topics, names.__contains__, changed):
                        yield report
                if changed:
                    raise Retriable(
                        f"{', '.join(changed)}: altered whenever the comparison came to it, the last time: "
                        f"{next(iter(changed.values()))}. Verify again when its structure stays as it is"
                    )
        finally:
            self._progress.end()
            await topics.stop()
            await self._forms.close()

    async def _keep_existing(self, changed: Collection[str]) -> frozenset[str]:
        """Those of the tables that are still there; the others are noted."""
        if not changed:
            return frozenset()
        try:
            names = await self._find_names(changed.__contains__)
        except ConfigInvalid:
            names = []
        self.notes += [
            f"{name} was dropped or renamed before it could be compared" for name in changed if name not in names
        ]
        return frozenset(names)

    async def _compare_view(
        self, topics: TopicReader, includes: Callable[[str], bool], changed: dict[str, TableChanged]
    ) -> AsyncIterator[TableReport]:
        """Compare tables in one view; those that have changed since it was opened go into ``changed``."""
        view = SourceView(self._config)
        try:
            await view.open(includes)
            homes = {name: find_home(entry, view.position, self._pipeline) for name, entry in view.tables.items()}
            _check_homes(homes)
            if self._asked.offsets is not None:
                await self._wait_delivered(view.position, self._asked.offsets)
            await topics.open({table.topic for table in homes.values()})
            if self._asked.offsets is None:
                await topics.quiet(self._settle_s, self._asked.timeout_s)
            for names in tables_by_topic(homes):
                reports: list[TableReport] = []
                try:
                    reports = await self._compare_tables(view, topics, {name: homes[name] for name in names})
                except TableChanged as error:
                    changed.update(dict.fromkeys(names, error))
                await view.release()
                for report in reports:
                    yield report
        finally:
            await view.close()

    async def _wait_delivered(self, position: BinlogPosition, offsets: Callable[[], list[dict[str, Any]]]) -> None:
        """Wait until the connector says that everything before ``position`` is delivered."""
        deadline = time.monotonic() + self._asked.timeout_s
        while True:
            saved = [(item["partition"], item["offset"] or {}) for item in await asyncio.to_thread(offsets)]
            try:
                done, at = is_delivered(self._config["topic.prefix"], saved, position)
            except ValueError as error:
                raise ConfigInvalid(f"a saved offset of the connector is not understood: {error}") from error
            if done:
                return
            if time.monotonic() > deadline:
                raise Retriable(
                    f"the connector did not reach {position.file}:{position.pos} within {self._asked.timeout_s:g} s; it is at "
                    f"{at}. Look at its status and lag, or wait longer with --timeout"
                )
            self._progress.say(
                f"waiting for the connector: it is at {at}, the tables are read at {position.file}:{position.pos}"
            )
            await asyncio.sleep(min(POLL_S, self._settle_s / 4))

    async def _compare_tables(
        self, view: SourceView, topics: TopicReader, homes: Mapping[str, _Home]
    ) -> list[TableReport]:
        entries = {name: view.tables[name] for name in homes}
        topics.choose({table.topic for table in homes.values()})
        expected = await topics.waiting() + await view.estimate(list(homes))
        columns = {name: table.columns for name, table in homes.items()}
        with Comparison(
            columns, expected=expected, examples=self._asked.examples, folder=self._asked.folder
        ) as comparison:
            for name, table in homes.items():
                comparison.reports[name].topics.append(table.topic)
                if table.plain and not entries[name].key:
                    comparison.reports[name].note = "rows without key and without envelope: updates look like inserts"
            side = TopicSide(
                connector=dict(self._connector),
                worker=dict(self._worker),
                topics=frozenset(table.topic for table in homes.values()),
                keys={name: entry.key for name, entry in entries.items()},
                plain={table.topic: name for name, table in homes.items() if table.plain},
                parts={name: entry.logical for name, entry in entries.items()},
                row_ends={name: entry.row_end for name, entry in entries.items() if entry.row_end},
                columns=columns,
                position=view.position,
                folder=comparison.folder,
                files=comparison.count,
            )
            if expected >= MANY_ROWS:
                await self._read_both(comparison, side, view, entries)
            else:
                reader, rows = side.reader(view.position), comparison.topics
                await topics.read(lambda messages: read_messages(reader, self._forms, rows, messages))
                await self._read_tables(comparison, side, view, entries)
            steps = comparison.compare()
            while (step := await asyncio.to_thread(next, steps, None)) is not None:
                self._progress.say(f"comparing: {step[0]} of {step[1]}")
            for name, entry in entries.items():
                report = comparison.reports[name]
                report.condition = key_condition(entry, report.to_send_again())
                samples = {sample.identity: sample for sample in comparison.samples[name]}
                if samples:
                    await self._read_messages_again(topics, homes[name].topic, side.reader(view.position), samples)
                    await self._read_rows_again(view, entry, side.reader(None), samples, report.total.source_rows)
                    report.differences = [
                        row_difference(sample.kind, sample.key, sample.source, sample.topic, differing_common_columns)
                        for sample in samples.values()
                        if sample.is_read()
                    ]
            return list(comparison.reports.values())

    async def _read_messages_again(
        self, topics: TopicReader, topic: str, reader: MessageReader, samples: Mapping[bytes, Sample]
    ) -> None:
        positions = {split_position(sample.position) for sample in samples.values() if sample.position is not None}
        for message in await topics.messages(topic, positions):
            await self._forms.prepare(message)
            key = self._forms.read(topic, 0, message.key)
            value = self._forms.read_value(topic, message.value)
            for change in reader.changes(topic, key, value):
                sample = samples.get(key_identity(change.key))
                if sample is not None and change.kind == "set":
                    sample.topic = change.row

    async def _read_rows_again(
        self, view: SourceView, entry: TableEntry, reader: MessageReader, samples: Mapping[bytes, Sample], rows: int
    ) -> None:
        keys = [sample.key for sample in samples.values() if sample.in_source]
        condition = key_condition(entry, keys)
        if not keys or (not condition and rows > _FEW_ROWS):
            return
        async for records in view.records(entry, condition):
            for change in await asyncio.to_thread(self._changes, reader, entry, records, BadRows()):
                sample = samples.get(key_identity(change.key))
                if sample is not None:
                    sample.source = change.row

    async def _read_both(
        self, comparison: Comparison, side: TopicSide, view: SourceView, entries: Mapping[str, TableEntry]
    ) -> None:
        """Read the topics in a process of its own, and the source at the same time."""
        task = asyncio.create_task(read_in_process(side))
        try:
            await self._read_tables(comparison, side, view, entries)
            self._progress.say("reading topics", now=True)
            structures = await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if comparison.adopt(structures):
            await self._read_tables(comparison, side, view, entries)

    async def _read_tables(
        self, comparison: Comparison, side: TopicSide, view: SourceView, entries: Mapping[str, TableEntry]
    ) -> None:
        reader = side.reader(None)
        for entry in entries.values():
            entry.bad = BadRows()
            await self._read_table(comparison, reader, view, entry)
            if entry.bad.count and (note := entry.bad.note(entry.name)) not in self.notes:
                self.notes.append(note)

    async def _read_table(
        self, comparison: Comparison, reader: MessageReader, view: SourceView, entry: TableEntry
    ) -> None:
        read = 0
        async for records in view.records(entry):
            read += len(records)
            await asyncio.to_thread(self._add_records, comparison, reader, entry, records)
            await self._throttle.spent(len(records))
            self._progress.say(f"reading {entry.name}: {read} rows")

    def _add_records(
        self, comparison: Comparison, reader: MessageReader, entry: TableEntry, records: Sequence[SourceRecord]
    ) -> None:
        if not self._pipeline and is_envelope(records[0].value):
            # Most connectors: the rows are those of the table, and they go where it goes.
            for key, row in self._forms.written_rows(records):
                comparison.source(entry.name, key if entry.key else None, row)
            return
        for change in self._changes(reader, entry, records, entry.bad):
            if change.row is not None:
                comparison.source(change.table, change.key, change.row)

    def _changes(
        self, reader: MessageReader, entry: TableEntry, records: Sequence[SourceRecord], bad: BadRows
    ) -> list[MessageChange]:
        """The changes in records of the source after the connector's transforms; those that are refused go into ``bad``."""
        changes: list[MessageChange] = []
        for record in records:
            try:
                sent = self._pipeline.apply(record)
                if sent is None:
                    continue
                entry.sends_keys &= sent.key == record.key
                key = self._forms.written(0, sent.key_schema, sent.key)
                value = self._forms.written_value(sent.value_schema, sent.value)
            except Skippable as error:
                bad.add(error)
                continue
            changes += reader.changes(sent.topic, key, value)
        return changes


def tables_by_topic(homes: Mapping[str, _Home]) -> list[list[str]]:
    """The tables, those of one topic together, in their order."""
    groups: dict[str, list[str]] = {}
    for name, table in homes.items():
        groups.setdefault(table.topic, []).append(name)
    return list(groups.values())


def _check_homes(homes: Mapping[str, _Home]) -> None:
    names_by_topic: dict[str, str] = {}
    for name, home_of_table in homes.items():
        if home_of_table.plain and names_by_topic.setdefault(home_of_table.topic, name) != name:
            raise ConfigInvalid(
                f"{name} and {names_by_topic[home_of_table.topic]} both go to {home_of_table.topic} as plain rows, which "
                "don't tell their "
                "table: verify them one by one with --tables if their keys differ, or a topic with envelopes"
            )
