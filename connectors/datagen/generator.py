"""Records as a pure function of (seed, partition, n): what the task sends, and what a verifier compares a topic with."""

from __future__ import annotations

import random
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors import schema as types
from connectors.api import SourceRecord
from connectors.datagen.fields import (
    EPOCH_MS,
    ID,
    PARTITION,
    PAYLOAD,
    SEQUENCE,
    FieldSpec,
    RowSpec,
    random_text,
    random_value,
    row_schema,
    row_spec,
    running_times,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.api import Position
    from connectors.schema import Schema

#: Different rows before values repeat (the id, the sequence number and times never do).
_TEMPLATES: Final = 512
#: From one record's row to the next one's; prime, so that all are used in turn.
_STRIDE: Final = 7919
#: Keys made in advance.
_KEPT_KEYS: Final = 4096
#: Payloads repeat after this many characters.
_PAYLOAD_PERIOD: Final = 1024
#: In envelopes a row is created, updated three times, deleted, and created again.
_LIFE: Final = "cuuud"
_VERSION: Final = "1"


class Generator:
    """The records of one source partition.

    Args:
        seed: other seeds give other values.
        partition: number of the source partition.
        spec: what a row looks like.
        topic: the destination topic; in envelopes it also names schemas, as Debezium does.
        size: about how many bytes a row has as JSON; rows that have more without a payload get none.
        keys: how many different keys the partition has; 0 gives each record its own.
        envelope: wrap rows in Debezium's change events.
    """

    def __init__(
        self,
        seed: int,
        partition: int,
        spec: RowSpec,
        *,
        topic: str = "",
        size: int = 0,
        keys: int = 1000,
        envelope: bool = False,
    ) -> None:
        self.partition = partition
        self.topic = topic
        self.source_partition: Position = {PARTITION: partition}
        self._keys = keys
        self._salt = zlib.crc32(f"{seed}/{partition}".encode())
        self._templates = _make_templates(seed, spec, size)
        self._times = running_times(spec)
        self._flat = tuple(field.name for field in spec.fields if _is_flat(field))
        self._nested = tuple(field.name for field in spec.fields if field.type == "struct" and not _is_flat(field))
        payload = bool(_payload_length(seed, spec, size))
        self._ids = [f"{partition}-{number}" for number in range(min(keys, _KEPT_KEYS))]
        self.key_schema: Schema
        self.value_schema: Schema
        self.value: Callable[[int], dict[str, Any]]
        if envelope:
            self.key_schema = types.struct(f"{topic}.Key", {ID: types.STRING})
            self.value_schema = _envelope_schema(spec, topic, payload=payload)
            self.value = self._make_envelope
        else:
            self.key_schema = types.STRING
            self.value_schema = row_schema(spec, spec.name, payload=payload)
            self.value = self.row
        self._envelope = envelope

    def id(self, n: int) -> str:
        """The key of record ``n`` as text."""
        number = n % self._keys if self._keys else n
        return self._ids[number] if number < len(self._ids) else f"{self.partition}-{number}"

    def key(self, n: int) -> str | dict[str, str]:
        """The key of record ``n``."""
        return {ID: self.id(n)} if self._envelope else self.id(n)

    def row(self, n: int) -> dict[str, Any]:
        """Row ``n``; a new object each time."""
        row = self._templates[(n * _STRIDE + self._salt) % _TEMPLATES].copy()
        row[ID] = self.id(n)
        row[PARTITION] = self.partition
        row[SEQUENCE] = n
        for name in self._times:
            row[name] = EPOCH_MS + n
        for name in self._flat:
            row[name] = row[name].copy()
        for name in self._nested:
            row[name] = _copy_row(row[name])
        return row

    def operation(self, n: int) -> str:
        """The operation of change ``n`` on its row: ``c``, ``u`` or ``d``."""
        return _LIFE[n // self._keys % len(_LIFE)] if self._keys else "c"

    def _make_envelope(self, n: int) -> dict[str, Any]:
        operation = self.operation(n)
        time = EPOCH_MS + n
        return {
            "before": None if operation == "c" else self.row(n - self._keys),
            "after": None if operation == "d" else self.row(n),
            "source": {
                "version": _VERSION,
                "connector": "datagen",
                "name": self.topic,
                "ts_ms": time,
                "snapshot": "false",
                "db": "datagen",
                "table": self.topic,
                PARTITION: self.partition,
                SEQUENCE: n,
            },
            "op": operation,
            "ts_ms": time,
        }

    def records(self, start: int, stop: int) -> list[SourceRecord]:
        """Records ``start`` to ``stop - 1``."""
        partition, topic, key_schema, value_schema = (
            self.source_partition,
            self.topic,
            self.key_schema,
            self.value_schema,
        )
        if self._envelope:
            key, value = self.key, self.value
            return [
                SourceRecord(partition, {SEQUENCE: n}, topic, value(n), value_schema, key(n), key_schema)
                for n in range(start, stop)
            ]
        # What row() does, without a call for each record: this loop is the load's own cost.
        number, salt, templates, times = self.partition, self._salt, self._templates, self._times
        flat, nested, ids, keys, id_count = self._flat, self._nested, self._ids, self._keys, len(self._ids)
        result: list[SourceRecord] = []
        append = result.append
        for n in range(start, stop):
            row = templates[(n * _STRIDE + salt) % _TEMPLATES].copy()
            index = n % keys if keys else n
            row[ID] = record_id = ids[index] if index < id_count else f"{number}-{index}"
            row[PARTITION] = number
            row[SEQUENCE] = n
            for name in times:
                row[name] = EPOCH_MS + n
            for name in flat:
                row[name] = row[name].copy()
            for name in nested:
                row[name] = _copy_row(row[name])
            append(SourceRecord(partition, {SEQUENCE: n}, topic, row, value_schema, record_id, key_schema))
        return result


def record(
    seed: int,
    partition: int,
    n: int,
    *,
    schema: str = "orders",
    topic: str = "",
    size: int = 0,
    keys: int = 1000,
    envelope: str = "plain",
) -> tuple[Any, Any]:
    """Key and value of record ``n`` of ``partition``, with the connector's options of the same meaning."""
    generator = _cached_generator(seed, partition, schema, topic, size, keys, envelope)
    return generator.key(n), generator.value(n)


def identify(value: Mapping[str, Any]) -> tuple[int, int]:
    """Partition and sequence number of a generated value, plain or in an envelope."""
    part = value.get("source", value)
    return part[PARTITION], part[SEQUENCE]


def share_records(records: int, partitions: int, partition: int) -> int:
    """How many of ``records`` in all are of ``partition``; -1 means endless for both."""
    if records < 0:
        return -1
    return records // partitions + (1 if partition < records % partitions else 0)


@lru_cache(maxsize=64)
def _cached_generator(
    seed: int, partition: int, schema: str, topic: str, size: int, keys: int, envelope: str
) -> Generator:
    return Generator(
        seed, partition, row_spec(schema), topic=topic, size=size, keys=keys, envelope=envelope == "debezium"
    )


class _Templates(dict[int, dict[str, Any]]):
    """Rows to copy from, by number. Each is put together when it is first asked for: most tasks of a small load need few."""

    def __init__(self, seed: int, spec: RowSpec, size: int) -> None:
        super().__init__()
        self._seed = seed
        self._spec = spec
        self._payload = _payload_length(seed, spec, size)

    def __missing__(self, number: int) -> dict[str, Any]:
        source = _numbered_source(self._seed, number)
        row = self[number] = _random_row(self._spec, source)
        if self._payload:
            filler = random_text(min(self._payload, _PAYLOAD_PERIOD), source)
            row[PAYLOAD] = (filler * (self._payload // _PAYLOAD_PERIOD + 1))[: self._payload]
        return row


@lru_cache(maxsize=8)
def _make_templates(seed: int, spec: RowSpec, size: int) -> _Templates:
    """The templates of a connector, shared by its partitions."""
    return _Templates(seed, spec, size)


def _numbered_source(seed: int, number: int) -> random.Random:
    return random.Random(seed * _TEMPLATES + number)  # noqa: S311 - a load, not a secret


def _random_row(spec: RowSpec, source: random.Random) -> dict[str, Any]:
    row: dict[str, Any] = {ID: "", PARTITION: 0, SEQUENCE: 0}
    row.update({field.name: random_value(field, source) for field in spec.fields})
    row.update(dict.fromkeys(running_times(spec), EPOCH_MS))
    return row


def _payload_length(seed: int, spec: RowSpec, size: int) -> int:
    """How many characters a row needs to be ``size`` bytes of JSON."""
    if not size:
        return 0
    # What a row has with the numbers of about its hundred-thousandth record.
    row = _random_row(spec, _numbered_source(seed, 0))
    return max(0, size - len(msgspec.json.encode({**row, ID: "0-100", SEQUENCE: 100_000, PAYLOAD: ""})))


def _is_flat(field: FieldSpec) -> bool:
    """Whether a struct can be copied in one call: always there, and nothing in it is a struct."""
    return field.type == "struct" and not field.nulls and all(member.type != "struct" for member in field.fields)


def _copy_row(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    fresh = value.copy()
    for name, member in value.items():
        if type(member) is dict:
            fresh[name] = _copy_row(member)
    return fresh


def _envelope_schema(spec: RowSpec, topic: str, *, payload: bool) -> Schema:
    row = row_schema(spec, f"{topic}.Value", payload=payload, optional=True)
    source = types.struct(
        "io.millrace.connector.datagen.Source",
        {
            "version": types.STRING,
            "connector": types.STRING,
            "name": types.STRING,
            "ts_ms": types.INT64,
            "snapshot": types.OPTIONAL_STRING,
            "db": types.STRING,
            "table": types.STRING,
            PARTITION: types.INT32,
            SEQUENCE: types.INT64,
        },
    )
    return types.struct(
        f"{topic}.Envelope",
        {"before": row, "after": row, "source": source, "op": types.STRING, "ts_ms": types.OPTIONAL_INT64},
        version=1,
    )
