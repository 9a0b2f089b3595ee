"""A version of a table bound to the slots of a bucket's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.cql.encoding import join_partition_key, make_encoder, split_partition_key
from connectors.cql.types import CqlType
from connectors.cql.values import make_decoder
from spark_jobs.materializer.decoding.catalog import GONE, describe_column
from spark_jobs.materializer.engine.keys import clustering_encoder, order_encoder
from spark_jobs.materializer.engine.merge import BoundColumns, Multi
from spark_jobs.materializer.events.field_names import field_key, make_serializer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_jobs.materializer.decoding.catalog import KnownVersion
    from spark_jobs.materializer.decoding.schema import ColumnPart, UpdateVersion
    from spark_jobs.materializer.decoding.versions import WriterSchema

#: What a list's cells are named by.
_TIMEUUID: Final = CqlType("timeuuid")


class Binding(NamedTuple):
    """See the module.

    Attributes:
        writer: the schema.
        gone: the table was dropped: its messages say nothing any more.
        era: of the table.
        partition_key: values of the partition key to Cassandra's serialized form.
        clustering: clustering values, or the first of them, to bytes in clustering order.
        clustered: whether there is a clustering key.
        static, regular: the other columns.
        key_readers: what makes values of the partition key out of decoded ones; None where nothing is to be done.
        clustering_readers: the same of the clustering key.
    """

    writer: WriterSchema
    gone: bool
    era: int
    partition_key: Callable[[Sequence[Any]], bytes]
    clustering: Callable[[Sequence[Any]], bytes]
    clustered: bool
    static: BoundColumns
    regular: BoundColumns
    key_readers: list[Any] | None
    clustering_readers: list[Any] | None


def bind_version(
    writer: WriterSchema,
    known_version: KnownVersion,
    slots: tuple[int, int],
    live: tuple[frozenset[int], frozenset[int]],
) -> Binding:
    """Bind a version.

    Args:
        writer: the schema.
        known_version: its entry in the catalog.
        slots: how many there are: of static rows, of rows.
        live: those whose columns the newest version has.
    """
    version = writer.version
    return Binding(
        writer=writer,
        gone=known_version.era == GONE,
        era=known_version.era,
        partition_key=partition_encoder(version),
        clustering=clustering_encoder(
            [(column.type, column.reversed) for column in version.clustering if column.type is not None]
        ),
        clustered=bool(version.clustering),
        static=_bind_part(version.static, known_version.static, slots[0], live[0]),
        regular=_bind_part(version.regular, known_version.regular, slots[1], live[1]),
        key_readers=version.key_readers if any(version.key_readers) else None,
        clustering_readers=version.clustering_readers if any(version.clustering_readers) else None,
    )


def partition_encoder(version: UpdateVersion) -> Callable[[Sequence[Any]], bytes]:
    """The function from values of the partition key to Cassandra's serialized form."""
    parts = [make_encoder(column.type) for column in version.key if column.type is not None]
    if len(parts) == 1:
        only = parts[0]
        return lambda values: only(values[0])
    return lambda values: join_partition_key([part(value) for part, value in zip(parts, values, strict=True)])


def partition_decoder(version: UpdateVersion) -> Callable[[bytes], list[Any]]:
    """The inverse of ``partition_encoder``."""
    parts = [make_decoder(column.type) for column in version.key if column.type is not None]
    return lambda data: [
        part(component) for part, component in zip(parts, split_partition_key(data, len(parts)), strict=True)
    ]


def _bind_part(part: ColumnPart, slots: dict[str, int], count: int, live: frozenset[int]) -> BoundColumns:
    simple: list[tuple[int, int, Any]] = []
    multi: list[Multi] = []
    names: dict[str, tuple[int, str]] = {}
    complex_: dict[str, int] = {}
    serialize: dict[int, Callable[[Any], bytes]] = {}
    signed_zeros: set[int] = set()
    plain = True
    for index, column in enumerate(part.columns):
        slot = slots.get(describe_column(column), -1)
        kind = column.type
        if slot not in live or kind is None:
            plain = False  # a dropped column: its cells do not come back
            continue
        if kind.is_multicell:
            plain = False
            complex_[column.name] = slot
            multi.append(_bind_multicell(index, slot, kind, part))
            continue
        read = part.readers[index]
        plain = plain and read is None
        simple.append((index, slot, read))
        names[column.name] = (slot, column.field)
        serialize[slot] = make_serializer(kind)
        if _has_floats(kind):
            signed_zeros.add(slot)
    return BoundColumns(
        count,
        tuple(simple),
        tuple(slot for _, slot, _ in simple) if plain else None,
        names,
        tuple(multi),
        complex_,
        serialize,
        frozenset(signed_zeros),
    )


def _has_floats(kind: CqlType) -> bool:
    return kind.name in {"float", "double"} or any(map(_has_floats, kind.arguments))


def _bind_multicell(index: int, slot: int, kind: CqlType, part: ColumnPart) -> Multi:
    reads = part.element_readers[index]
    if kind.name == "udt":
        fields = tuple(
            (field, name, field_key(position), reads.get(name), make_serializer(member))
            for position, (name, field, member) in enumerate(
                zip(kind.field_names, part.udt_fields[index], kind.arguments, strict=True)
            )
        )
        return Multi(index, slot, "udt", str.encode, make_serializer(kind.arguments[0]), None, None, fields)
    order = order_encoder(_TIMEUUID if kind.name == "list" else kind.arguments[0])
    serialize = _encode_nothing if kind.name == "set" else make_serializer(kind.arguments[-1])
    return Multi(index, slot, kind.name, order, serialize, reads.get("value"), reads.get("path"))


def _encode_nothing(value: Any) -> bytes:
    del value
    return b""
