"""Whether values are what their schemas say (the table in ``connectors.schema``), and batches what the contract says."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.schema import DECIMAL, Schema, Type

if TYPE_CHECKING:
    from connectors.api import BadRecord, Batch, SourceRecord

_BITS: Final = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}
_CLASSES: Final[dict[Type, type[Any]]] = {
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
    Type.ARRAY: list,
    Type.MAP: dict,
    Type.STRUCT: dict,
}


def find_mismatch(schema: Schema | None, value: Any, where: str = "value") -> str | None:
    """Where and how ``value`` is not of ``schema``; None if it is."""
    if schema is None:
        return _check_schemaless(value, where)
    if value is None:
        return (
            None if schema.optional or schema.default is not None else f"{where} is null but its schema is not optional"
        )
    bits = _BITS.get(schema.type)
    if bits is not None:
        if not isinstance(value, int) or isinstance(value, bool):
            return f"{where} is a {type(value).__name__}, its schema {schema.type}"
        return None if -(1 << bits) <= value < 1 << bits else f"{where} is out of the range of {schema.type}: {value}"
    expected_class: type[Any] = Decimal if schema.name == DECIMAL else _CLASSES[schema.type]
    if not isinstance(value, expected_class):
        return f"{where} is a {type(value).__name__}, its schema {schema.name or schema.type}"
    if isinstance(value, Decimal):
        scale = int(schema.parameter("scale") or 0)
        exponent = value.as_tuple().exponent
        return None if exponent == -scale else f"{where} has another scale than {scale}: {value}"
    if schema.type is Type.STRUCT:
        unknown = value.keys() - {member.name for member in schema.fields}
        if unknown:
            return f"{where} has fields that its schema lacks: {', '.join(sorted(unknown))}"
        return _first_problem(
            find_mismatch(member.schema, value.get(member.name), f"{where}.{member.name}") for member in schema.fields
        )
    if schema.type is Type.ARRAY:
        return _first_problem(
            find_mismatch(schema.value_schema, item, f"{where}[{index}]") for index, item in enumerate(value)
        )
    if schema.type is Type.MAP:
        return _first_problem(
            problem
            for key, item in value.items()
            for problem in (
                find_mismatch(schema.key_schema, key, f"{where}, key {key!r}"),
                find_mismatch(schema.value_schema, item, f"{where}[{key!r}]"),
            )
        )
    return None


def _check_schemaless(value: Any, where: str) -> str | None:
    if value is None or isinstance(value, str | int | float | bool | bytes | Decimal):
        return None
    if isinstance(value, list):
        return _first_problem(_check_schemaless(item, f"{where}[{index}]") for index, item in enumerate(value))
    if isinstance(value, dict):
        return _first_problem(_check_schemaless(item, f"{where}[{key!r}]") for key, item in value.items())
    return f"{where} is a {type(value).__name__}, which is no plain value"


def _first_problem(problems: Any) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


#: The most records of one batch.
_MOST_RECORDS: Final = 10_000


def batch_problem(batch: Batch) -> str | None:
    """Return the problem with the form of a batch; None if it is correct."""
    if len(batch.records) > _MOST_RECORDS:
        return f"a batch has {len(batch.records)} records; the runtime wants at most a few thousand"
    if batch.transaction not in {"", "commit", "abort"}:
        return f"Batch.transaction is {batch.transaction!r}"
    return (
        _first_problem(map(_record_problem, batch.records))
        or _first_problem(map(_bad_problem, batch.bad))
        or _first_problem(
            _position_problem(partition, "a source partition")
            or (None if offset is None else _position_problem(offset, "a source offset"))
            for partition, offset in batch.offsets
        )
    )


def _record_problem(record: SourceRecord) -> str | None:
    if not isinstance(record.topic, str) or not record.topic:
        return f"a record's topic is {record.topic!r}"
    if record.timestamp is not None and (not isinstance(record.timestamp, int) or record.timestamp < 0):
        return f"a record's timestamp is {record.timestamp!r}; it must be milliseconds since the epoch or None"
    return (
        _position_problem(record.source_partition, "a source partition")
        or _position_problem(record.source_offset, "a source offset")
        or find_mismatch(record.key_schema, record.key, "key")
        or find_mismatch(record.value_schema, record.value)
        or _first_problem(
            find_mismatch(header.schema, header.value, f"header {header.key}") for header in record.headers
        )
    )


def _bad_problem(bad: BadRecord) -> str | None:
    if not isinstance(bad.error, Skippable):
        return f"a bad record's error is a {type(bad.error).__name__}; it must be Skippable: {bad.error}"
    raw: object = bad.raw
    if not isinstance(raw, bytes):
        return f"a bad record's raw input is a {type(raw).__name__}, not bytes"
    return _position_problem(bad.source_partition, "a source partition") or _position_problem(
        bad.source_offset, "a source offset"
    )


def _position_problem(position: object, position_name: str) -> str | None:
    if not isinstance(position, dict):
        return f"{position_name} is a {type(position).__name__}, not a dict"
    for name, value in position.items():
        if not isinstance(name, str) or not (value is None or isinstance(value, str | int | float | bool)):
            return f"{position_name} must be flat and fit for JSON: {position!r}"
    return None
