"""Orders to a running connector, as Debezium has them: a row in the signal table, or a record in the signal topic.

``parse_row`` and ``parse_message`` read one, ``apply_signal`` says what follows from it: pure functions. ``KafkaSignals`` reads
the topic.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import msgspec

from connectors.errors import ConfigInvalid, Retriable, Skippable
from connectors.java_regex import compile_java
from connectors.mysql.config.validators import is_binlog_file
from connectors.mysql.source import gtid
from connectors.mysql.source.statements import is_condition, select_condition
from connectors.snapshot.requests import SnapshotRequest
from connectors.source_options import start_times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiokafka import AIOKafkaConsumer

EXECUTE: Final = "execute-snapshot"
STOP: Final = "stop-snapshot"
PAUSE: Final = "pause-snapshot"
RESUME: Final = "resume-snapshot"
LOG: Final = "log"
SET_POSITION: Final = "set-binlog-position"
TYPES: Final = (EXECUTE, STOP, PAUSE, RESUME, LOG, SET_POSITION)
#: Written by Debezium itself around a chunk of an incremental snapshot; a table may still hold them.
WINDOWS: Final = frozenset({"snapshot-window-open", "snapshot-window-close"})

_log = logging.getLogger(__name__)
_UNSAFE_CHARS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MOST_ID: Final = 64
_STATEMENT: Final = re.compile(r"(SELECT|WITH)\b", re.IGNORECASE)


class Signal(NamedTuple):
    """One signal: a request that a user sends through a table or a topic.

    Attributes:
        id: as its author wrote it; need not be unique.
        type: one of ``TYPES``, or something unknown.
        data: its object; empty if it has none.
        at: where it came from (a position in the binlog, an offset in the topic): the same when it is read again after a
            restart.
        written_ms: when it was written, milliseconds since 1970; 0: unknown. The same for all tasks, and after a restart.
    """

    id: str
    type: str
    data: dict[str, Any]
    at: str
    written_ms: int = 0


class SignalPosition(NamedTuple):
    """The position that ``set-binlog-position`` names for the stream: a file and a position, or a GTID set."""

    file: str = ""
    pos: int = 0
    gtids: str = ""


class SignalOutcome(NamedTuple):
    """The effects of a signal.

    Attributes:
        requests: the complete list of requests from signals, changed or not.
        changed: whether it is another list than before.
        message: what to log; ``{}`` in it stands for the present offset, as in Debezium.
        position: where the stream must continue, or None.
    """

    requests: tuple[SnapshotRequest, ...]
    changed: bool
    message: str
    position: SignalPosition | None = None


def parse_row(row: Mapping[str, Any] | None, at: str, written_ms: int = 0) -> Signal | None:
    """The order that a new row of the signal table is; None for one of Debezium's own marks.

    Args:
        row: field name -> value; what counts is the order of the three columns, not their names.
        at: where the row was met.
        written_ms: when it was written, milliseconds since 1970.

    Raises:
        Skippable: it is no order; the message says why.
    """
    values = list((row or {}).values())
    if len(values) != 3:
        raise Skippable(
            f"the signal at {at} has {len(values)} columns ({', '.join(row or ())}); the signal table needs three: "
            "id, type and data, such as (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)"
        )
    name, kind, data = values
    if not isinstance(name, str) or not isinstance(kind, str) or not isinstance(data, str | None):
        raise Skippable(
            f"the signal at {at} must have strings in its three columns id, type and data; it has {values!r}"
        )
    if kind in WINDOWS:
        return None
    return Signal(name, kind.strip(), _parse_object(data, at), at, written_ms)


def parse_message(key: bytes | None, value: bytes | None, prefix: str, at: str, written_ms: int = 0) -> Signal | None:
    """The order in a record of the signal topic; None if it is not for this connector (its key is another ``topic.prefix``).

    Args:
        key: the record's key.
        value: the record's value.
        prefix: ``topic.prefix``.
        at: where the record was met.
        written_ms: the record's timestamp.

    Raises:
        Skippable: it is no order; the message says why.
    """
    if (key or b"").decode("utf-8", "replace") != prefix or not value:
        return None
    document = _parse_object(value, at)
    kind, data = document.get("type"), document.get("data")
    if not isinstance(kind, str):
        raise Skippable(f'the signal at {at} has no "type"; the form is {{"type": "{EXECUTE}", "data": {{...}}}}')
    if isinstance(data, str):
        data = _parse_object(data, at)
    if data is not None and not isinstance(data, dict):
        raise Skippable(f'"data" of the signal at {at} must be an object, it is {data!r}')
    return Signal(str(document.get("id") or at), kind.strip(), data or {}, at, written_ms)


def _parse_object(json_text: str | bytes | None, at: str) -> dict[str, Any]:
    if not json_text or not json_text.strip():
        return {}
    try:
        document = msgspec.json.decode(json_text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Skippable(f"the signal at {at} is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise Skippable(f"the signal at {at} must be a JSON object, it is {document!r}")
    return document


def apply_signal(signal: Signal, requests: Sequence[SnapshotRequest], now_ms: int) -> SignalOutcome:
    """Return the effects of a signal.

    Args:
        signal: the signal.
        requests: those that earlier signals have made.
        now_ms: time of the signal, milliseconds since 1970.

    Raises:
        Skippable: it can't be carried out; the message says why.
    """
    before = tuple(requests)
    if signal.type == EXECUTE:
        new_request = _make_request(signal, now_ms)
        if any(request.id == new_request.id for request in before):
            return SignalOutcome(before, changed=False, message=f"signal {signal.id} was taken before")
        note = (
            "; a blocking one is done at the same time as the stream too"
            if _snapshot_kind(signal) == "blocking"
            else ""
        )
        if new_request.start_ms > now_ms:
            note += f"; it begins at {datetime.fromtimestamp(new_request.start_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return SignalOutcome(
            (*before, new_request),
            changed=True,
            message=f"signal {signal.id}: snapshot {new_request.id} of {', '.join(new_request.tables)}{note}",
        )
    if signal.type == STOP:
        names = _table_names(signal, required=False)
        after = tuple(_remove_tables(request, names) for request in before)
        return SignalOutcome(
            after, after != before, f"signal {signal.id}: snapshots of {', '.join(names) or 'all tables'} end"
        )
    if signal.type in (PAUSE, RESUME):
        old, new = ("running", "paused") if signal.type == PAUSE else ("paused", "running")
        after = tuple(
            msgspec.structs.replace(request, state=new) if request.state == old else request for request in before
        )
        return SignalOutcome(after, after != before, f"signal {signal.id}: snapshots are {new} now")
    if signal.type == LOG:
        message = signal.data.get("message")
        if not isinstance(message, str) or not message:
            raise Skippable(f'signal {signal.id} of type {LOG} needs {{"message": "..."}}')
        return SignalOutcome(before, changed=False, message=message)
    if signal.type == SET_POSITION:
        where = _read_position(signal)
        return SignalOutcome(
            before,
            changed=False,
            position=where,
            message=f"signal {signal.id}: the stream continues at {where.gtids or f'{where.file}:{where.pos}'}",
        )
    raise Skippable(f"signal {signal.id} has the unknown type {signal.type!r}; types are {', '.join(TYPES)}")


def request_id(signal: Signal) -> str:
    """The id of the request that an order makes: the same for the same order, another one for a later one with the same id."""
    clean = _UNSAFE_CHARS.sub("-", signal.id).strip("-")[:_MOST_ID] or "signal"
    return f"{clean}-{crc32(signal.at.encode()):08x}"


def _make_request(signal: Signal, now_ms: int) -> SnapshotRequest:
    tables = _table_names(signal, required=True)
    kind = _snapshot_kind(signal)
    if kind not in ("incremental", "blocking"):
        raise Skippable(
            f"signal {signal.id}: there is no type {kind!r} of snapshots; types are INCREMENTAL and BLOCKING"
        )
    conditions: dict[str, str] = {}
    selects: dict[str, str] = {}
    entries = signal.data.get("additional-conditions") or []
    for entry in entries if isinstance(entries, list) else [entries]:
        table, condition = (
            (entry.get("data-collection"), entry.get("filter")) if isinstance(entry, dict) else (None, None)
        )
        if not isinstance(table, str) or not isinstance(condition, str):
            raise Skippable(
                f'signal {signal.id}: each of "additional-conditions" must be {{"data-collection": '
                f'"database.table", "filter": "..."}}, not {entry!r}'
            )
        statement = condition.strip().rstrip(";")
        if _STATEMENT.match(statement):
            # As Debezium has it for blocking snapshots: the statement whose rows are read.
            part = select_condition(table.strip().replace("\\.", "."), _check_condition(signal, statement))
            if part is None:
                selects[table.strip()] = statement
            condition = part or ""
        if _strip_where(condition):
            conditions[table.strip()] = _check_condition(signal, _strip_where(condition))
    old = signal.data.get("additional-condition")
    if isinstance(old, str) and _strip_where(old):
        conditions = {**dict.fromkeys(tables, _check_condition(signal, _strip_where(old))), **conditions}
    surrogate = signal.data.get("surrogate-key")
    return SnapshotRequest(
        id=request_id(signal),
        tables=tables,
        conditions=conditions,
        selects=selects,
        surrogate_key=surrogate.strip() if isinstance(surrogate, str) else "",
        origin="signal",
        created_ms=signal.written_ms or now_ms,
        start_ms=_start_ms(signal, now_ms),
    )


def batch_id(request: SnapshotRequest) -> int:
    """The UMS ``batchId`` of a snapshot on request: the same for all tasks, whatever their clocks say."""
    if request.origin != "signal":
        return request.created_ms
    # Binlogs tell the time of a signal in whole seconds: several of one second need numbers of their own.
    return request.created_ms + crc32(request.id.encode()) % 1000


def _start_ms(signal: Signal, now_ms: int) -> int:
    """When the snapshot begins, counted from the time at which the signal was written; 0: at once."""
    # As REST has them; with hyphens, as the other members of a signal.
    at, zone = (signal.data.get(name, signal.data.get(name.replace("_", "-"))) for name in ("start_at", "time_zone"))
    if at is None and zone is None:
        return 0
    if not isinstance(at, str) or not isinstance(zone or "", str):
        raise Skippable(
            f'signal {signal.id}: "start_at" must be a string such as 02:30 or 2026-12-01T02:30:00, and "time_zone" '
            f"the name of its time zone, not {at!r} and {zone!r}"
        )
    try:
        return start_times.start_ms(at, zone or "", signal.written_ms or now_ms)
    except ConfigInvalid as error:
        raise Skippable(f"signal {signal.id}: {error}") from None


def _check_condition(signal: Signal, condition: str) -> str:
    if not is_condition(condition):
        raise Skippable(f"signal {signal.id}: {condition!r} must be one SQL condition, without comments and semicolons")
    return condition


def _strip_where(condition: str) -> str:
    """A condition without the WHERE that some write before it."""
    return (
        re.sub(r"\s*where\s+", "", condition, count=1, flags=re.IGNORECASE).strip()
        if re.match(r"\s*where\s", condition, re.IGNORECASE)
        else condition.strip()
    )


def _snapshot_kind(signal: Signal) -> str:
    return str(signal.data.get("type") or "incremental").strip().lower()


def _table_names(signal: Signal, *, required: bool) -> list[str]:
    collections = signal.data.get("data-collections")
    if collections is not None and (
        not isinstance(collections, list) or not all(isinstance(name, str) for name in collections)
    ):
        raise Skippable(f'signal {signal.id}: "data-collections" must be a list of strings, not {collections!r}')
    table_names = [name.strip() for name in collections or () if name.strip()]
    if required and not table_names:
        raise Skippable(
            f'signal {signal.id} of type {signal.type} needs {{"data-collections": ["database.table", ...]}}'
        )
    for name in table_names:
        try:
            compile_java(name)
        except ConfigInvalid as error:
            raise Skippable(f"signal {signal.id}: {name!r} in data-collections: {error}") from None
    return table_names


def _remove_tables(request: SnapshotRequest, names: Sequence[str]) -> SnapshotRequest:
    """The request without these tables; cancelled if none is left."""
    if request.state == "cancelled":
        return request
    left = [table for table in request.tables if table not in names]
    if not names or not left:
        return msgspec.structs.replace(request, state="cancelled")
    # An expression may stand for tables of which some are to be left out.
    unwanted = "".join(f"(?!(?:{name})$)" for name in names if name not in request.tables)
    return msgspec.structs.replace(request, tables=[f"{unwanted}(?:{table})" if unwanted else table for table in left])


def _read_position(signal: Signal) -> SignalPosition:
    file, pos, gtids = (signal.data.get(name) for name in ("binlog_filename", "binlog_position", "gtid_set"))
    has_position = file not in (None, "") or pos is not None
    if has_position == bool(gtids):
        raise Skippable(
            f"signal {signal.id} of type {SET_POSITION} needs either binlog_filename and binlog_position, or gtid_set"
        )
    if gtids:
        gtid_set = "".join(str(gtids).split())
        flavor = "mysql" if ":" in gtid_set else "mariadb"
        try:
            gtid.parse_gtids(flavor, gtid_set)
        except (ValueError, ConfigInvalid) as error:
            raise Skippable(f"signal {signal.id}: {gtids!r} is no GTID set: {error}") from None
        return SignalPosition(gtids=gtid_set)
    if (
        not isinstance(file, str)
        or not is_binlog_file(file)
        or not isinstance(pos, int)
        or isinstance(pos, bool)
        or pos < 0
    ):
        raise Skippable(
            f"signal {signal.id}: binlog_filename must be the name of a binlog file (mysql-bin.000042) and "
            f"binlog_position a number from 0, not {file!r} and {pos!r}"
        )
    return SignalPosition(file=file, pos=max(4, pos))


class KafkaSignals:
    """Reads the signal topic's first partition; its place is kept as the consumer group's.

    Call ``read`` now and then, and ``commit`` once the orders have been carried out. At least once: an order may come again
    after a crash, with the same ``at``.

    Args:
        brokers: addresses of the cluster.
        topic: the signal topic.
        group: the consumer group that keeps the place; tasks of one connector need one each.
        prefix: ``topic.prefix``: the key of orders for this connector.
    """

    def __init__(self, brokers: str, topic: str, group: str, prefix: str) -> None:
        self._brokers = brokers
        self._topic = topic
        self._group = group
        self._prefix = prefix
        self._consumer: AIOKafkaConsumer | None = None
        self._uncommitted = False

    async def start(self) -> AIOKafkaConsumer:
        """Connect.

        Raises:
            Retriable: the cluster is unavailable.
        """
        from aiokafka import AIOKafkaConsumer, TopicPartition
        from aiokafka.errors import KafkaError

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._brokers,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        try:
            await consumer.start()
            consumer.assign([TopicPartition(self._topic, 0)])
        except (KafkaError, OSError) as error:
            await consumer.stop()
            raise Retriable(f"the signal topic {self._topic} at {self._brokers} can't be read: {error!r}") from error
        self._consumer = consumer
        return consumer

    async def read(self) -> list[Signal]:
        """The signals that have arrived; waits for a second if there are none. Records that are not signals are logged.

        Raises:
            Retriable: the cluster is unavailable.
        """
        from aiokafka.errors import KafkaError

        consumer = self._consumer or await self.start()
        received: list[Signal] = []
        try:
            fetched = await consumer.getmany(timeout_ms=1_000, max_records=100)
        except KafkaError as error:
            raise Retriable(f"the signal topic {self._topic} at {self._brokers} can't be read: {error!r}") from error
        self._uncommitted = self._uncommitted or bool(fetched)
        for records in fetched.values():
            for record in records:
                try:
                    signal = parse_message(
                        record.key,
                        record.value,
                        self._prefix,
                        f"{self._topic}-0:{record.offset}",
                        max(0, record.timestamp),
                    )
                except Skippable as error:
                    _log.warning("%s; it is passed over", error)
                    continue
                if signal is not None:
                    received.append(signal)
        return received

    async def commit(self) -> None:
        """Commit the offsets of the signals read so far, which have been carried out.

        Raises:
            Retriable: the cluster is unavailable.
        """
        from aiokafka.errors import KafkaError

        if self._consumer is None or not self._uncommitted:
            return
        try:
            await self._consumer.commit()
            self._uncommitted = False
        except KafkaError as error:
            raise Retriable(f"the place in the signal topic {self._topic} can't be saved: {error!r}") from error

    async def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()
