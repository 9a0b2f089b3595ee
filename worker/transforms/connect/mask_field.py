"""MaskField: empty values, or a fixed replacement, instead of what the fields hold.

Source: org.apache.kafka.connect.transforms.MaskField of Kafka 4.1. One difference: a masked Decimal gets its schema's scale,
where Connect writes one of scale 0 that its converters then refuse.
"""

from __future__ import annotations

from decimal import Decimal, Inexact, InvalidOperation, localcontext
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type
from worker.transforms.base import (
    RecordFunction,
    Side,
    Transform,
    ValueFunction,
    by_schema,
    is_struct,
    non_empty_list,
    not_a_map,
    struct_copier,
    struct_only,
)
from worker.transforms.java.conversions import class_name, to_decimal, to_double, to_float, to_integer
from worker.transforms.rewriting import SymbolicStruct, change_side, copy_members, mask_member

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceRecord
    from worker.transforms.rewriting import SymbolicRecord

_PURPOSE = "mask fields"
_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_PYTHON_TYPES: Final = {
    bool: Type.BOOLEAN,
    int: Type.INT64,
    float: Type.FLOAT64,
    str: Type.STRING,
    list: Type.ARRAY,
    dict: Type.MAP,
}
_DATES: Final = (DATE, TIME, TIMESTAMP)


def _scale_number(number: Decimal, schema: Schema) -> Decimal:
    scale = int(schema.parameter("scale") or 0)
    with localcontext() as context:
        context.prec = max(28, len(number.as_tuple().digits) + scale + abs(number.adjusted()) + 2)
        context.traps[Inexact] = True
        try:
            return number.quantize(Decimal(1).scaleb(-scale))
        except (Inexact, InvalidOperation):
            raise Skippable(
                f"replacement {number} has more digits after the point than the field's scale of {scale}"
            ) from None


def _empty_maker(kind: Type | None, shown: str) -> Callable[[], Any]:
    """A maker of the value that stands for nothing; fresh each time where it could be changed."""
    if kind in _BITS:
        return int
    if kind in (Type.FLOAT32, Type.FLOAT64):
        return float
    if kind is Type.BOOLEAN:
        return bool
    if kind is Type.STRING:
        return str
    if kind is Type.ARRAY:
        return list
    if kind is Type.MAP:
        return dict
    raise Skippable(f"Cannot mask value of type: class {shown}")


def _parse_replacement(kind: Type | None, shown: str, replacement: str) -> Any:
    if kind in _BITS:
        return to_integer(replacement, _BITS[kind])
    if kind is Type.FLOAT32:
        return to_float(replacement)
    if kind is Type.FLOAT64:
        return to_double(replacement)
    if kind is Type.STRING:
        return replacement
    raise Skippable(f"Cannot mask value of type class {shown} with custom replacement.")


class MaskField(Transform):
    """Hides the contents of fields."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.MaskField",)
    sided: ClassVar[bool] = True
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="fields",
                type=ConfigType.LIST,
                validator=non_empty_list,
                importance=Importance.HIGH,
                doc="Fields to hide.",
                example="password,iban",
            ),
            ConfigKey(
                name="replacement",
                type=ConfigType.STRING,
                default=None,
                validator=non_empty,
                importance=Importance.LOW,
                doc="What to write instead, for fields that are numbers or strings. Without it they get 0, false, an empty "
                "string, list or map.",
                example="***",
            ),
            ConfigKey(
                name="replace.null.with.default",
                type=ConfigType.BOOLEAN,
                default=True,
                doc="Whether a field that is null gets its schema's default, if it has one, before it is masked.",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._fields = tuple(dict.fromkeys(config["fields"]))
        self._replacement: str | None = config["replacement"]

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``."""
        return change_side(record, self.side, self._rewritten, skip_null=False)

    def _rewritten(self, symbol: SymbolicStruct) -> SymbolicStruct:
        members = copy_members(symbol, replace_null=self.config["replace.null.with.default"])
        for field in symbol.schema.fields:
            if field.name in self._fields:
                mask = self._make_mask(field.schema.type, field.schema, class_name(0, field.schema))
                members[field.name] = mask_member(members[field.name], mask())
        return symbol._replace(struct=symbol.struct._replace(members=members))

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        return by_schema(self.side, self._for_schema, skip_null=False)

    def _make_mask(self, kind: Type | None, schema: Schema | None, shown: str) -> Callable[[], Any]:
        """A maker of masked values of one type.

        Raises:
            Skippable: values of that type can't be masked, or not with this replacement.
        """
        replacement = self._replacement
        if schema is not None and schema.name == DECIMAL:
            number = _scale_number(Decimal(0) if replacement is None else to_decimal(replacement), schema)
            return lambda: number
        if schema is not None and schema.name in _DATES:
            if replacement is None:
                return int
            raise Skippable(f"Cannot mask value of type class {shown} with custom replacement.")
        if replacement is None:
            return _empty_maker(kind, shown)
        value = _parse_replacement(kind, shown, replacement)
        return lambda: value

    def _for_schema(self, schema: Schema | None) -> tuple[Schema | None, ValueFunction]:
        if schema is None:
            return None, self._make_schemaless()
        if not is_struct(schema):
            return schema, struct_only(schema, _PURPOSE)
        copy = struct_copier(schema, replace_null=self.config["replace.null.with.default"])
        masks: list[tuple[str, Callable[[], Any]]] = []
        for field in schema.fields:
            if field.name not in self._fields:
                continue
            try:
                masks.append(
                    (field.name, self._make_mask(field.schema.type, field.schema, class_name(0, field.schema)))
                )
            except Skippable as error:
                masks.append((field.name, _make_refusal(str(error))))  # nulls of such a field pass

        def convert(value: Any, record: SourceRecord) -> Any:
            del record
            if value is None:
                raise Skippable(f"Only Struct objects supported for [{_PURPOSE}], found: null")
            result = copy(value)
            for name, mask in masks:
                if result.get(name) is not None:
                    result[name] = mask()
            return result

        return schema, convert

    def _make_schemaless(self) -> ValueFunction:
        fields = self._fields

        makers: dict[type, Callable[[], Any]] = {}

        def maker(value: Any) -> Callable[[], Any]:
            """Return the maker of masked values of the value's type; it is kept for the types that can be masked."""
            if isinstance(value, Decimal):
                number = Decimal(0) if self._replacement is None else to_decimal(self._replacement)
                return lambda: number
            make_mask = self._make_mask(_PYTHON_TYPES.get(type(value)), None, class_name(value))
            makers[type(value)] = make_mask
            return make_mask

        def convert(value: Any, record: SourceRecord) -> Any:
            del record
            if not isinstance(value, dict):
                raise not_a_map(value, _PURPOSE)
            result = dict(value)
            for name in fields:
                member = value.get(name)
                result[name] = None if member is None else (makers.get(type(member)) or maker(member))()
            return result

        return convert


def _make_refusal(message: str) -> Callable[[], Any]:
    def refuse() -> Any:
        raise Skippable(message)

    return refuse
