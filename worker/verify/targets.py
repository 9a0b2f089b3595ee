"""A verification of a flow's target: what its topics say of rows, with the rows that the sink has written.

Both change meanwhile, so what differs is looked at again, as in ``worker.verify.cells``. The sink's own code reads its target:
a sink that can be read back has a method ``read_back``.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from connectors.errors import ConfigInvalid, Skippable
from connectors.verify.cells import MOST_OPEN, CellComparison, WriteForms
from connectors.verify.values import differing_values, find_key, key_text, same_row
from connectors.verify.writes import CellTable
from worker.verify.messages import (
    RowThrottle,
    TopicReader,
    VerificationRequest,
    VerifyProgress,
    kafka_refusals,
    unreadable_message,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from connectors.verify.events import RowChange
    from connectors.verify.rows import TableReport

_SETTLE_S: Final = 5.0
_decode: Final = msgspec.json.Decoder().decode


class _FlowPart(NamedTuple):
    """A part of a flow that has to be readable.

    Attributes:
        group: of the entry points of its classes.
        option: names the class.
        noun: the word for it in messages.
        method: of the class, makes what reads it.
        reason: the attribute with the reason why a class lacks the method.
        offer: the beginning of the list of those that have it.
    """

    group: str
    option: str
    noun: str
    method: str
    reason: str
    offer: str


_SINK: Final = _FlowPart(
    "millrace.sinks",
    "sink.type",
    "sink",
    "read_back",
    "not_read_back",
    "Verify reads the targets of these sinks back",
)
_SOURCE: Final = _FlowPart(
    "millrace.sources",
    "source.format",
    "form",
    "read_messages",
    "no_rows",
    "Verify reads topics of flows in these forms",
)


class VerifiedTarget(Protocol):
    """A sink's target. Methods block.

    ``by_offset``, if it has that: whether the change with the largest offset in Kafka wins, whatever its order number.
    ``repeats_rows``, if it has that: whether reading may give one row several times; of two rows with one key the last counts.
    """

    def name(self, namespace: str) -> str:
        """The name of the table that a source table (``database.table``) is written to."""

    def rows(self, namespace: str) -> Iterator[list[dict[str, Any]]]:
        """Its rows, some at a time."""


class KeyedRow:
    """The row that writes of one key leave. Meets ``AddedUp``.

    A write of a topic is ``["set", order, row]`` or ``["gone", order]``. As in sinks the one with the largest order number
    wins; of writes with one number the last. A row of a target is ``["row", row]``: where a key has several, all of them count.
    """

    def __init__(self, table: CellTable, writes: list[Any], now_s: float) -> None:
        del table, now_s
        self.unknown = False
        self.rows: dict[bytes, dict[str, Any]] = {}
        newest: Any = None
        rows = [write[1] for write in writes if write[0] == "row"]
        # In an order that does not depend on how the target is read, so that two looks see the same.
        for number, row in enumerate(sorted(rows, key=repr)):
            self.rows[b"[%d]" % number if number else b"null"] = row
        for write in writes:
            if write[0] == "row":
                continue
            if newest is None or write[1] >= newest[1]:
                newest = write
        if newest is not None and newest[0] == "set":
            self.rows[b"null"] = newest[2]


#: The target's rows are the first side. Their values have types of the driver; the files are this process's own.
_FORMS: Final = WriteForms(
    add_up=KeyedRow,
    equal=lambda target, message: same_row(message, target),
    differing=lambda target, message: differing_values(message, target)[::-1],
    pack=pickle.dumps,
    unpack=pickle.loads,
)


class FlowMessages(Protocol):
    """The messages of a flow's topics, read as its job reads them."""

    async def read(self, message: Any) -> list[RowChange]:
        """The changes of rows that a message says, in order."""

    async def close(self) -> None:
        """Release what it holds."""


class TargetVerification:
    """One run.

    Args:
        connector: the flow's configuration, references resolved.
        worker: the worker's properties: Kafka clients.
        asked: what is asked; ``includes`` is about topics.

    Raises:
        ConfigInvalid: it can't be verified.
    """

    def __init__(self, connector: Mapping[str, str], worker: Mapping[str, str], asked: VerificationRequest) -> None:
        self._target = open_target(connector)
        self._messages = open_messages(connector)
        self._by_offset = bool(getattr(self._target, "by_offset", False))
        self._repeats_rows = bool(getattr(self._target, "repeats_rows", False))
        self._topics = [topic.strip() for topic in connector.get("source.topics", "").split(",") if topic.strip()]
        bootstrap = connector.get("kafka.bootstrap.servers")
        self._worker = {**worker, **({"bootstrap.servers": bootstrap} if bootstrap else {})}
        self._asked = asked
        self._settle_s = _SETTLE_S if asked.settle_s is None else asked.settle_s
        self._progress = asked.progress or VerifyProgress()
        self._throttle = RowThrottle(asked.rows_per_s)
        #: Topic -> the table whose events it has, and the names of its key.
        self._tables: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.notes = ['"source" is the topic here, and "topic" the target of the sink']

    async def names(self) -> list[str]:
        """The topics that would be compared."""
        return [topic for topic in self._topics if self._asked.includes(topic)]

    async def run(self) -> list[TableReport]:
        """Compare; one report per topic. See ``reports`` for the errors."""
        return [report async for report in self.reports()]

    async def reports(self) -> AsyncIterator[TableReport]:
        """Compare the topics one after the other with their tables, and give the report of each.

        Raises:
            MillraceError: the target or Kafka can't be asked.
        """
        topics = TopicReader(self._worker, self._progress, self.notes)
        try:
            with kafka_refusals(self._worker):
                await topics.start()
                names = await self.names()
                await topics.open(names)
                for topic in names:
                    yield await self._compare_topic(topics, topic)
        finally:
            self._progress.end()
            await topics.stop()
            await self._messages.close()

    async def _compare_topic(self, topics: TopicReader, topic: str) -> TableReport:
        topics.choose({topic})
        table = CellTable(topic, (), (), (), (), frozenset(), frozenset(), {})
        with CellComparison(
            {topic: table},
            expected=2 * await topics.waiting(),
            examples=self._asked.examples,
            folder=self._asked.folder,
            forms=_FORMS,
        ) as comparison:
            await topics.read(lambda messages: self._add_messages(comparison.topic, messages))
            await self._read_target(topic, comparison.source)
            steps = comparison.compare(0)
            while (step := await asyncio.to_thread(next, steps, None)) is not None:
                self._progress.say(f"comparing: {step[0]} of {step[1]}")
            if len(comparison.open) >= MOST_OPEN:
                self.notes.append(f"{topic}: more than {MOST_OPEN} rows differ: the others were not looked at again")
            changing = len(comparison.open)
            # Whatever reading has taken: what differs is looked at again once at least.
            deadline = time.monotonic() + self._asked.timeout_s
            while comparison.open and changing and time.monotonic() < deadline:
                self._progress.say(f"waiting for the sink: {len(comparison.open)} rows differ", now=True)
                await asyncio.sleep(self._settle_s)
                comparison.reread()
                await topics.read(lambda messages: self._add_messages(comparison.topic_again, messages))
                await self._read_target(topic, comparison.source_again)
                changing = await asyncio.to_thread(comparison.look_again, 0)
            await asyncio.to_thread(comparison.finish, 0)
            report = comparison.reports[topic]
        if topic in self._tables:
            report.source_table = self._tables[topic][0]
            report.topics = [self._target.name(report.source_table)]
            report.condition = ""
        else:
            report.note = (
                "no message of the topic is about a row, so its table in the target is unknown and was not read"
            )
        return swap_sides(report)

    async def _add_messages(self, add: Any, messages: Sequence[Any]) -> None:
        for message in messages:
            try:
                changes = await self._messages.read(message)
            except (msgspec.MsgspecError, Skippable, ValueError, KeyError, TypeError) as error:
                raise unreadable_message(message, error) from error
            for change in changes:
                namespace, _ = self._tables.setdefault(message.topic, (change.namespace, tuple(change.key)))
                if namespace != change.namespace:
                    raise ConfigInvalid(
                        f"{message.topic} has events of {namespace} and of {change.namespace}: verify compares one table; "
                        "source.tables chooses one"
                    )
                order = message.offset if self._by_offset or change.order is None else change.order
                write = ["gone", order] if change.row is None else ["set", order, change.row]
                add(message.topic, _decode(key_text(change.key)), [write])

    async def _read_target(self, topic: str, add: Any) -> None:
        if topic not in self._tables:
            return
        namespace, keys = self._tables[topic]
        parts = self._target.rows(namespace)
        while (rows := await asyncio.to_thread(next, parts, None)) is not None:
            for row in rows:
                key = key_text(find_key(row, keys))
                add(topic, _decode(key), [["set", 0, row] if self._repeats_rows else ["row", row]])
            await self._throttle.spent(len(rows))


def swap_sides(report: TableReport) -> TableReport:
    """The report with the topic as the source: the target was compared with it."""
    report.missing, report.extra = report.extra, report.missing
    examples, total = report.examples, report.total
    for kind, opposite in (("missing", "extra"), ("extra", "missing")):
        if kind in examples or opposite in examples:
            report.examples = {**report.examples, kind: examples.get(opposite, [])}
    for row in report.differences:
        row.kind = {"missing": "extra", "extra": "missing"}.get(row.kind, row.kind)
        row.source, row.topic = row.topic, row.source
    total.source_rows, total.topic_rows = total.topic_rows, total.source_rows
    total.source_checksum, total.topic_checksum = total.topic_checksum, total.source_checksum
    return report


def open_target(connector: Mapping[str, str]) -> VerifiedTarget:
    """The target of a flow.

    Raises:
        ConfigInvalid: it can't be read back, or the flow changes rows on their way.
    """
    if connector.get("sinks"):
        raise ConfigInvalid(f"sinks={connector['sinks']}: verify reads targets of flows with one sink, in sink.type")
    read_back = _find_method(_SINK, connector)
    steps = sorted(name for name in connector if name.startswith(("steps", "transform.step", "mask.")))
    if steps:
        raise ConfigInvalid(f"{steps[0]}: the flow changes rows on their way, so that they are not those of its topics")
    if not connector.get("source.topics"):
        raise ConfigInvalid("verify reads targets of flows with source.topics")
    try:
        target: VerifiedTarget = read_back(connector)
    except ImportError as error:
        raise _lacks_client(_SINK, connector["sink.type"], error) from error
    return target


def open_messages(connector: Mapping[str, str]) -> FlowMessages:
    """The reader of a flow's messages.

    Raises:
        ConfigInvalid: rows can't be read from messages of their form, or an option is missing.
    """
    messages: FlowMessages = _find_method(_SOURCE, connector)(connector)
    return messages


def _find_method(part: _FlowPart, connector: Mapping[str, str]) -> Callable[[Mapping[str, str]], Any]:
    """The method of the class that a flow's option names.

    Raises:
        ConfigInvalid: there is no such class, it has no such method, or a client is not installed.
    """
    name = connector.get(part.option, "")
    entries = {entry.name: entry for entry in entry_points(group=part.group)}
    entry = entries.get(name) or (EntryPoint(name, name, part.group) if ":" in name else None)
    reason = f"there is no such {part.noun}"
    if entry is not None:
        try:
            loaded = entry.load()
        except (ImportError, AttributeError) as error:
            raise _lacks_client(part, name, error) from error
        method: Callable[[Mapping[str, str]], Any] | None = getattr(loaded, part.method, None)
        if method is not None:
            return method
        reason = getattr(loaded, part.reason, "") or f"its class has no method {part.method}"
    raise ConfigInvalid(
        f"{part.option}={name}: {reason}. {part.offer}: {', '.join(_list_readable(entries.values(), part.method))}"
    )


def _lacks_client(part: _FlowPart, name: str, error: Exception) -> ConfigInvalid:
    return ConfigInvalid(
        f"{part.option}={name}: the {part.noun} can't be loaded where verify runs: {error}; install what jobs need there "
        "(pip install 'millrace[spark]')"
    )


def _list_readable(entries: Iterable[EntryPoint], method: str) -> list[str]:
    """The names of the classes that have the method."""
    names = []
    for entry in entries:
        with suppress(ImportError):  # a client that is not installed
            if hasattr(entry.load(), method):
                names.append(entry.name)
    return sorted(names)
