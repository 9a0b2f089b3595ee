"""The layout of one version of a record: found on the driver once per schema, carried to the tasks that decode with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.schema import Field, Schema, Type
from spark_jobs.contract import SYSTEM_COLUMNS, Column
from spark_jobs.rows.shards import NUMBERS, row_keys
from spark_jobs.sources.records.flat import Flat, flat_of
from spark_jobs.sources.types import Form, form_of, length_of, meaning_of, spark_type, with_variable_scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


#: Names under which a Debezium ``source`` gives the database and the table; the first that is there counts.
DATABASES: Final = ("keyspace", "keyspace_name", "db", "schema")
TABLES: Final = ("table", "table_name", "collection")

#: The option that says what becomes of decimals of varying scale; see ``types.VARIABLE``.
VARIABLE_OPTION: Final = "source.variable.scale"
#: Microseconds of a logical type's unit, as a fraction.
_UNITS: Final = {Form.MILLIS: (1000, 1), Form.MICROS: (1, 1), Form.NANOS: (1, 1000)}


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """How records of one schema of values (and of keys) are read.

    Attributes:
        envelope: whether they are Debezium's envelope; else the value is the row itself.
        row: the columns in the value (of ``after``, in an envelope).
        key: the columns in the record's key; empty where keys are not decoded.
        members: names of what the envelope's ``source`` has, or of the value's own members.
        avro: the value's and the key's Avro schema (writer's) for the JVM; empty for JSON.
        ids: the ids of the value's and the key's schema in the registry.
        clocks: names of the envelope's own times (``ts_us`` ...).
        flat: of flat rows: how they say what happened.
        sharded: whether the envelope's ``source`` names the shard and the logical table.
    """

    envelope: bool
    row: tuple[Field, ...]
    key: tuple[Field, ...]
    members: frozenset[str]
    avro: tuple[str, str] = ("", "")
    ids: tuple[int, int] = (-1, -1)
    clocks: frozenset[str] = frozenset()
    flat: Flat | None = None
    sharded: bool = False

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns of the record's key."""
        names = tuple(field.name for field in self.key)
        return row_keys(names, {field.name for field in self.row}) if self.sharded else names

    def columns(self, keys: Sequence[str]) -> tuple[Column, ...]:
        """The table's columns as this version has them; the columns ``keys`` are first and are its key.

        Raises:
            Skippable: a column's type has no counterpart in Spark, or its name can't be used (``check_names``).
        """
        hidden = self.flat.hidden if self.flat is not None else ()
        row = {field.name: field.schema for field in self.row if field.name not in hidden}
        row |= {field.name: field.schema for field in self.key if field.name not in row and field.name in keys}
        check_names("The table", row)
        missing = [name for name in keys if name not in row]
        if missing:
            raise Skippable(f"The key column {', '.join(missing)} is neither in the record's key nor in its value.")
        names = [*keys, *(name for name in row if name not in keys)]
        return tuple(
            Column(
                name,
                spark_type(row[name], name),
                nullable=name not in keys,
                key=name in keys,
                length=length_of(row[name]),
                meaning=meaning_of(row[name]),
            )
            for name in names
        )


def check_names(table: str, names: Iterable[str]) -> None:
    """Refuse names of columns that no job can use.

    Args:
        table: how messages begin: what has the columns.
        names: of its columns.

    Raises:
        Skippable: a name is one of the system columns, or not valid Unicode (half of a surrogate pair, which JSON can write).
    """
    for name in names:
        if name.lower() in SYSTEM_COLUMNS:
            raise Skippable(
                f"{table} has a column {name}, which is the name of a system column of jobs "
                f"({', '.join(SYSTEM_COLUMNS)}). Rename it in the connector (transform ReplaceField)."
            )
        if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
            raise Skippable(f"{table} has a column {name!r}, whose name is no valid text. Rename it in the source.")


def is_message(value: Schema | None) -> bool:
    """Whether a schema is that of Debezium's messages (op ``m``), which have no row. Pure."""
    members = {member.name for member in value.fields} if value is not None else set()
    return members.issuperset(("op", "message")) and members.isdisjoint(("before", "after"))


def envelope_layout(value: Schema | None, key: Schema | None, config: Mapping[str, Any] | None = None) -> RecordLayout:
    """The layout of Debezium's envelope.

    Args:
        value: the schema of values.
        key: the schema of keys.
        config: the job's options, of which ``source.variable.scale`` counts.

    Raises:
        Skippable: ``value`` is no envelope.
    """
    after = value.field("after") if value is not None else None
    before = value.field("before") if value is not None else None
    row = after or before
    if value is None or row is None or row.schema.type is not Type.STRUCT or value.field("op") is None:
        raise Skippable(
            "The value is no Debezium envelope (it has no op, or no after): set source.format=plain for flat rows."
        )
    source = value.field("source")
    members = frozenset(member.name for member in source.schema.fields) if source is not None else frozenset()
    clocks = frozenset(name for name in ("ts_us", "ts_ms", "ts_ns") if value.field(name) is not None)
    options = config or {}
    return RecordLayout(
        True,
        _scale_decimals(row.schema.fields, options),
        _scale_decimals(key_fields(key), options),
        members,
        clocks=clocks,
        sharded=not members.isdisjoint(NUMBERS),
    )


def flat_layout(value: Schema | None, key: Schema | None, config: Mapping[str, Any]) -> RecordLayout:
    """The layout of flat rows.

    Raises:
        Skippable: the value is no struct.
    """
    if value is None or value.type is not Type.STRUCT:
        raise Skippable(
            f"The value is {'without a schema' if value is None else value.type}, not a struct with columns."
        )
    members = frozenset(member.name for member in value.fields)
    flat = flat_of(members, config)
    time = value.field(flat.time)
    unit = _UNITS.get(form_of(time.schema)) if time is not None else None
    if unit is not None:
        flat = replace(flat, up=unit[0], down=unit[1])
    return RecordLayout(
        False, _scale_decimals(value.fields, config), _scale_decimals(key_fields(key), config), members, flat=flat
    )


def _scale_decimals(fields: Sequence[Field], config: Mapping[str, Any]) -> tuple[Field, ...]:
    """``fields``, their decimals of varying scale marked with the scale that columns get."""
    scale = config.get(VARIABLE_OPTION)
    if scale is None:
        return tuple(fields)
    return tuple(Field(field.name, with_variable_scale(field.schema, scale)) for field in fields)


def key_fields(key: Schema | None) -> tuple[Field, ...]:
    """The columns of a record's key; none where it is no struct."""
    return key.fields if key is not None and key.type is Type.STRUCT else ()
