"""ExtractChangedRecordState: the names of the columns that an update changed, and of those that it left alone, as headers.

Source: io.debezium.transforms.ExtractChangedRecordState of Debezium 3.5.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from connectors.api import Header
from connectors.codegen import CodeBuilder, indent_lines
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, Width
from connectors.schema import OPTIONAL_STRING, Schema, Type, array
from worker.transforms.base import RecordFunction, SchemaCache, Side, Transform, copy_record, is_struct, not_a_struct
from worker.transforms.debezium.events import DEBEZIUM_VERSION, field_of, is_envelope
from worker.transforms.generated import MOST_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from connectors.api import SourceRecord

    _Comparison = Callable[[dict[str, Any], dict[str, Any]], tuple[list[str], list[str]]]

_DOUBLE: Final = struct.Struct("<d").pack
#: Types whose values are equal here where they are in Java.
_PLAIN: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN, Type.STRING, Type.BYTES)


def _header_key(name: str, display: str, doc: str) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        width=Width.LONG,
        display_name=display,
        doc=doc,
    )


class ExtractChangedRecordState(Transform):
    """Tells in headers what an update changed. Other events get the headers too, with empty lists."""

    version: ClassVar[str] = DEBEZIUM_VERSION
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.transforms.ExtractChangedRecordState",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            _header_key(
                "header.changed.name",
                "Header change name.",
                "The header that lists the columns which an update changed. Without it no header is added.",
            ),
            _header_key(
                "header.unchanged.name",
                "Header unchanged name.",
                "The header that lists the columns which an update left as they were. Without it no header is added.",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        names = (config["header.changed.name"], config["header.unchanged.name"])
        self._headers = [
            (index, name, array(OPTIONAL_STRING, optional=True, name=name))
            for index, name in enumerate(names)
            if name is not None and name.strip()
        ]

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        header_kinds = self._headers
        plans: SchemaCache[_ChangedPlan | None] = SchemaCache(
            partial(_make_plan, kinds={index for index, _, _ in header_kinds})
        )
        find, add = plans.by_id.get, plans.add
        last: object = plans
        plan: _ChangedPlan | None

        def apply(record: SourceRecord) -> SourceRecord:
            nonlocal last, plan
            event = record.value
            if event is None or not header_kinds:
                return record
            schema = record.value_schema
            if schema is not last:
                plan = (find(id(schema)) or add(schema))[1]
                last = schema
            if plan is None:
                return record
            after, before = event.get("after", plan.after), event.get("before", plan.before)
            lists = ([], []) if after is None or before is None else plan.compare(after, before)
            result = copy_record(record)
            result.headers = record.headers + tuple(
                [Header(name, lists[index], kind) for index, name, kind in header_kinds]
            )
            return result

        return apply


class _ChangedPlan(NamedTuple):
    """The derived data of one schema of events.

    Attributes:
        after: the default of the row's image, which is null as a rule.
        before: that of the other image.
        compare: gives the columns that changed and those that did not.
    """

    after: Any
    before: Any
    compare: _Comparison


def _make_plan(schema: Schema | None, kinds: AbstractSet[int]) -> _ChangedPlan | None:
    """A plan for change events, None for anything else, which passes unchanged.

    Raises:
        Skippable: the events have no rows before and after.
    """
    if schema is None or not is_envelope(schema):
        return None
    after, before = field_of(schema, "after").schema, field_of(schema, "before").schema
    if not is_struct(after) or not is_struct(before):
        raise not_a_struct("", after, "After value should be struct.")
    columns = []
    for field in after.fields:
        field_of(before, field.name)
        columns.append((field.name, None if field.schema.type in _PLAIN else field.schema))
    return _ChangedPlan(after.default, before.default, _make_comparison(columns, kinds))


def _make_comparison(columns: Sequence[tuple[str, Schema | None]], kinds: AbstractSet[int]) -> _Comparison:
    """A generated function that compares two rows; the columns come with a schema where equality needs it.

    Args:
        columns: their names and schemas.
        kinds: which of the two lists that it gives are used: 0 and 1, or one of them.
    """

    def slow(after: dict[str, Any], before: dict[str, Any]) -> tuple[list[str], list[str]]:
        changed: list[str] = []
        unchanged: list[str] = []
        new, old = after.get, before.get
        for name, schema in columns:
            new_value, old_value = new(name), old(name)
            same = new_value == old_value if schema is None else same_values(new_value, old_value, schema)
            (unchanged if same else changed).append(name)
        return changed, unchanged

    if len(columns) > MOST_FIELDS:
        return slow
    code = CodeBuilder(slow=slow, same=same_values)
    lines = ["pass"]
    for name, schema in columns:
        new_value, old_value = f"after[{name!r}]", f"before[{name!r}]"
        test = (
            f"({new_value} == {old_value})"
            if schema is None
            else f"same({new_value}, {old_value}, {code.bind('schema', schema)})"
        )
        lines.append(f"if {test}:" if 1 in kinds else f"if not {test}:")
        if 1 in kinds:
            lines.append(f"    unchanged.append({name!r})")
        if kinds == {0, 1}:
            lines.append("else:")
        if 0 in kinds:
            lines.append(f"    changed.append({name!r})")
    code.define(
        "made(after, before)",
        [
            "changed, unchanged = [], []",
            "try:",
            *indent_lines(lines),
            "except KeyError:",
            "    return slow(after, before)",
            "return changed, unchanged",
        ],
    )
    return code.function("made", "comparison of rows")


def same_values(left: Any, right: Any, schema: Schema) -> bool:
    """Whether two values of a schema are equal as Java's ``equals`` has it: NaN equals itself, 0.0 is not -0.0."""
    if left is None or right is None:
        return left is right
    kind = schema.type
    if kind in (Type.FLOAT32, Type.FLOAT64):
        return (left != left and right != right) or _DOUBLE(left) == _DOUBLE(right)  # noqa: PLR0124 - NaN alone differs from itself
    if kind is Type.STRUCT:
        return all(same_values(left.get(field.name), right.get(field.name), field.schema) for field in schema.fields)
    if kind is Type.ARRAY and schema.value_schema is not None:
        of = schema.value_schema
        return len(left) == len(right) and all(same_values(a, b, of) for a, b in zip(left, right, strict=True))
    if kind is Type.MAP and schema.value_schema is not None:
        of = schema.value_schema
        return left.keys() == right.keys() and all(same_values(value, right[key], of) for key, value in left.items())
    return bool(left == right)
