"""The form of the output: schemas of keys and values, and what turns images into events.

An event is made of parts that are encoded once: the key, the image before, the image after (``EventCodec.image``; equal bytes
are equal images, which is how changes that change nothing are found), and what is around them (``EventCodec.event``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from connectors.formats.cql_schema import typed_schema
from connectors.formats.names import schema_part
from connectors.schema import INT64, OPTIONAL_INT64, STRING, Schema, struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.materializer.engine.model import EventOrigin, MergeOptions, StateColumn

#: Operations as Debezium names them.
CREATE, UPDATE, DELETE, READ = "c", "u", "d", "r"

#: ``source`` of a Debezium event. The first are the same in all events of a table.
SOURCE: Final[Mapping[str, Schema]] = {
    "connector": STRING,
    "name": STRING,
    "cluster": STRING,
    "keyspace": STRING,
    "table": STRING,
    "ts_ms": INT64,
    "ts_us": INT64,
    "snapshot": STRING,
    "ums_id": INT64,
    "latency_ms": INT64,
    "offset": OPTIONAL_INT64,
    "cause": STRING,
}


class EventCodec(Protocol):
    """Encodes what belongs to one version of a table."""

    def key(self, values: Sequence[Any]) -> bytes:
        """The record's key, from the primary key's values."""

    def image(self, values: Sequence[Any]) -> bytes:
        """An image, from the values of all columns: primary key, static, regular."""

    def event(
        self,
        operation: str,
        before: bytes | None,
        after: bytes | None,
        key: bytes,
        origin: EventOrigin,
        sequence: int,
        now_ms: int,
    ) -> bytes:
        """The record's value.

        Args:
            operation: ``CREATE``, ``UPDATE``, ``DELETE`` or ``READ``.
            before: the image before; None where the row did not exist.
            after: the image after; None where it does not exist any more.
            key: what ``key`` gave.
            origin: where it came from.
            sequence: the event's ``ums_id_``.
            now_ms: the time, ms since 1970.
        """


@dataclass(frozen=True, slots=True)
class TableShape:
    """The version of a table that a codec is made for.

    Attributes:
        constants: pairs of names and values: connector, cluster, keyspace, table, schema_version of the input.
        keys: columns of the primary key in order.
        static: static columns.
        regular: the others.
    """

    constants: tuple[tuple[str, str], ...]
    keys: tuple[StateColumn, ...]
    static: tuple[StateColumn, ...]
    regular: tuple[StateColumn, ...]

    @property
    def columns(self) -> tuple[StateColumn, ...]:
        """In the order of an image."""
        return (*self.keys, *self.static, *self.regular)


def base_name(options: MergeOptions, shape: TableShape) -> str:
    """Return the common prefix of the names of the output's schemas."""
    constants = dict(shape.constants)
    names = (options.name, constants.get("keyspace", ""), constants.get("table", ""))
    return ".".join(schema_part(name) for name in names if name)


def column_schema(column: StateColumn, base: str, *, optional: bool) -> Schema | None:
    """The schema of a column's values; None where the input did not say what they are."""
    if column.type is not None:
        return typed_schema(column.type, f"{base}.{column.field}", optional=optional)
    return column.schema


def key_schema(options: MergeOptions, shape: TableShape) -> Schema:
    """The schema of keys; raises as ``value_schema``."""
    base = f"{base_name(options, shape)}.Key"
    return struct(base, _make_member_schemas(shape.keys, base, optional=False))


def value_schema(options: MergeOptions, shape: TableShape, *, optional: bool = False) -> Schema:
    """The schema of images: the primary key's columns required, all others optional."""
    base = f"{base_name(options, shape)}.Value"
    return struct(
        base,
        {
            **_make_member_schemas(shape.keys, base, optional=False),
            **_make_member_schemas((*shape.static, *shape.regular), base, optional=True),
        },
        optional=optional,
    )


def _make_member_schemas(columns: Sequence[StateColumn], base: str, *, optional: bool) -> dict[str, Schema]:
    schemas = {column.field: column_schema(column, base, optional=optional) for column in columns}
    return {name: schema for name, schema in schemas.items() if schema is not None}


def debezium_schema(options: MergeOptions, shape: TableShape) -> Schema:
    """The schema of Debezium's envelope."""
    base = base_name(options, shape)
    value = value_schema(options, shape, optional=True)
    return struct(
        f"{base}.Envelope",
        {
            "before": value,
            "after": value,
            "source": struct(f"{base}.Source", SOURCE),
            "op": STRING,
            "ts_ms": OPTIONAL_INT64,
        },
    )


def yelp_schema(options: MergeOptions, shape: TableShape) -> Schema:
    """The schema of Yelp's data pipeline messages, with the payloads inside instead of an id of their schema."""
    base = base_name(options, shape)
    value = value_schema(options, shape, optional=True)
    return struct(
        f"{base}.Message",
        {
            "message_type": STRING,
            "uuid": STRING,
            "timestamp": INT64,
            "topic": STRING,
            "keys": key_schema(options, shape),
            "payload": value,
            "previous_payload": value,
            "meta": struct(f"{base}.Source", SOURCE),
        },
    )


def source_constants(options: MergeOptions, shape: TableShape) -> dict[str, str]:
    """The members of ``SOURCE`` that all events of a table share."""
    constants = dict(shape.constants)
    return {
        "connector": constants.get("connector", ""),
        "name": options.name,
        "cluster": constants.get("cluster", ""),
        "keyspace": constants.get("keyspace", ""),
        "table": constants.get("table", ""),
    }


#: Yelp's message types.
YELP_TYPES: Final = {CREATE: "create", UPDATE: "update", DELETE: "delete", READ: "refresh"}
