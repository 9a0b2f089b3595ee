"""Masks applied to whole records: change events, plain rows, keys, UMS messages and partition updates. Pure, nothing blocks.

The rules are those of ``connectors.formats.masks.masking``. A column is called ``database.table.column``: after the table that
the caller names, else the event's ``source`` block or the message's namespace or schema, else the topic (``TOPIC.column``, and
without the topic's first part, which is a Debezium-like connector's prefix).

A column that a rule names is masked in all forms, or refused with ``ConfigInvalid``: nothing passes unmasked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from connectors.api import SourceRecord
from connectors.cql.types import unquote_name
from connectors.errors import ConfigInvalid
from connectors.formats import partition_update, partition_update_raw, ums
from connectors.formats.masks.mask_functions import value_text
from connectors.formats.masks.masking import Mask, Masks, Target, row_masker
from connectors.formats.masks.update_masks import cell_masks, mask_update, refuse_key_columns, refuse_raw
from connectors.schema import BOOLEAN, BYTES, FLOAT64, INT32, INT64, STRING, Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_IMAGES: Final = ("before", "after")
#: Members of an envelope that hold no values of columns.
_NO_VALUES: Final = frozenset(("source", "transaction"))
_DELTA: Final = "delta"
_DELETION: Final = "deletion"
#: Members of ``after`` that hold the bounds of a range deletion (Cassandra's Debezium form).
_RANGES: Final = ("_range_start", "_range_end")
_UMS_NAMES: Final = frozenset((ums.MESSAGE.name, ums.MASKED_MESSAGE.name))
#: Members by which source blocks name a table; the first group of which the first and the last are there counts.
_SOURCE_PARTS: Final = (("keyspace", "table"), ("keyspace_name", "table_name"), ("db", "schema", "table"))
#: How the names of structs end that wrap one column's value (Scylla, Cassandra), and all members that they may have.
_DELTA_NAME: Final = ".Delta"
_CELLS: Final = (".Cell", ".cell_value", _DELTA_NAME)
_CELL_MEMBERS: Final = frozenset(("value", "deletion_ts", "set", "mode", "removed"))
_UPDATE_MEMBERS: Final = (
    frozenset(("source", "key", "write_time", "rows")),
    frozenset(("source", "write_time", "update")),
)
_PYTHON_TYPES: Final[Mapping[type, Schema]] = {
    bool: BOOLEAN,
    int: INT64,
    float: FLOAT64,
    str: STRING,
    bytes: BYTES,
    Decimal: Schema(Type.STRING, name="io.millrace.ums.decimal"),
    list: Schema(Type.ARRAY),
    dict: Schema(Type.MAP),
}
#: What a UMS value is before it is written as text; the names tell ``default`` what nothing looks like.
_UMS_TYPES: Final[Mapping[str, Schema]] = {
    "string": STRING,
    "int": INT32,
    "long": INT64,
    "float": FLOAT64,
    "double": FLOAT64,
    "boolean": BOOLEAN,
    "binary": STRING,
    **{kind: Schema(Type.STRING, name=f"io.millrace.ums.{kind}") for kind in ("decimal", "date", "datetime")},
}
_CACHED: Final = 1024

#: Changes one row (a copy is made) or returns the same object.
RowFunction = Callable[[dict[str, Any]], dict[str, Any]]
Path = tuple[str, ...]
_copy_record: Final = cast("Callable[[SourceRecord], SourceRecord]", SourceRecord.__copy__)  # type: ignore[attr-defined]


class _MaskPlan(NamedTuple):
    """The masking of records of one schema, topic and table; a ``convert`` of None changes nothing."""

    kept: Schema | None  # keeps the id in the cache's key from coming to mean another object
    schema: Schema | None
    convert: RowFunction | None


class RecordMasker:
    """Masks records by the rules of one configuration. Not thread-safe.

    Args:
        masks: the rules.
        table: ``database.table`` of all records; empty: records say it.
        keys: the primary key's columns, where the caller knows them: rules that would give different rows one key are refused.
        clustering: the clustering columns among them: refused where range deletions name them.
    """

    def __init__(
        self,
        masks: Masks,
        *,
        table: str = "",
        keys: frozenset[str] = frozenset(),
        clustering: frozenset[str] = frozenset(),
    ) -> None:
        self._masks = masks
        self._table = table
        self._keys = keys
        self._clustering = clustering
        self._key_plans: dict[tuple[int, str], _MaskPlan] = {}
        self._value_plans: dict[tuple[int, str, str], _MaskPlan] = {}

    def mask(self, record: SourceRecord) -> SourceRecord:
        """The record with its key and its value masked; the same object if nothing is to be masked.

        Raises:
            ConfigInvalid: a rule names a column that it can't mask in this form.
            Skippable: a row lacks the field that salts the hash of another.
        """
        return self.mask_value(self.mask_key(record))

    def mask_key(self, record: SourceRecord) -> SourceRecord:
        """As ``mask``, the key alone. A key that is no struct has no columns, and passes."""
        if not isinstance(record.key, dict):
            return self._checked_key(record)
        schema = record.key_schema
        plan = self._key_plans.get((id(schema), record.topic))
        if plan is None:
            names = self._list_names(record.topic, "")
            if schema is None:
                plan = _MaskPlan(None, None, lambda row: self._plain_row(row, names, in_key=True))
            else:
                plan = _MaskPlan(schema, *self._plan_row(schema, names, in_key=True))
                _remember_entry(self._key_plans, (id(schema), record.topic), plan)
        return _apply_plans(record, key=plan)

    def _checked_key(self, record: SourceRecord) -> SourceRecord:
        """A record whose key is no struct: that of a partition update is bytes, which hold the partition key's values."""
        schema = record.value_schema
        form = _form_of(schema)
        if schema is not None and form is not None and (id(schema), form) not in self._key_plans:
            if form == partition_update.FORM:
                refuse_key_columns(schema, self._masks)
            elif form == partition_update_raw.FORM:
                refuse_raw(schema, self._masks)
            _remember_entry(self._key_plans, (id(schema), form), _MaskPlan(schema, None, None))
        return record

    def mask_value(self, record: SourceRecord) -> SourceRecord:
        """As ``mask``, the value alone.

        Raises:
            ConfigInvalid: also where the value is text or bytes, whose columns are unknown.
            Skippable: as ``mask``.
        """
        value = record.value
        if value is None:
            return record
        schema = record.value_schema
        if not isinstance(value, dict) or (schema is not None and schema.type is not Type.STRUCT):
            raise ConfigInvalid(
                f"columns can't be masked in a record of topic {record.topic}: its value is "
                f"{type(value).__name__}, not a struct with columns. Mask before the transform that makes it "
                "so, or keep such records away with a predicate"
            )
        source = value.get("source")
        table = _table_name(source) if isinstance(source, dict) else ""
        plan = self._value_plans.get((id(schema), record.topic, table))
        if plan is None:
            if schema is None:  # no schema to tell one kind of map from another: nothing to remember
                plan = _MaskPlan(None, None, self._plan_schemaless(value, record.topic, table))
            else:
                plan = _MaskPlan(schema, *self._plan_value(schema, record.topic, table))
                _remember_entry(self._value_plans, (id(schema), record.topic, table), plan)
        return _apply_plans(record, value=plan)

    def check(self, key: Schema | None, value: Schema | None, topic: str) -> None:
        """Raise ``ConfigInvalid`` where records of these schemas can't be masked."""
        if key is not None and key.type is Type.STRUCT:
            self._plan_row(key, self._list_names(topic, ""), in_key=True)
        if value is not None:
            self._plan_value(value, topic, "")

    def members(self, schema: Schema, topic: str, *, in_key: bool = False) -> tuple[Schema, dict[Path, Mask]]:
        """Return the masks that ``mask`` applies to keys (structs) or values of one table, member by member.

        Args:
            schema: of a key, an envelope or a partition update, for which ``check`` finds nothing.
            topic: of the records.
            in_key: whether they are keys.

        Returns:
            The schema of what is masked, and the masks by the path of the member that they are for.
        """
        tables = self._list_names(topic, "")
        if in_key:
            return self._plan_row(schema, tables, in_key=True)[0] or schema, self._paths(
                (), schema, tables, in_key=True
            )
        masked = self._plan_value(schema, topic, "")[0] or schema
        if _form_of(schema) == partition_update.FORM:
            return masked, cell_masks(schema, self._masks)
        masks: dict[Path, Mask] = {}
        for field in schema.fields:
            if field.schema.type is Type.STRUCT and field.name not in (*_NO_VALUES, _DELETION):
                is_key = field.name not in (*_IMAGES, _DELTA)
                masks |= self._paths((field.name,), field.schema, tables, in_key=is_key)
        return masked, masks

    def _paths(self, path: Path, schema: Schema, tables: Sequence[str], *, in_key: bool) -> dict[Path, Mask]:
        """The masks of a row's members, see ``_plan_row``."""
        names = tuple(field.name for field in schema.fields)
        masks = {}
        for field in schema.fields:
            content = _cell_content(field.schema)
            mask = self._mask(tables, field.name, content or field.schema, names, in_key=in_key)
            if mask is not None and field.name not in _RANGES:
                masks[(*path, field.name) if content is None else (*path, field.name, "value")] = mask
        return masks

    def check_ums(self, namespace: str, fields: Sequence[dict[str, Any]]) -> None:
        """Raise ``ConfigInvalid`` where UMS messages with these fields can't be masked."""
        _Messages(self._masks, self._keys).plan(namespace, fields)

    # Plans.

    def _list_names(self, topic: str, table: str) -> tuple[str, ...]:
        """The names that a table may go by, the surest first."""
        if self._table:
            return (self._table,)
        _, _, short_name = topic.partition(".")
        return tuple(dict.fromkeys(name for name in (table, topic, short_name) if name))

    def _plan_value(self, schema: Schema, topic: str, table: str) -> tuple[Schema | None, RowFunction | None]:
        form = _form_of(schema)
        if form == partition_update.FORM:
            return mask_update(schema, self._masks)
        if form == partition_update_raw.FORM:
            refuse_raw(schema, self._masks)
            return schema, None
        if schema.name in _UMS_NAMES:
            return ums.MASKED_MESSAGE, _Messages(self._masks, self._keys).convert
        if _is_envelope({field.name for field in schema.fields}):
            return self._plan_envelope(schema, self._list_names(topic, table))
        return self._plan_row(schema, self._list_names(topic, ""))

    def _plan_envelope(self, schema: Schema, tables: Sequence[str]) -> tuple[Schema | None, RowFunction | None]:
        fields: list[Field] = []
        steps: dict[str, RowFunction] = {}
        for field in schema.fields:
            new, step = None, None
            if field.schema.type is Type.STRUCT and field.name not in _NO_VALUES:
                if field.name == _DELETION:
                    self._refuse_bounds(field.schema, tables)
                else:  # any other struct is the key
                    new, step = self._plan_row(field.schema, tables, in_key=field.name not in (*_IMAGES, _DELTA))
            fields.append(field if new is None else Field(field.name, new))
            if step is not None:
                steps[field.name] = step
        if not steps:
            return schema, None
        return replace(schema, fields=tuple(fields)), _each_member(steps)

    def _refuse_bounds(self, deletion: Schema, tables: Sequence[str]) -> None:
        """Bounds of range deletions need the order of clustering values, which no mask keeps."""
        for name in ("start", "end"):
            bound = deletion.field(name)
            prefix = bound.schema.field("prefix") if bound is not None and bound.schema.type is Type.STRUCT else None
            for field in prefix.schema.fields if prefix is not None else ():
                self._refuse_bound(field.name, tables)

    def _refuse_bound(self, column: str, tables: Sequence[str]) -> None:
        for table in tables:
            rule = self._masks.rule_of(f"{table}.{column}")
            if rule is not None:
                raise ConfigInvalid(
                    f"mask {rule} can't mask {table}.{column}: it is a clustering column, and deletions of "
                    "ranges of rows need the order of its values. Leave it out of the rule; with Scylla, "
                    "scylla.deletes.mode=rows makes events without such deletions"
                )

    def _plan_row(
        self, schema: Schema, tables: Sequence[str], *, in_key: bool = False
    ) -> tuple[Schema | None, RowFunction | None]:
        masks: dict[str, Mask] = {}
        fields: list[Field] = []
        names = tuple(field.name for field in schema.fields)
        cells: set[str] = set()
        with_ranges = not in_key and all(name in names for name in _RANGES)
        for field in schema.fields:
            content = _cell_content(field.schema)
            if content is not None:
                cells.add(field.name)
            elif (field.schema.name or "").endswith(_DELTA_NAME):
                self._refuse_elements(field.name, tables)
            mask = (
                None
                if with_ranges and field.name in _RANGES
                else self._mask(tables, field.name, content or field.schema, names, in_key=in_key)
            )
            if mask is None:
                fields.append(field)
                continue
            if with_ranges and field.name in self._clustering:
                self._refuse_bound(field.name, tables)
            if content is not None and field.schema.field("removed") is not None:
                self._refuse_elements(field.name, tables)
            masks[field.name] = mask
            fields.append(
                Field(field.name, mask.schema if content is None else _with_content(field.schema, mask.schema))
            )
        if not masks:
            return schema, None
        change = row_function(masks.items(), cells=frozenset(cells))
        return replace(schema, fields=tuple(fields)), self._with_ranges(change, tables) if with_ranges else change

    def _refuse_elements(self, column: str, tables: Sequence[str]) -> None:
        """Refuse masks of a collection in a form that names the removed elements: the names show their values."""
        for table in tables:
            rule = self._masks.rule_of(f"{table}.{column}")
            if rule is not None:
                raise ConfigInvalid(
                    f"mask {rule} can't mask {table}.{column} in a form that names single elements of a "
                    "collection. Leave it out of the rule, or have whole values written "
                    "(cassandra.debezium.extended=false, scylla.collections.mode=values)"
                )

    def _with_ranges(self, change: RowFunction, tables: Sequence[str]) -> RowFunction:
        """For rows of Cassandra's Debezium form: a bound that names a masked column is refused when it comes."""

        def checked(row: dict[str, Any]) -> dict[str, Any]:
            self._refuse_ranges(row, tables)
            return change(row)

        return checked

    def _refuse_ranges(self, row: Mapping[str, Any], tables: Sequence[str]) -> None:
        for name in _RANGES:
            bound = row.get(name)
            for entry in (bound.get("values") or ()) if isinstance(bound, dict) else ():
                self._refuse_bound(unquote_name(entry["name"]), tables)

    def _mask(
        self, tables: Sequence[str], name: str, schema: Schema, names: tuple[str, ...], *, in_key: bool = False
    ) -> Mask | None:
        """The mask of a column, under the first of its table's names that a rule knows."""
        for table in tables:
            mask = self._masks.for_column(Target(f"{table}.{name}", schema, in_key=in_key, fields=names))
            if mask is not None:
                return mask
        return None

    # Records without schemas.

    def _plan_schemaless(self, value: dict[str, Any], topic: str, table: str) -> RowFunction | None:
        if {"protocol", "schema", "payload"} <= value.keys():
            return _Messages(self._masks, self._keys).convert
        if any(members <= value.keys() for members in _UPDATE_MEMBERS):
            raise ConfigInvalid(
                f"a partition update of topic {topic} has no schema, so its columns can't be masked: mask it "
                "in the connector (mask.rules)"
            )
        if not _is_envelope(value.keys()):
            return lambda row: self._plain_row(row, self._list_names(topic, ""))
        tables = self._list_names(topic, table)

        def run(row: dict[str, Any]) -> dict[str, Any]:
            return self._plain_row(row, tables)

        steps: dict[str, RowFunction] = dict.fromkeys((*_IMAGES, _DELTA), run)
        for name, member in value.items():
            if name == _DELETION and isinstance(member, dict):
                for bound in (member.get("start"), member.get("end")):
                    for column in (bound or {}).get("prefix") or ():
                        self._refuse_bound(column, tables)
            elif isinstance(member, dict) and name not in _NO_VALUES and name not in steps:
                steps[name] = lambda row: self._plain_row(row, tables, in_key=True)
        return _each_member(steps)

    def _plain_row(self, row: dict[str, Any], tables: Sequence[str], *, in_key: bool = False) -> dict[str, Any]:
        names = tuple(row)
        self._refuse_ranges(row, tables)
        masks: list[tuple[str, Mask]] = []
        cells: set[str] = set()
        for name, value in row.items():
            content = value
            if isinstance(value, dict):
                if value.get("removed") or ("added" in value and "mode" in value):
                    self._refuse_elements(name, tables)
                if "value" in value and value.keys() <= _CELL_MEMBERS:
                    cells.add(name)
                    content = value["value"]
            mask = self._mask(tables, name, _PYTHON_TYPES.get(type(content), STRING), names, in_key=in_key)
            if mask is not None:
                masks.append((name, mask))
        return row_function(masks, cells=frozenset(cells))(row) if masks else row


class _Messages:
    """Masks the rows of UMS messages; remembers what is to be done for a namespace and its fields."""

    def __init__(self, masks: Masks, keys: frozenset[str]) -> None:
        self._masks = masks
        self._keys = keys
        self._plans: dict[tuple[Any, ...], tuple[list[dict[str, Any]], RowFunction | None]] = {}

    def convert(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message with masked rows; all of its fields say whether they are ``encoded``."""
        head = message["schema"]
        fields = head["fields"]
        key = (head["namespace"], *((field["name"], field["type"], field.get("encoded", False)) for field in fields))
        plan = self._plans.get(key)
        if plan is None:
            plan = self.plan(head["namespace"], fields)
            _remember_entry(self._plans, key, plan)
        new_fields, change = plan
        payload = message["payload"]
        if change is not None:
            names = [field["name"] for field in fields]
            payload = [
                {**row, "tuple": list(change(dict(zip(names, row["tuple"], strict=True))).values())} for row in payload
            ]
        return {**message, "schema": {**head, "fields": new_fields}, "payload": payload}

    def plan(self, namespace: str, fields: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], RowFunction | None]:
        """The fields of masked messages, and what is done to a row (None: nothing); raises ``ConfigInvalid``."""
        try:
            parsed = ums.Namespace.parse(namespace)
        except ValueError as error:
            raise ConfigInvalid(f"a UMS message can't be masked: {error}") from error
        names = tuple(field["name"] for field in fields)
        masks: dict[str, Mask] = {}
        new_fields: list[dict[str, Any]] = []
        for field in fields:
            new = {**field, "encoded": field.get("encoded", False)}
            new_fields.append(new)
            name = field["name"]
            if name.startswith("ums_"):
                continue
            schema = _UMS_TYPES.get(field["type"], STRING)
            mask = self._masks.for_column(
                Target(f"{parsed.database}.{parsed.table}.{name}", schema, in_key=name in self._keys, fields=names)
            )
            if mask is None:
                continue
            masks[name] = mask
            new["encoded"] = mask.encoded or new["encoded"]
            if (mask.schema.type, mask.schema.name) != (schema.type, schema.name):
                new["type"] = "string"
        return new_fields, row_function(masks.items(), as_string=True) if masks else None


def row_function(
    masks: Iterable[tuple[str, Mask]], *, cells: frozenset[str] = frozenset(), as_string: bool = False
) -> RowFunction:
    """A function that masks a copy of a row.

    Args:
        masks: field name and mask.
        cells: fields whose value is the member ``value`` of a struct: a null there stays null, as does a null struct.
        as_string: write what comes out as text.
    """
    masks = list(masks)
    plain = [(name, mask) for name, mask in masks if name not in cells]
    steps = [(name, mask.convert, mask.nulls) for name, mask in plain if mask.convert is not None]
    in_cells = [(name, mask) for name, mask in masks if name in cells]
    by_row = row_masker(masks)
    masked = [name for name, _ in plain]

    def change(row: dict[str, Any]) -> dict[str, Any]:
        result = dict(row)
        if by_row is not None:
            if cells:
                contents = {
                    name: value["value"] if name in cells and value is not None else value
                    for name, value in row.items()
                }
                before = dict(contents)
                by_row(contents)
                for name, value in contents.items():
                    if value is not before[name] and (name not in cells or row[name] is not None):
                        result[name] = {**row[name], "value": value} if name in cells else value
            else:
                by_row(result)
        for name, convert, nulls in steps:
            value = row.get(name)
            if value is not None or nulls:
                result[name] = convert(value)
        for name, mask in in_cells:
            cell = row.get(name)
            if cell is not None and mask.convert is not None and (cell["value"] is not None or mask.nulls):
                result[name] = {**cell, "value": mask.convert(cell["value"])}
        if as_string:
            for name in masked:
                if result[name] is not None:
                    result[name] = value_text(result[name])
        return result

    return change


def _apply_plans(record: SourceRecord, key: _MaskPlan | None = None, value: _MaskPlan | None = None) -> SourceRecord:
    plan = key or value
    if plan is None or plan.convert is None:
        return record
    result = _copy_record(record)
    if key is not None:
        result.key, result.key_schema = plan.convert(record.key), plan.schema
    else:
        result.value, result.value_schema = plan.convert(record.value), plan.schema
    return result


def _remember_entry(cache: dict[Any, Any], key: Any, value: Any) -> None:
    if len(cache) >= _CACHED:
        del cache[next(iter(cache))]
    cache[key] = value


def _each_member(steps: Mapping[str, RowFunction]) -> RowFunction:
    items = list(steps.items())

    def change(event: dict[str, Any]) -> dict[str, Any]:
        result = dict(event)
        for name, step in items:
            row = event.get(name)
            if row is not None:
                result[name] = step(row)
        return result

    return change


def _cell_content(schema: Schema) -> Schema | None:
    """The schema of the value in a struct that wraps it; None if it is no such struct."""
    if schema.type is not Type.STRUCT or schema.name is None or not schema.name.endswith(_CELLS):
        return None
    inner = schema.field("value")
    return inner.schema if inner is not None and {field.name for field in schema.fields} <= _CELL_MEMBERS else None


def _with_content(cell: Schema, content: Schema) -> Schema:
    fields = tuple(Field(field.name, content) if field.name == "value" else field for field in cell.fields)
    return replace(cell, fields=fields)


def _form_of(schema: Schema | None) -> str | None:
    return None if schema is None or schema.type is not Type.STRUCT else schema.parameter("form")


def _is_envelope(names: Iterable[str]) -> bool:
    present = set(names)
    return "source" in present and "op" in present and not present.isdisjoint(_IMAGES)


def _table_name(source: Mapping[str, Any]) -> str:
    """The table's name as a ``source`` block tells it; "" if it doesn't."""
    for parts in _SOURCE_PARTS:
        if source.get(parts[-1]) and (source.get(parts[0]) or parts is _SOURCE_PARTS[-1]):
            return ".".join(str(source[part]) for part in parts if source.get(part))
    return ""
