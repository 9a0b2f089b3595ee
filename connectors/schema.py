"""Connect's schema model: immutable, shared, compared by content.

Values are plain Python. The table says which Python value goes with which schema:

===================================  =========================================================
schema                               value
===================================  =========================================================
INT8 INT16 INT32 INT64               ``int``
FLOAT32 FLOAT64                      ``float``
BOOLEAN                              ``bool``
STRING                               ``str``
BYTES                                ``bytes``
ARRAY                                ``list``
MAP                                  ``dict``
STRUCT                               ``dict`` by field name; an absent field is null
``...data.Decimal`` (BYTES)          ``decimal.Decimal`` (its scale is the schema's ``scale`` parameter)
``...data.Date`` (INT32)             ``int``, days since 1970-01-01
``...data.Time`` (INT32)             ``int``, milliseconds since midnight
``...data.Timestamp`` (INT64)        ``int``, milliseconds since the epoch, UTC
no schema (``None``)                 any of the above types, nested freely
===================================  =========================================================

The temporal logical types carry their wire form, not ``datetime`` objects: no date is out of range, nothing is converted
twice, and a time zone can't slip in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"


class Type(StrEnum):
    """The types of Connect's data model; the value is the name JsonConverter writes."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


@dataclass(frozen=True, slots=True)
class Field:
    """A named member of a struct schema; its index is its place in ``Schema.fields``."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """One schema; hashing and comparing cost O(1) after construction for the same object.

    Args:
        type: the physical type.
        optional: whether null is allowed.
        default: the value a null stands for, or None.
        name: the logical name (``org.apache.kafka.connect.data.Date``, a record name ...).
        version: the schema's version, if it has one.
        doc: free text.
        parameters: free string parameters, in order.
        fields: the members of a STRUCT.
        key_schema: the keys of a MAP.
        value_schema: the values of a MAP, the elements of an ARRAY.
    """

    type: Type
    optional: bool = False
    default: Any = None
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "_hash",
            hash(
                (
                    self.type,
                    self.optional,
                    self.name,
                    self.version,
                    self.doc,
                    self.parameters,
                    self.fields,
                    self.key_schema,
                    self.value_schema,
                )
            ),
        )

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Schema) or self._hash != other._hash:
            return False
        return (
            self.type,
            self.optional,
            self.name,
            self.version,
            self.doc,
            self.parameters,
            self.fields,
            self.key_schema,
            self.value_schema,
            self.default,
        ) == (
            other.type,
            other.optional,
            other.name,
            other.version,
            other.doc,
            other.parameters,
            other.fields,
            other.key_schema,
            other.value_schema,
            other.default,
        )

    def field(self, name: str) -> Field | None:
        """The member called ``name``, or None."""
        for member in self.fields:
            if member.name == name:
                return member
        return None

    def parameter(self, name: str) -> str | None:
        """The parameter called ``name``, or None."""
        for key, value in self.parameters:
            if key == name:
                return value
        return None


INT8 = Schema(Type.INT8)
INT16 = Schema(Type.INT16)
INT32 = Schema(Type.INT32)
INT64 = Schema(Type.INT64)
FLOAT32 = Schema(Type.FLOAT32)
FLOAT64 = Schema(Type.FLOAT64)
BOOLEAN = Schema(Type.BOOLEAN)
STRING = Schema(Type.STRING)
BYTES = Schema(Type.BYTES)
OPTIONAL_INT8 = Schema(Type.INT8, optional=True)
OPTIONAL_INT16 = Schema(Type.INT16, optional=True)
OPTIONAL_INT32 = Schema(Type.INT32, optional=True)
OPTIONAL_INT64 = Schema(Type.INT64, optional=True)
OPTIONAL_FLOAT32 = Schema(Type.FLOAT32, optional=True)
OPTIONAL_FLOAT64 = Schema(Type.FLOAT64, optional=True)
OPTIONAL_BOOLEAN = Schema(Type.BOOLEAN, optional=True)
OPTIONAL_STRING = Schema(Type.STRING, optional=True)
OPTIONAL_BYTES = Schema(Type.BYTES, optional=True)


def struct(
    name: str | None,
    members: Mapping[str, Schema],
    *,
    optional: bool = False,
    version: int | None = None,
    doc: str | None = None,
    parameters: tuple[tuple[str, str], ...] = (),
) -> Schema:
    """A STRUCT schema with ``members`` in the given order."""
    return Schema(
        Type.STRUCT,
        optional=optional,
        name=name,
        version=version,
        doc=doc,
        parameters=parameters,
        fields=tuple(Field(key, schema) for key, schema in members.items()),
    )


def array(elements: Schema, *, optional: bool = False, name: str | None = None) -> Schema:
    """An ARRAY schema."""
    return Schema(Type.ARRAY, optional=optional, name=name, value_schema=elements)


def map_of(keys: Schema, values: Schema, *, optional: bool = False, name: str | None = None) -> Schema:
    """A MAP schema."""
    return Schema(Type.MAP, optional=optional, name=name, key_schema=keys, value_schema=values)


def decimal(scale: int, *, optional: bool = False) -> Schema:
    """Connect's Decimal: unscaled big-endian bytes with ``scale`` digits after the point."""
    return Schema(Type.BYTES, optional=optional, name=DECIMAL, version=1, parameters=(("scale", str(scale)),))


def date(*, optional: bool = False) -> Schema:
    """Connect's Date: days since 1970-01-01 as INT32."""
    return Schema(Type.INT32, optional=optional, name=DATE, version=1)


def time(*, optional: bool = False) -> Schema:
    """Connect's Time: milliseconds since midnight as INT32."""
    return Schema(Type.INT32, optional=optional, name=TIME, version=1)


def timestamp(*, optional: bool = False) -> Schema:
    """Connect's Timestamp: milliseconds since the epoch as INT64."""
    return Schema(Type.INT64, optional=optional, name=TIMESTAMP, version=1)
