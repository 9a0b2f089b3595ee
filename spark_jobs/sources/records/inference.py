"""JSON without a schema: which tables, columns and types its values show. Runs in Python tasks; results go to the driver.

Rules (docs/jobs/formats.md): whole numbers are long, others double, arrays and objects JSON text; a column that shows several
becomes the wider one, at last string. The result is kept next to the checkpoint and only widens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as t

from connectors.errors import ConfigInvalid, Skippable
from spark_jobs.contract import Column
from spark_jobs.sources.layout import check_names
from spark_jobs.sources.types import type_from_json, wider_inferred

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.rows.shards import Shard

#: Of the frame that a search gives.
SCHEMA: Final = (
    "topic string, namespace string, columns string, keys string, sample binary, key binary, error string, "
    "mixed boolean, text binary, shards string"
)


@dataclass(frozen=True, slots=True)
class TableSighting:
    """One table (or one unusual envelope) in a topic.

    Attributes:
        topic: where it is.
        namespace: the table's; empty for an envelope.
        types: columns and the types that their values show.
        keys: the columns in the records' keys, in order.
        sample: a record's value, of an envelope with a schema that does not begin as converters write it.
        key: that record's key.
        error: why no record that was seen can be a row of the table (of an envelope: why the sample can't be used).
        mixed: some records that count had no key columns in their keys, while the table's key was not known.
        text: of an envelope, what stands for its schema.
        others: further topics that have the table.
        shards: of its records; two at most.
    """

    topic: str
    namespace: str = ""
    types: dict[str, t.DataType] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    sample: bytes | None = None
    key: bytes | None = None
    error: str = ""
    mixed: bool = False
    text: bytes = b""
    others: frozenset[str] = frozenset()
    shards: frozenset[Shard] = frozenset()

    @property
    def topics(self) -> set[str]:
        """Every topic that has the table."""
        return {self.topic, *self.others}

    @classmethod
    def from_row(cls, row: Any) -> TableSighting:
        """Read the sighting that a task wrote."""
        types = {name: type_from_json(kind) for name, kind in json.loads(row["columns"]).items()}
        sample = bytes(row["sample"]) if row["sample"] is not None else None
        return cls(
            row["topic"],
            row["namespace"],
            types,
            tuple(json.loads(row["keys"])),
            sample,
            bytes(row["key"]) if row["key"] is not None else None,
            row["error"],
            row["mixed"],
            bytes(row["text"]),
            shards=frozenset((first_number, two) for first_number, two in json.loads(row["shards"])),
        )

    def joined(self, other_sighting: TableSighting) -> TableSighting:
        """Both tasks' view of one table."""
        types = dict(self.types)
        for name, kind in other_sighting.types.items():
            types[name] = wider_inferred(types[name], kind) if name in types else kind
        # A table that one task found no good record of is one if another task did.
        error = self.error and other_sighting.error
        mixed, others = self.mixed or other_sighting.mixed, self.others | other_sighting.topics
        shards = self.shards | other_sighting.shards
        return replace(
            self,
            types=types,
            keys=self.keys or other_sighting.keys,
            error=error,
            mixed=mixed,
            others=others,
            shards=shards,
        )

    def columns(self, keys: Sequence[str], declared: Mapping[str, t.DataType]) -> tuple[Column, ...]:
        """The table's columns: the key first; declared types count, also of columns that no record has shown yet.

        Raises:
            Skippable: a key column has no type: no record has a value for it and it is not declared; or a name can't be used
                (``check_names``).
        """
        types = {**self.types, **declared}
        check_names(f"Table {self.namespace}", types)
        missing = [name for name in keys if name not in types]
        if missing:
            raise Skippable(f"Table {self.namespace}: no record has its key column {', '.join(missing)}.")
        names = [*keys, *sorted(declared, key=list(declared).index), *types]
        return tuple(
            Column(name, types[name], nullable=name not in keys, key=name in keys) for name in dict.fromkeys(names)
        )


def is_enveloped(data: Any) -> bool:
    """Whether parsed JSON is an envelope with schema and payload."""
    return isinstance(data, dict) and data.keys() == {"schema", "payload"}


def key_names(data: Any) -> tuple[str, ...]:
    """The columns in a parsed key."""
    if is_enveloped(data):
        data = data["payload"]
    return tuple(data) if isinstance(data, dict) else ()


def find_declared_type(kind: t.DataType, name: str) -> t.DataType:
    """A declared type as the job uses it.

    Raises:
        ConfigInvalid: JSON has no values of this type.
    """
    if isinstance(kind, t.DecimalType):
        return t.DecimalType(38, kind.scale)
    if isinstance(kind, t.VarcharType | t.CharType):
        return t.StringType()
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(find_declared_type(kind.elementType, name), True)
    if isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType):
        return t.MapType(kind.keyType, find_declared_type(kind.valueType, name), True)
    if isinstance(kind, t.StructType):
        return t.StructType(
            [
                t.StructField(struct_field.name, find_declared_type(struct_field.dataType, name), True)
                for struct_field in kind.fields
            ]
        )
    if isinstance(
        kind,
        t.ByteType
        | t.ShortType
        | t.IntegerType
        | t.LongType
        | t.FloatType
        | t.DoubleType
        | t.BooleanType
        | t.StringType
        | t.BinaryType
        | t.DateType
        | t.TimestampType,
    ):
        return kind
    raise ConfigInvalid(
        f"source.table.columns: column {name} can't be {kind.simpleString()}; use tinyint, smallint, int, bigint, "
        "float, double, boolean, string, binary, date, timestamp, decimal, or arrays, structs and maps (by string) "
        "of them."
    )


def accepted_types(kind: t.DataType) -> tuple[type, ...]:
    """Python types whose values a column of this type takes without a further look."""
    if isinstance(kind, t.StringType):
        return (str, int, float, bool, list, dict)
    if isinstance(kind, t.DoubleType):
        return (float, int)
    if isinstance(kind, t.BooleanType):
        return (bool,)
    if isinstance(kind, t.LongType):
        return ()
    return (str, int, float, bool, list, dict) if not isinstance(kind, t.DecimalType) else ()


def declared_columns(column_list: str) -> dict[str, t.DataType]:
    """Columns and types in the text of an option.

    Raises:
        ConfigInvalid: it is no list of columns.
    """
    try:
        fields = t.StructType(t.StructType.fromDDL(column_list).fields).fields  # type: ignore[attr-defined]  # text with commas is a struct
    except Exception as error:
        raise ConfigInvalid(
            f"source.table.columns: {column_list!r} is no list of columns with types as in SQL: {error}"
        ) from error
    return {field.name: find_declared_type(field.dataType, field.name) for field in fields}
