"""The layout of UMS messages of one version of a table: its fields and their types. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as t

from connectors.errors import Skippable
from connectors.formats.ums import UID, Namespace
from spark_jobs.contract import UMS_COLUMNS, Column
from spark_jobs.sources.layout import check_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Digits after the point of UMS's decimal, whose messages don't say.
DECIMAL_SCALE: Final = 18
TYPES: Final[Mapping[str, t.DataType]] = {
    "string": t.StringType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "decimal": t.DecimalType(38, DECIMAL_SCALE),
    "boolean": t.BooleanType(),
    "date": t.DateType(),
    "datetime": t.TimestampType(),
    "binary": t.BinaryType(),
}


@dataclass(frozen=True, slots=True)
class UmsLayout:
    """The fields of one version of a table.

    Attributes:
        namespace: seven parts.
        names: fields in order.
        kinds: their UMS types.
    """

    namespace: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def table(self) -> str:
        """The part of the namespace that is the same in all versions: the first four parts."""
        return ".".join(self.namespace.split(".")[:4])

    @property
    def version(self) -> tuple[int, str]:
        """The table version, for finding the newest."""
        version_part = self.namespace.split(".")[4]
        return (int(version_part) if version_part.isdigit() else -1, version_part)

    @property
    def shard(self) -> tuple[str, str]:
        """The numbers of the database and the table partition, as they are written."""
        database_part, two = self.namespace.split(".")[5:]
        return database_part, two

    def columns(self, keys: Sequence[str]) -> tuple[Column, ...]:
        """The table's own columns, the key first.

        Raises:
            Skippable: a key column is not among them.
        """
        own_columns = {
            name: TYPES[kind] for name, kind in zip(self.names, self.kinds, strict=True) if name not in UMS_COLUMNS
        }
        missing = [name for name in keys if name not in own_columns]
        if missing:
            raise Skippable(
                f"source.key.columns: {self.namespace} has no column {', '.join(missing)}; it has {', '.join(own_columns)}"
            )
        return tuple(
            Column(name, own_columns[name], nullable=name not in keys, key=name in keys)
            for name in [*keys, *(name for name in own_columns if name not in keys)]
        )


def layout_of(schema: bytes) -> UmsLayout:
    """The layout in a message's ``schema``.

    Raises:
        Skippable: it is not a layout.
    """
    try:
        data = json.loads(schema)
        Namespace.parse(data["namespace"])
        names = tuple(str(field["name"]) for field in data["fields"])
        kinds = tuple(str(field["type"]).lower() for field in data["fields"])
    except (ValueError, KeyError, TypeError) as error:
        raise Skippable(f"The message's schema is no UMS schema: {error}") from None
    unknown = [kind for kind in kinds if kind not in TYPES]
    if unknown:
        raise Skippable(f"The UMS type {unknown[0]!r} is unknown; known are {', '.join(TYPES)}.")
    # Older versions of DBus write no ums_uid_.
    missing = [name for name in UMS_COLUMNS if name not in names and name != UID]
    if missing:
        raise Skippable(f"The message lacks the system fields {', '.join(missing)}.")
    check_names(f"Table {data['namespace']}", (name for name in names if name not in UMS_COLUMNS))
    return UmsLayout(data["namespace"], names, kinds)
