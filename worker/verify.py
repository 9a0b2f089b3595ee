"""``millrace verify``: whether a topic says what the tables hold.

One read view of the source, whose place in the binlog is known, is compared with what the topics say up to that place. Nothing
is written anywhere but into a temporary folder.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from aiokafka.errors import KafkaError

from connectors.errors import ConfigInvalid, MillraceError, Retriable, Skippable
from connectors.mysql.verify import Reader, SourceView, is_envelope, is_ums, reached
from connectors.mysql.verify_compare import Comparison, TableReport
from connectors.options import MASK
from offsets.admin import TopicAdmin
from worker import kafka_clients
from worker.converters.avro import AvroConverter
from worker.converters.base import create_converter
from worker.converters.json import JsonConverter
from worker.host.plan import converter_config
from worker.launch import read_connector
from worker.properties import load
from worker.secrets.providers import ConfigTransformer, build_providers
from worker.transforms.pipeline import Pipeline, TransformError, build_pipeline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from aiokafka import AIOKafkaConsumer, TopicPartition

    from connectors.api import SourceRecord
    from connectors.mysql.model import Place
    from connectors.mysql.verify import TableEntry
    from connectors.schema import Schema
    from worker.converters.base import Converter

_CLASSES: Final = re.compile(r"(?:.*[.:])?(?:MySqlConnector|MariaDbConnector)|mysql", re.IGNORECASE)
_PROGRESS_S: Final = 1.0
_POLL_S: Final = 1.0
_FETCH_MS: Final = 500
_MOST_RECORDS: Final = 5_000
EQUAL, DIFFERENT, FAILED = 0, 1, 2


class _Envelope(msgspec.Struct):
    payload: Any


class Forms:
    """Messages and records of the source in one JSON-like form."""

    def __init__(self, connector: Mapping[str, str], worker: Mapping[str, str]) -> None:
        defaults = {"key.converter": "JsonConverter", "value.converter": "JsonConverter", **worker}
        self._converters: list[Converter] = []
        self._writers: list[JsonConverter] = []
        self._enveloped: list[bool] = []
        for which in ("key.converter", "value.converter"):
            name, own = converter_config(connector, defaults, which)
            made = create_converter(name, own, which == "key.converter")
            if not isinstance(made, JsonConverter | AvroConverter):
                raise ConfigInvalid(f"{which}={name}: verify reads JSON and Avro; other forms can't be compared")
            json_options = {key: value for key, value in own.items() if isinstance(made, JsonConverter)}
            self._converters.append(made)
            self._enveloped.append(
                isinstance(made, JsonConverter) and own.get("schemas.enable", "true").lower() == "true"
            )
            self._writers.append(JsonConverter({**json_options, "schemas.enable": "false"}))
        self._split = msgspec.json.Decoder(_Envelope).decode

    async def read(self, topic: str, number: int, data: bytes | None) -> Any:
        """A message's key (0) or value (1)."""
        if data is None:
            return None
        if self._enveloped[number]:
            return self._split(data).payload
        converter = self._converters[number]
        if isinstance(converter, JsonConverter):
            return msgspec.json.decode(data)
        await converter.prepare_data(topic, data)
        schema, value = converter.to_connect(topic, data)
        return self.written(number, schema, value)

    def written(self, number: int, schema: Schema | None, value: Any) -> Any:
        """A record's key (0) or value (1)."""
        data = self._writers[number].from_connect("", schema, value)
        return None if data is None else msgspec.json.decode(data)

    async def close(self) -> None:
        """Release what the converters hold."""
        for converter in self._converters:
            await converter.close()


class _Home(NamedTuple):
    """Where a table's events go, and what they look like."""

    topic: str
    plain: bool
    columns: tuple[str, ...]


def home(entry: TableEntry, place: Place, pipeline: Pipeline) -> _Home:
    """Find out by sending a row without values through the connector's transforms."""
    probe = entry.records([dict.fromkeys((column.name for column in entry.table.columns), None)], place)
    try:
        record = pipeline.apply(probe[0]) if probe else None
    except TransformError:
        record = None  # a transform that needs values: the connector's own names it is
    if record is None or record.value_schema is None:
        return _Home(entry.made.topic, plain=False, columns=entry.fields)
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


class Progress:
    """A line on standard error that is written over; nothing where that is no terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._next = 0.0

    def say(self, text: str, *, now: bool = False) -> None:
        """Show a text, at most once a second unless ``now``."""
        moment = time.monotonic()
        if self._shown and (now or moment >= self._next):
            self._next = moment + _PROGRESS_S
            self.write(text)

    def write(self, text: str) -> None:
        """Write it where it is shown."""
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    def end(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")


class Verification:
    """One run.

    Args:
        connector: the connector's configuration, references resolved.
        worker: the worker's properties: converters and Kafka clients.
        wanted: which tables.
        offsets: reads the connector's saved offsets, or None: they can't be asked.
        timeout_s: how long to wait until the topics have reached the place of the view.
        settle_s: without offsets: how long the topics must have been quiet.
        examples: keys to show of each kind of difference.
        folder: for temporary files.
        progress: shows how far it is; None: on a terminal.
    """

    def __init__(
        self,
        connector: Mapping[str, str],
        worker: Mapping[str, str],
        *,
        wanted: Callable[[str], bool],
        offsets: Callable[[], list[dict[str, Any]]] | None = None,
        timeout_s: float = 300.0,
        settle_s: float = 5.0,
        examples: int = 5,
        folder: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        kind = connector.get("connector.class", "")
        if not _CLASSES.fullmatch(kind.strip()):
            raise ConfigInvalid(f"connector.class={kind}: only MySQL and MariaDB connectors can be verified")
        # The class makes its ConfigDef with the worker's common options; what verify needs are the connector's own.
        from connectors.mysql.config import CONFIG

        self._config = CONFIG.parse(connector)
        self._pipeline = build_pipeline(connector)
        self._forms = Forms(connector, worker)
        self._worker = worker
        self._wanted = wanted
        self._offsets = offsets
        self._timeout_s = timeout_s
        self._settle_s = settle_s
        self._examples = examples
        self._folder = folder
        self._progress = progress or Progress()
        self.notes: list[str] = []

    async def run(self) -> list[TableReport]:
        """Compare; one report per table.

        Raises:
            MillraceError: the source, Kafka or the worker can't be asked, or the topics did not reach the place in time.
        """
        view = SourceView(self._config)
        consumer = self._consumer()
        try:
            await view.open(self._wanted)
            await consumer.start()
            homes = {name: home(entry, view.place, self._pipeline) for name, entry in view.tables.items()}
            _check_homes(homes)
            if self._offsets is not None:
                await self._reach(view.place, self._offsets)
            partitions = await self._partitions(consumer, homes)
            if self._offsets is None:
                await self._quiet(consumer, partitions)
            return await self._compare(view, consumer, partitions, homes)
        except KafkaError as error:
            raise Retriable(
                f"Kafka at {self._worker.get('bootstrap.servers')}: {type(error).__name__}: {error}; check "
                "--bootstrap-servers or the worker's properties, and what the user may read"
            ) from error
        finally:
            self._progress.end()
            await consumer.stop()
            await view.close()
            await self._forms.close()

    def _consumer(self) -> AIOKafkaConsumer:
        from aiokafka import AIOKafkaConsumer

        found = kafka_clients.client_arguments(kafka_clients.inherited(self._worker, "consumer."), "consumer")
        # An uncommitted transaction is no part of what readers see; groups are no business of ours.
        return AIOKafkaConsumer(
            **{
                **found.arguments,
                "group_id": None,
                "enable_auto_commit": False,
                "isolation_level": "read_committed",
                "auto_offset_reset": "earliest",
            }
        )

    async def _partitions(self, consumer: AIOKafkaConsumer, homes: Mapping[str, _Home]) -> list[TopicPartition]:
        from aiokafka import TopicPartition

        found: list[TopicPartition] = []
        client = kafka_clients.client_arguments(kafka_clients.inherited(self._worker, "admin."), "admin")
        async with TopicAdmin(client.arguments) as admin:
            for topic in sorted({each.topic for each in homes.values()}):
                count = await admin.partitions(topic)
                if count is None:
                    self.notes.append(f"there is no topic {topic}: nothing was ever sent to it")
                found += [TopicPartition(topic, number) for number in range(count or 0)]
        if found:
            consumer.assign(found)
        return found

    async def _reach(self, place: Place, offsets: Callable[[], list[dict[str, Any]]]) -> None:
        """Wait until the connector says that everything before ``place`` is delivered."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            saved = [(item["partition"], item["offset"] or {}) for item in await asyncio.to_thread(offsets)]
            try:
                done, at = reached(self._config["topic.prefix"], saved, place)
            except ValueError as error:
                raise ConfigInvalid(f"a saved offset of the connector is not understood: {error}") from error
            if done:
                return
            if time.monotonic() > deadline:
                raise Retriable(
                    f"the connector did not reach {place.file}:{place.pos} within {self._timeout_s:g} s; it is at "
                    f"{at}. Look at its status and lag, or wait longer with --timeout"
                )
            self._progress.say(
                f"waiting for the connector: it is at {at}, the tables are read at {place.file}:{place.pos}"
            )
            await asyncio.sleep(min(_POLL_S, self._settle_s / 4))

    async def _quiet(self, consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition]) -> None:
        """Wait until nothing is added to the topics any more: the best that can be done without asking the connector."""
        self.notes.append(
            "the connector's position was not asked (give --rest and --connector): the topics were read once "
            f"they had been quiet for {self._settle_s:g} s"
        )
        deadline = time.monotonic() + self._timeout_s
        ends, since = None, time.monotonic()
        while partitions:
            found = await consumer.end_offsets(partitions)
            now = time.monotonic()
            if found != ends:
                ends, since = found, now
            elif now - since >= self._settle_s:
                return
            if now > deadline:
                raise Retriable(
                    f"the topics did not become quiet within {self._timeout_s:g} s: give --rest and --connector, "
                    "so that the connector can be asked for its position"
                )
            self._progress.say("waiting for the topics to become quiet")
            await asyncio.sleep(min(_POLL_S, self._settle_s / 4))

    async def _compare(
        self,
        view: SourceView,
        consumer: AIOKafkaConsumer,
        partitions: Sequence[TopicPartition],
        homes: Mapping[str, _Home],
    ) -> list[TableReport]:
        ends = await consumer.end_offsets(partitions) if partitions else {}
        starts = await consumer.beginning_offsets(partitions) if partitions else {}
        expected = sum(ends.values()) - sum(starts.values()) + await view.estimate()
        keys = {name: entry.key for name, entry in view.tables.items()}
        plain = {each.topic: name for name, each in homes.items() if each.plain}
        columns = {name: each.columns for name, each in homes.items()}
        with Comparison(columns, expected=expected, examples=self._examples, folder=self._folder) as comparison:
            for name, each in homes.items():
                comparison.reports[name].topics.append(each.topic)
                if each.plain and not keys[name]:
                    comparison.reports[name].note = "rows without key and without envelope: updates look like inserts"
            parts = {name: entry.logical for name, entry in view.tables.items()}
            await self._read_topics(comparison, Reader(keys, plain, view.place, parts), consumer, starts, ends)
            reader = Reader(keys, plain, None, parts)
            for entry in view.tables.values():
                await self._read_table(comparison, reader, view, entry)
            steps = comparison.compare()
            while (step := await asyncio.to_thread(next, steps, None)) is not None:
                self._progress.say(f"comparing: {step[0]} of {step[1]}")
            return list(comparison.reports.values())

    async def _read_topics(
        self,
        comparison: Comparison,
        reader: Reader,
        consumer: AIOKafkaConsumer,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        left = {partition: end for partition, end in ends.items() if starts[partition] < end}
        if not left:
            return
        consumer.assign(list(left))
        await consumer.seek_to_beginning(*left)
        read = 0
        while left:
            batches = await consumer.getmany(*left, timeout_ms=_FETCH_MS, max_records=_MOST_RECORDS)
            for partition, messages in batches.items():
                wanted = [message for message in messages if message.offset < ends[partition]]
                read += len(wanted)
                for message in wanted:
                    await self._message(comparison, reader, message)
            for partition in list(left):
                # The position also passes over what is no record: marks of transactions, and what compaction took away.
                if await consumer.position(partition) >= left[partition]:
                    del left[partition]
                    consumer.pause(partition)
            self._progress.say(f"reading topics: {read} messages, {len(left)} partitions to go")

    async def _message(self, comparison: Comparison, reader: Reader, message: Any) -> None:
        try:
            key = await self._forms.read(message.topic, 0, message.key)
            value = await self._forms.read(message.topic, 1, message.value)
            changes = list(reader.changes(message.topic, key, value))
        except (msgspec.MsgspecError, Skippable, ValueError, KeyError, TypeError) as error:
            raise ConfigInvalid(
                f"message {message.topic}-{message.partition}@{message.offset} can't be read: {error}. Do the "
                "converters of the configuration fit, and is all of the topic the connector's?"
            ) from error
        for change in changes:
            if change.kind == "set" and change.row is not None:
                comparison.topic_row(change.table, change.key, change.row)
            elif change.kind == "later":
                comparison.topic_later(change.table, change.key)
            else:
                comparison.topic_gone(change.table, change.key, change.row)

    async def _read_table(self, comparison: Comparison, reader: Reader, view: SourceView, entry: TableEntry) -> None:
        read = 0
        async for records in view.records(entry):
            read += len(records)
            await asyncio.to_thread(self._records, comparison, reader, records)
            self._progress.say(f"reading {entry.name}: {read} rows")
        if entry.bad:
            self.notes.append(f"{entry.bad} rows of {entry.name} can't be read and were left out: {entry.complaint}")

    def _records(self, comparison: Comparison, reader: Reader, records: Sequence[SourceRecord]) -> None:
        for record in records:
            sent = self._pipeline.apply(record)
            if sent is None:
                continue
            key = self._forms.written(0, sent.key_schema, sent.key)
            value = self._forms.written(1, sent.value_schema, sent.value)
            for change in reader.changes(sent.topic, key, value):
                if change.row is not None:
                    comparison.source(change.table, change.key, change.row)


def _check_homes(homes: Mapping[str, _Home]) -> None:
    taken: dict[str, str] = {}
    for name, each in homes.items():
        if each.plain and taken.setdefault(each.topic, name) != name:
            raise ConfigInvalid(
                f"{name} and {taken[each.topic]} both go to {each.topic} as plain rows, which don't tell their "
                "table: verify them one by one with --tables if their keys differ, or a topic with envelopes"
            )


# The command.


def run_verify(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    try:
        made = _prepared(options)
        reports = asyncio.run(made.run())
    except (MillraceError, OSError) as error:
        sys.stderr.write(f"millrace verify: {error}\n")
        return FAILED
    sys.stdout.write((as_json if options.json else as_text)(reports, made.notes) + "\n")
    return EQUAL if all(report.equal for report in reports) else DIFFERENT


def _prepared(options: argparse.Namespace) -> Verification:
    worker = load(options.worker) if options.worker else {}
    transformer = ConfigTransformer(build_providers(worker))
    worker, _ = transformer.transform(worker)
    if options.bootstrap_servers:
        worker["bootstrap.servers"] = options.bootstrap_servers
    if "bootstrap.servers" not in worker:
        raise ConfigInvalid("say where Kafka is: --worker FILE or --bootstrap-servers HOST:PORT")
    name = options.connector or ""
    if options.connector_config:
        raw = read_connector(Path(options.connector_config))
        name = name or (raw["name"] if options.rest else "")
    elif name and options.rest:
        raw = rest(options.rest, name, "config")
    else:
        raise ConfigInvalid("say which connector: --connector-config FILE, or --connector NAME with --rest URL")
    hidden = sorted(key for key, value in raw.items() if value == MASK)
    if hidden:
        raise ConfigInvalid(
            f"the worker doesn't show {', '.join(hidden)}: give the configuration with --connector-config "
            "FILE, or write secrets as references to a config provider and give --worker FILE"
        )
    raw, _ = transformer.transform(raw)
    try:
        pattern = re.compile(options.tables, re.IGNORECASE)
    except re.error as error:
        raise ConfigInvalid(f"--tables {options.tables!r}: {error}") from error
    offsets = (lambda: list(rest(options.rest, name, "offsets")["offsets"])) if options.rest and name else None
    return Verification(
        raw,
        worker,
        wanted=lambda table: not options.tables or pattern.fullmatch(table) is not None,
        offsets=offsets,
        timeout_s=options.timeout,
        settle_s=options.settle,
        examples=options.examples,
        folder=options.tmp,
    )


def rest(url: str, connector: str, what: str) -> dict[str, Any]:
    """What a worker says of a connector. Blocks.

    Raises:
        ConfigInvalid: it refuses or there is none.
        Retriable: it is away.
    """
    from urllib.parse import quote

    from worker.rest.client import get

    target = f"{url.rstrip('/')}/connectors/{quote(connector, safe='')}/{what}"
    try:
        found: dict[str, Any] = json.loads(get(target))
    except (OSError, ValueError) as error:
        raise Retriable(f"{target}: {error}; is a worker there?") from error
    return found


def as_json(reports: Sequence[TableReport], notes: Sequence[str]) -> str:
    """The result as one JSON document."""
    tables = [
        {
            "table": report.table,
            "topics": report.topics,
            "equal": report.equal,
            "rows": {"source": report.total.source_rows, "topic": report.total.topic_rows},
            "checksum": {
                "source": f"{report.total.source_checksum:016x}",
                "topic": f"{report.total.topic_checksum:016x}",
            },
            "missing": report.missing,
            "extra": report.extra,
            "different": report.different,
            "unsettled": report.unsettled,
            "older_structure": report.older_structure,
            "examples": report.examples,
            "key_ranges": report.bad_ranges(),
            "note": report.note,
        }
        for report in reports
    ]
    return json.dumps(
        {"equal": all(report.equal for report in reports), "notes": list(notes), "tables": tables},
        indent=1,
        ensure_ascii=False,
    )


def as_text(reports: Sequence[TableReport], notes: Sequence[str]) -> str:
    """The result for people."""
    lines: list[str] = []
    for report in reports:
        total = report.total
        verdict = "equal" if report.equal else "DIFFERENT"
        lines.append(
            f"{report.table} and {', '.join(report.topics)}: {verdict}, {total.source_rows} rows in the source, "
            f"{total.topic_rows} on the topic, checksums {total.source_checksum:016x} {total.topic_checksum:016x}"
        )
        for kind, count, meaning in (
            ("missing", report.missing, "not on the topic"),
            ("extra", report.extra, "on the topic only"),
            ("different", report.different, "with other contents"),
            ("unsettled", report.unsettled, "that can't be compared (changed again since, or of an older structure)"),
        ):
            if count:
                lines.append(f"  {kind}: {count} rows {meaning}, such as {', '.join(report.examples.get(kind, ()))}")
        if report.older_structure:
            lines.append(
                f"  {report.older_structure} rows have an older structure on the topic: compared on common columns"
            )
        bad = report.bad_ranges()
        if bad:
            lines.append(
                "  first key column: "
                + ", ".join(f"{low}..{high}" for low, high in bad[:10])
                + (f" and {len(bad) - 10} further ranges" if len(bad) > 10 else "")
            )
        if report.note:
            lines.append(f"  {report.note}")
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])
