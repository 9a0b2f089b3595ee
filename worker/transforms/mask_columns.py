"""MaskColumns: hides what columns hold, in change events, plain rows, keys and UMS messages.

The rules are those of connectors' own ``mask.rules`` (``connectors.formats.masking``), one per transform. A column is called
``database.table.column``: from the event's ``source`` block or the message's namespace where there is one, else from the topic
(``TOPIC.column``, and without the topic's first part, which is a Debezium-like connector's prefix).
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from connectors.errors import ConfigInvalid, Fatal
from connectors.formats import ums
from connectors.formats.mask_functions import value_text
from connectors.formats.masking import RULE_KEYS, Mask, Masks, Target, row_masker, rule
from connectors.options import Config, ConfigDef
from connectors.schema import BOOLEAN, BYTES, FLOAT64, INT32, INT64, STRING, Field, Schema, Type
from worker import __version__
from worker.transforms.base import RecordFunction, Side, Transform, copy_record, is_struct, remember

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.api import SourceRecord

_IMAGES: Final = ("before", "after")
_UMS_NAMES: Final = frozenset((ums.MESSAGE.name, ums.MASKED_MESSAGE.name))
#: Names that connectors give to the parts of a table's name in their source blocks.
_SOURCE_PARTS: Final = (("db", "schema", "table"), ("keyspace_name", "table_name"))
_PYTHON_TYPES: Final[Mapping[type, Schema]] = {
    bool: BOOLEAN, int: INT64, float: FLOAT64, str: STRING, bytes: BYTES,
    Decimal: Schema(Type.STRING, name="io.millrace.ums.decimal"), list: Schema(Type.ARRAY), dict: Schema(Type.MAP)}
#: What a UMS value is before it is written as text; the names tell ``default`` what nothing looks like.
_UMS_TYPES: Final[Mapping[str, Schema]] = {
    "string": STRING, "int": INT32, "long": INT64, "float": FLOAT64, "double": FLOAT64, "boolean": BOOLEAN, "binary": STRING,
    **{kind: Schema(Type.STRING, name=f"io.millrace.ums.{kind}") for kind in ("decimal", "date", "datetime")}}

#: Changes one row (a copy is made) or returns the same object.
_RowFunction = Callable[[dict[str, Any]], dict[str, Any]]


class _Plan(NamedTuple):
    """What is done to records of one schema, topic and table; ``None`` parts change nothing."""

    kept: Schema | None  # keeps the id in the cache's key from coming to mean another object
    schema: Schema | None
    convert: _RowFunction | None


class MaskColumns(Transform):
    """Masks columns by one rule."""

    version: ClassVar[str] = __version__
    aliases: ClassVar[tuple[str, ...]] = ("io.millrace.transforms.MaskColumns",)
    sided: ClassVar[bool] = True
    # "type" is taken: it names the transform's class.
    config_def: ClassVar[ConfigDef] = ConfigDef([
        replace(key, name="mask" if key.name == "type" else key.name, doc=key.doc.replace("type=", "mask="))
        for key in RULE_KEYS])

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        options: dict[str, Any] = {**config.raw, **dict(config)}
        options["type"] = options.pop("mask")
        self._masks = Masks((rule(f"{options['type']}", options),))
        self._plans: dict[tuple[int, str, str], _Plan] = {}

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        plans = self._plans
        if self.side is Side.KEY:
            def change_key(record: SourceRecord) -> SourceRecord:
                if not isinstance(record.key, dict):
                    return record
                plan = plans.get((id(record.key_schema), record.topic, "")) or self._plan(
                    record.key_schema, record.topic, "", record.key)
                if plan.convert is None:
                    return record
                result = copy_record(record)
                result.key, result.key_schema = plan.convert(record.key), plan.schema
                return result
            return change_key

        def change_value(record: SourceRecord) -> SourceRecord:
            value = record.value
            if not isinstance(value, dict):
                return record
            source = value.get("source")
            table = _table(source) if isinstance(source, dict) else ""
            plan = plans.get((id(record.value_schema), record.topic, table)) or self._plan(
                record.value_schema, record.topic, table, value)
            if plan.convert is None:
                return record
            result = copy_record(record)
            result.value, result.value_schema = plan.convert(value), plan.schema
            return result
        return change_value

    def _plan(self, schema: Schema | None, topic: str, table: str, value: dict[str, Any]) -> _Plan:
        """Make the plan for a schema met for the first time, or again after it was forgotten.

        Raises:
            Fatal: the rule can't mask a column that it names.
        """
        if schema is None:  # no schema to tell one kind of map from another: nothing to remember
            return _Plan(None, None, self._schemaless(value, topic, table))
        try:
            plan = _Plan(schema, *self._for_schema(schema, topic, table))
        except ConfigInvalid as error:
            raise Fatal(str(error)) from error
        remember(self._plans, (id(schema), topic, table), plan)
        return plan

    def _for_schema(self, schema: Schema, topic: str, table: str) -> tuple[Schema | None, _RowFunction | None]:
        if not is_struct(schema):
            return schema, None
        if schema.name in _UMS_NAMES:
            return ums.MASKED_MESSAGE, _Messages(self._masks).convert
        if not _is_envelope({field.name for field in schema.fields}):
            return self._row(schema, _names(topic, ""))
        return self._envelope(schema, _names(topic, table))

    def _envelope(self, schema: Schema, tables: Sequence[str]) -> tuple[Schema | None, _RowFunction | None]:
        fields: list[Field] = []
        steps: dict[str, _RowFunction] = {}
        for field in schema.fields:
            new, step = (None, None)
            if field.name in _IMAGES and is_struct(field.schema):
                new, step = self._row(field.schema, tables)
            fields.append(field if step is None or new is None else Field(field.name, new))
            if step is not None:
                steps[field.name] = step
        if not steps:
            return schema, None
        return replace(schema, fields=tuple(fields)), _each_image(steps)

    def _row(self, schema: Schema, tables: Sequence[str]) -> tuple[Schema | None, _RowFunction | None]:
        found: dict[str, Mask] = {}
        names = tuple(field.name for field in schema.fields)
        for field in schema.fields:
            mask = self._mask(tables, field.name, field.schema, names)
            if mask is not None:
                found[field.name] = mask
        if not found:
            return schema, None
        fields = tuple(Field(field.name, found[field.name].schema) if field.name in found else field for field in schema.fields)
        return replace(schema, fields=fields), _row_function(found.items())

    def _mask(self, tables: Sequence[str], name: str, schema: Schema, names: tuple[str, ...]) -> Mask | None:
        """The mask of a column, under the first of its table's names that a rule knows."""
        for table in tables:
            mask = self._masks.for_column(Target(f"{table}.{name}", schema, in_key=self.side is Side.KEY, fields=names))
            if mask is not None:
                return mask
        return None

    def _schemaless(self, value: dict[str, Any], topic: str, table: str) -> _RowFunction | None:
        if {"protocol", "schema", "payload"} <= value.keys():
            return _Messages(self._masks).convert
        if _is_envelope(value.keys()):
            def run(row: dict[str, Any]) -> dict[str, Any]:
                return self._plain_row(row, _names(topic, table))
            return _each_image(dict.fromkeys(_IMAGES, run))
        return lambda row: self._plain_row(row, _names(topic, ""))

    def _plain_row(self, row: dict[str, Any], tables: Sequence[str]) -> dict[str, Any]:
        names = tuple(row)
        try:
            found = [(name, self._mask(tables, name, _PYTHON_TYPES.get(type(value), STRING), names))
                     for name, value in row.items()]
        except ConfigInvalid as error:
            raise Fatal(str(error)) from error
        masks = [(name, mask) for name, mask in found if mask is not None]
        return _row_function(masks)(row) if masks else row


class _Messages:
    """Masks the rows of UMS messages; remembers what is to be done for a namespace and its fields."""

    def __init__(self, masks: Masks) -> None:
        self.masks = masks
        self._known: dict[tuple[Any, ...], tuple[list[dict[str, Any]], _RowFunction | None]] = {}

    def convert(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message with masked rows; all of its fields say whether they are ``encoded``."""
        head = message["schema"]
        fields = head["fields"]
        key = (head["namespace"], *((field["name"], field["type"], field.get("encoded", False)) for field in fields))
        known = self._known.get(key)
        if known is None:
            known = self._plan(head["namespace"], fields)
            remember(self._known, key, known)
        new_fields, change = known
        payload = message["payload"]
        if change is not None:
            names = [field["name"] for field in fields]
            payload = [{**row, "tuple": list(change(dict(zip(names, row["tuple"], strict=True))).values())} for row in payload]
        return {**message, "schema": {**head, "fields": new_fields}, "payload": payload}

    def _plan(self, namespace: str, fields: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], _RowFunction | None]:
        try:
            place = ums.Namespace.parse(namespace)
        except ValueError as error:
            raise Fatal(f"MaskColumns: {error}") from error
        names = tuple(field["name"] for field in fields)
        found: dict[str, Mask] = {}
        new_fields: list[dict[str, Any]] = []
        for field in fields:
            new = {**field, "encoded": field.get("encoded", False)}
            new_fields.append(new)
            if field["name"].startswith("ums_"):
                continue
            schema = _UMS_TYPES.get(field["type"], STRING)
            try:
                mask = self.masks.for_column(Target(f"{place.database}.{place.table}.{field['name']}", schema, fields=names))
            except ConfigInvalid as error:
                raise Fatal(str(error)) from error
            if mask is None:
                continue
            found[field["name"]] = mask
            new["encoded"] = mask.encoded or new["encoded"]
            if (mask.schema.type, mask.schema.name) != (schema.type, schema.name):
                new["type"] = "string"
        return new_fields, _row_function(found.items(), text=True) if found else None


def _row_function(masks: Iterable[tuple[str, Mask]], *, text: bool = False) -> _RowFunction:
    """A function that masks a copy of a row; with ``text`` what comes out is written as text."""
    masks = list(masks)
    steps = [(name, mask.convert, mask.nulls) for name, mask in masks if mask.convert is not None]
    by_row = row_masker(masks)
    masked = [name for name, _ in masks]

    def change(row: dict[str, Any]) -> dict[str, Any]:
        result = dict(row)
        if by_row is not None:
            by_row(result)
        for name, convert, nulls in steps:
            value = row.get(name)
            if value is not None or nulls:
                result[name] = convert(value)
        if text:
            for name in masked:
                if result[name] is not None:
                    result[name] = value_text(result[name])
        return result
    return change


def _each_image(steps: Mapping[str, _RowFunction]) -> _RowFunction:
    items = list(steps.items())

    def change(event: dict[str, Any]) -> dict[str, Any]:
        result = dict(event)
        for name, step in items:
            row = event.get(name)
            if row is not None:
                result[name] = step(row)
        return result
    return change


def _is_envelope(names: Iterable[str]) -> bool:
    present = set(names)
    return "source" in present and "op" in present and not present.isdisjoint(_IMAGES)


def _table(source: Mapping[str, Any]) -> str:
    """The table's name as a ``source`` block tells it; "" if it doesn't."""
    for parts in _SOURCE_PARTS:
        if source.get(parts[-1]):
            return ".".join(str(source[part]) for part in parts if source.get(part))
    return ""


def _names(topic: str, table: str) -> tuple[str, ...]:
    """The names that a table may go by, the surest first."""
    _, _, rest = topic.partition(".")
    return tuple(dict.fromkeys(name for name in (table, topic, rest) if name))
