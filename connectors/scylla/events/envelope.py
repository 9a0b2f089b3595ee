"""The schemas of the legacy and the advanced format: the Java connector's, and what the extended modes add to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from connectors import schema as connect
from connectors.cql.schemas import connect_schema
from connectors.schema import Schema, Type, array, struct
from connectors.scylla.events.names import avro_name, table_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.cql.types import CqlType
    from connectors.scylla.events.contract import ScyllaEventSettings
    from connectors.scylla.events.shape import LogColumn, LogShape
    from connectors.scylla.model import TableVersion

    SchemaOf = Callable[[CqlType], Schema]

_SNAPSHOT: Final = Schema(
    Type.STRING,
    optional=True,
    default="false",
    name="io.debezium.data.Enum",
    version=1,
    parameters=(("allowed", "true,last,false,incremental"),),
)
#: Types that the Java connector's legacy format has no columns of.
_NOT_SCALAR: Final = frozenset({"list", "set", "map", "tuple", "udt", "vector", "custom"})
_TRANSACTION: Final = struct(
    "event.block",
    {"id": connect.STRING, "total_order": connect.INT64, "data_collection_order": connect.INT64},
    optional=True,
    version=1,
)


@dataclass(frozen=True, slots=True)
class ScyllaSchemas:
    """The schemas of one table version and what they leave out.

    Attributes:
        key: of the record's key; also of the key in the payload.
        value: the envelope.
        columns: the columns of ``before`` and ``after`` in order, keys among them (see ``before_key``, ``after_key``).
        key_columns: the columns of the key in order.
        before_key: whether ``before`` has the key columns.
        after_key: whether ``after`` has the key columns.
        is_legacy: whether other columns stand in ``{"value": ...}``.
        has_deletion: whether the envelope has ``deletion``.
        has_delta: whether the envelope has ``delta``.
        has_ttl: whether ``source`` has ``ttl``.
    """

    key: Schema
    value: Schema
    columns: tuple[LogColumn, ...]
    key_columns: tuple[LogColumn, ...]
    before_key: bool
    after_key: bool
    is_legacy: bool
    has_deletion: bool
    has_delta: bool
    has_ttl: bool


def schemas_of(version: TableVersion, shape: LogShape, settings: ScyllaEventSettings) -> ScyllaSchemas:
    """The schemas of a table version in the form that the settings ask for."""
    name = table_name(settings.topic_prefix, version.id)
    legacy = settings.output_format == "legacy"
    has_deletion = settings.deletes_mode == "events" and bool(shape.clustering)
    has_delta = settings.collections_mode == "delta"
    has_ttl = settings.deletes_mode == "events" or has_delta
    if legacy:
        with_all = settings.legacy_columns == "all"
        columns = tuple(
            log_column for log_column in shape.columns if with_all or log_column.column.type.name not in _NOT_SCALAR
        )
        key_columns = tuple(log_column for log_column in columns if log_column.is_key)
        before_key = after_key = True
    else:
        columns, key_columns = shape.columns, shape.key
        before_key, after_key = ("payload-before" in settings.key_placement, "payload-after" in settings.key_placement)
    of = partial(connect_schema, name_prefix=avro_name(name) + ".", names=settings.names)
    key = struct(avro_name(name + ".Key"), _column_schemas(key_columns, of))

    def cell(log_column: LogColumn) -> Schema:
        inner = of(log_column.column.type)
        if log_column.is_key or not legacy:
            return inner
        return struct(avro_name(f"{name}.{log_column.name}.Cell"), {"value": inner}, optional=True)

    def image(suffix: str, *, with_key: bool) -> Schema:
        return struct(
            avro_name(name + suffix),
            {log_column.name: cell(log_column) for log_column in columns if with_key or not log_column.is_key},
            optional=True,
        )

    members = {
        "source": _source_schema(ttl=has_ttl),
        "before": image(".Before", with_key=before_key),
        "after": image(".After", with_key=after_key),
    }
    if not legacy and "payload-key" in settings.key_placement:
        members[settings.payload_key_name] = key
    members |= {
        "op": connect.OPTIONAL_STRING,
        "ts_ms": connect.OPTIONAL_INT64,
        "transaction": _TRANSACTION,
        "ts_us": connect.OPTIONAL_INT64,
        "ts_ns": connect.OPTIONAL_INT64,
    }
    if has_deletion:
        members["deletion"] = _deletion_schema(shape, name, of)
    if has_delta:
        members["delta"] = _delta_schema(shape, name, of)
    return ScyllaSchemas(
        key,
        struct(avro_name(name + ".Envelope"), members),
        columns,
        key_columns,
        before_key,
        after_key,
        legacy,
        has_deletion,
        has_delta,
        has_ttl,
    )


def _column_schemas(columns: tuple[LogColumn, ...], of: SchemaOf) -> dict[str, Schema]:
    return {log_column.name: of(log_column.column.type) for log_column in columns}


def _source_schema(*, ttl: bool) -> Schema:
    members = {
        "version": connect.STRING,
        "connector": connect.STRING,
        "name": connect.STRING,
        "ts_ms": connect.INT64,
        "snapshot": _SNAPSHOT,
        "db": connect.STRING,
        "sequence": connect.OPTIONAL_STRING,
        "ts_us": connect.OPTIONAL_INT64,
        "ts_ns": connect.OPTIONAL_INT64,
        "keyspace_name": connect.STRING,
        "table_name": connect.STRING,
    }
    if ttl:
        members["ttl"] = connect.OPTIONAL_INT64
    return struct("com.scylladb.cdc.debezium.connector", members)


def _deletion_schema(shape: LogShape, name: str, of: SchemaOf) -> Schema:
    """The schema of what a deletion of more than one row removed; null for all other events."""
    clustering = struct(avro_name(name + ".ClusteringPrefix"), _column_schemas(shape.clustering, of))
    bound = struct(avro_name(name + ".Bound"), {"prefix": clustering, "inclusive": connect.BOOLEAN}, optional=True)
    return struct(avro_name(name + ".Deletion"), {"kind": connect.STRING, "start": bound, "end": bound}, optional=True)


def _delta_schema(shape: LogShape, name: str, of: SchemaOf) -> Schema:
    """The schema of what was written, column by column; null for deletions and rows of a snapshot."""
    return struct(
        avro_name(name + ".Delta"),
        {log_column.name: _column_delta(log_column, name, of) for log_column in shape.others},
        optional=True,
    )


def _column_delta(log_column: LogColumn, name: str, of: SchemaOf) -> Schema:
    kind = log_column.column.type
    label = avro_name(f"{name}.{log_column.name}.Delta")
    if not kind.is_multicell:
        return struct(label, {"value": of(kind)}, optional=True)
    added, removed = _element_schemas(kind, name, log_column.name, of)
    return struct(label, {"mode": connect.STRING, "added": added, "removed": removed}, optional=True)


def _element_schemas(kind: CqlType, name: str, column: str, of: SchemaOf) -> tuple[Schema, Schema]:
    """The schemas of ``added`` and ``removed``."""
    if kind.name == "udt":
        return of(kind), array(connect.STRING, optional=True)
    if kind.name == "list":
        entry = struct(avro_name(f"{name}.{column}.Element"), {"key": connect.STRING, "value": of(kind.arguments[0])})
        return array(entry, optional=True), array(connect.STRING, optional=True)
    return of(kind), array(of(kind.arguments[0]), optional=True)
