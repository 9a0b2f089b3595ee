"""Cast: other types for fields, or for the whole key or value.

Source: org.apache.kafka.connect.transforms.Cast of Kafka 4.1. Two differences: a whole date, time, timestamp or decimal loses
its logical type when it is cast, as fields do (Connect keeps the name, which its converters refuse then); and dates before
1970-01-02 are written as dates, where Connect writes the time of day.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import ConfigInvalid, Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, invalid
from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema, Type
from worker.converters.javatext import float_text, java_text, to_float32
from worker.transforms.base import (
    REPLACE_NULL_KEY,
    RecordFunction,
    Side,
    Transform,
    ValueFunction,
    by_schema,
    is_struct,
    not_a_map,
    refusing,
    struct_copier,
    with_fields,
)
from worker.transforms.java.conversions import class_name
from worker.transforms.java.date_format import JavaDateFormat
from worker.transforms.java.numbers import (
    decimal_to_integer,
    float_to_integer,
    parse_floating,
    parse_integer,
    to_single,
    wrap_integer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import SourceRecord

    _Conversion = Callable[[Any], Any]

#: Below it floats have fewer digits (FLT_MIN, rounded up).
_SMALLEST: Final = 1.2e-38
_PURPOSE: Final = "cast types"
_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_TARGETS: Final = (*_BITS, Type.FLOAT32, Type.FLOAT64, Type.BOOLEAN, Type.STRING)
_SOURCES: Final = (*_TARGETS, Type.BYTES)
_PYTHON_TYPES: Final = {
    bool: Type.BOOLEAN,
    int: Type.INT64,
    float: Type.FLOAT64,
    str: Type.STRING,
    bytes: Type.BYTES,
    list: Type.ARRAY,
    dict: Type.MAP,
}
_DAY_MS: Final = 86_400_000
_DAY: Final = JavaDateFormat("yyyy-MM-dd")
_OF_DAY: Final = JavaDateFormat("HH:mm:ss.SSS'Z'")
_INSTANT: Final = JavaDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def _list_types(kinds: Sequence[Type]) -> str:
    return f"[{', '.join(kind.name for kind in kinds)}]"


def _parse_target(type_name: str) -> Type:
    name = type_name.strip().upper()
    if name not in Type.__members__:
        raise ConfigInvalid(
            f"Invalid type found in casting spec: {type_name.strip()}; supported types are {_list_types(_TARGETS)}"
        )
    kind = Type[name]
    if kind not in _TARGETS:
        raise ConfigInvalid(
            f"Cast transformation does not support casting to {name}; supported types are {_list_types(_TARGETS)}"
        )
    return kind


def _parse_spec(spec: Sequence[str]) -> dict[str | None, Type]:
    """Field -> type; None stands for the whole key or value.

    Raises:
        ConfigInvalid: Connect's text.
    """
    casts: dict[str | None, Type] = {}
    for mapping in spec:
        parts = mapping.rstrip(":").split(":")
        if len(parts) > 2:
            raise ConfigInvalid(f"Invalid rename mapping: {mapping}")
        if len(parts) == 1:
            casts[None] = _parse_target(parts[0])
        else:
            casts[parts[0].strip()] = _parse_target(parts[1])
    if None in casts and len(spec) > 1:
        raise ConfigInvalid(
            "Cast transformations that specify a type to cast the entire value to may only specify a single "
            "cast in their spec"
        )
    return casts


def _check_spec(_name: str, value: Sequence[str] | None) -> str | None:
    if not value:
        return "Must specify at least one field to cast."
    try:
        _parse_spec(value)
    except ConfigInvalid as error:
        message = str(error)
        return invalid("renames", value, message) if message.startswith("Invalid rename") else message
    return None


class Cast(Transform):
    """Casts fields, or the whole key or value."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.Cast",)
    sided: ClassVar[bool] = True
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="spec",
                type=ConfigType.LIST,
                validator=_check_spec,
                importance=Importance.HIGH,
                doc="Pairs field:type; or one type for the whole key or value. Types are int8, int16, int32, int64, float32, "
                "float64, boolean and string. Bytes can become a string only (base64).",
                example="id:int64,price:string",
            ),
            REPLACE_NULL_KEY,
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._casts = _parse_spec(config["spec"])
        self._whole = self._casts.get(None)

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        return by_schema(self.side, self._for_schema, skip_null=True)

    def _for_schema(self, schema: Schema | None) -> tuple[Schema | None, ValueFunction]:
        try:
            if self._whole is not None:
                return _whole_of(schema, self._whole)
            if schema is None:
                return None, self._make_schemaless()
            return self._for_fields(schema)
        except Skippable as error:
            return schema, refusing(error)

    def _for_fields(self, schema: Schema) -> tuple[Schema, ValueFunction]:
        if not is_struct(schema):
            raise Skippable("Cannot list fields on non-struct type")
        fields = []
        conversions: list[tuple[str, _Conversion]] = []
        for field in schema.fields:
            kind = self._casts.get(field.name)
            if kind is None:
                fields.append(field)
                continue
            default = field.schema.default
            convert = _make_conversion(field.schema, kind)
            fields.append(
                Field(
                    field.name,
                    Schema(kind, optional=field.schema.optional, default=None if default is None else convert(default)),
                )
            )
            conversions.append((field.name, convert))
        if schema.default is not None:
            raise _unsupported_error(Type.STRUCT)
        copy = struct_copier(schema, replace_null=self.config["replace.null.with.default"])

        def cast(value: Any, record: SourceRecord) -> Any:
            del record
            result = copy(value)
            for name, convert in conversions:
                value_ = result.get(name)
                if value_ is not None:
                    result[name] = convert(value_)
            return result

        return replace(with_fields(schema, fields), optional=schema.optional), cast

    def _make_schemaless(self) -> ValueFunction:
        casts = [(name, _by_python_type(kind), _schemaless_conversion(kind)) for name, kind in self._casts.items()]

        def cast(value: Any, record: SourceRecord) -> Any:
            del record
            if not isinstance(value, dict):
                raise not_a_map(value, _PURPOSE)
            result: dict[str | None, Any] = dict(value)
            get = value.get
            for name, by_type, python_type in casts:
                field_value = get(name)
                result[name] = (
                    None if field_value is None else (by_type.get(type(field_value)) or python_type)(field_value)
                )
            return result

        return cast


def _whole_of(schema: Schema | None, kind: Type) -> tuple[Schema | None, ValueFunction]:
    if schema is None:
        cast = _schemaless_conversion(kind)
        return None, lambda value, _record: cast(value)
    convert = _make_conversion(schema, kind)
    logical = schema.name in (DECIMAL, DATE, TIME, TIMESTAMP)
    changed = Schema(
        kind,
        optional=schema.optional,
        default=None if schema.default is None else convert(schema.default),
        name=None if logical else schema.name,
        version=None if logical else schema.version,
        doc=schema.doc,
        parameters=() if logical else schema.parameters,
    )
    return changed, lambda value, _record: convert(value)


def _unsupported_error(kind: Type) -> Skippable:
    return Skippable(
        f"Cast transformation does not support casting from {kind.name}; supported types are {_list_types(_SOURCES)}"
    )


def _by_python_type(kind: Type) -> dict[type, _Conversion]:
    """Return the casts of schemaless values to a type, one for each Python type that they may have."""
    conversions = {
        python: _plain_conversion(source, kind) for python, source in _PYTHON_TYPES.items() if source in _SOURCES
    }
    return (
        {python: _short_single(convert) for python, convert in conversions.items()}
        if kind is Type.FLOAT32
        else conversions
    )


def _short_single(convert: _Conversion) -> _Conversion:
    """Without a schema nothing tells converters that a number is a float: it becomes the double whose digits are the float's.

    So 0.1 stays 0.1, as in Java, where the value's class tells it.
    """

    def short(value: Any) -> float:
        single: float = convert(value)
        # No two decimals of six digits are the same float, but for the smallest: if one is this float, there is no shorter one.
        six = float(f"{single:.6g}")
        if (abs(single) > _SMALLEST or not single) and to_float32(six) == single:
            return six
        return float(float_text(single))

    return short


def _schemaless_conversion(kind: Type) -> _Conversion:
    """Return the cast of schemaless values, other than null, to a type."""
    by_type = _by_python_type(kind)

    def cast(value: Any) -> Any:
        convert = by_type.get(type(value))
        if convert is not None:
            return convert(value)
        source = _PYTHON_TYPES.get(type(value))
        if source is not None:
            raise _unsupported_error(source)
        raise Skippable(
            f"Cast transformation was passed a value of type class {class_name(value)} which is not supported by "
            "Connect's data API"
        )

    return cast


def _make_refusal(kind: Type) -> _Conversion:
    def refuse(value: Any) -> Any:
        del value
        raise _unsupported_error(kind)

    return refuse


def _make_conversion(schema: Schema, kind: Type) -> _Conversion:
    """Return the cast of a schema's values, other than null, to a type; it raises ``Skippable`` where that is impossible."""
    if schema.type not in _SOURCES:
        return _make_refusal(schema.type)
    if kind is Type.STRING and schema.name in _LOGICAL_STRINGS:
        return _LOGICAL_STRINGS[schema.name]
    if schema.name == DECIMAL:
        return _from_decimal(kind)
    return _plain_conversion(schema.type, kind)


def _plain_conversion(source: Type, kind: Type) -> _Conversion:
    """From one type to another, for values without a logical type."""
    if kind is Type.STRING:
        return _to_string(source)
    if source is Type.STRING:
        return _from_string(kind)
    if source is Type.BYTES:
        return _refuse_bytes
    if source is Type.BOOLEAN:
        return bool if kind is Type.BOOLEAN else int if kind in _BITS else float
    floating = source in (Type.FLOAT32, Type.FLOAT64)
    if kind is Type.BOOLEAN:
        return (lambda value: float_to_integer(value, 64) != 0) if floating else bool
    if kind in _BITS:
        bits = _BITS[kind]
        if floating:
            return lambda value: float_to_integer(value, bits)
        return int if source in _BITS and _BITS[source] <= bits else lambda value: wrap_integer(value, bits)
    return to_single if kind is Type.FLOAT32 else float


def _to_string(source: Type) -> _Conversion:
    if source is Type.STRING:
        return str
    if source is Type.BYTES:
        return lambda value: b64encode(value).decode("ascii")
    if source in _BITS:
        return str
    if source is Type.BOOLEAN:
        return lambda value: "true" if value else "false"
    return partial(java_text, schema=Schema(source))


def _from_string(kind: Type) -> _Conversion:
    if kind is Type.BOOLEAN:
        return lambda value: value.lower() == "true"
    parse: _Conversion = (
        partial(parse_integer, bits=_BITS[kind])
        if kind in _BITS
        else partial(parse_floating, single=kind is Type.FLOAT32)
    )

    def cast(value: Any) -> Any:
        try:
            return parse(value)
        except ValueError:
            raise Skippable(f"Value ({value}) was out of range for requested data type") from None

    return cast


def _from_decimal(kind: Type) -> _Conversion:
    if kind is Type.STRING:
        return java_text
    if kind is Type.BOOLEAN:
        return lambda value: decimal_to_integer(Decimal(value), 64) != 0
    if kind in _BITS:
        bits = _BITS[kind]
        return lambda value: decimal_to_integer(Decimal(value), bits)
    return to_single if kind is Type.FLOAT32 else float


def _refuse_bytes(value: Any) -> Any:
    del value
    raise Skippable("Unexpected type in Cast transformation: class [B")


def _instant_text(millis: int) -> str:
    return _INSTANT.format(millis) if millis % _DAY_MS else _DAY.format(millis)


#: How values of logical types are written as strings.
_LOGICAL_STRINGS: Final[dict[str | None, _Conversion]] = {
    DATE: lambda days: _DAY.format(days * _DAY_MS),
    TIME: _OF_DAY.format,
    TIMESTAMP: _instant_text,
}
