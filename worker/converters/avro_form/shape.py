"""For writing with a schema that is not the record's own: values in the form fastavro takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from connectors.schema import DECIMAL, Type
from worker.converters.avro_form.schema import AvroSettings, avro_name, is_string_map, is_union
from worker.converters.javatext import decimal_bytes, decimal_scale

if TYPE_CHECKING:
    from connectors.schema import Schema

Shape = Callable[[Any], Any]


def make_shaper(schema: Schema | None, settings: AvroSettings) -> Shape:
    """A function that gives values of ``schema`` fastavro's form: Avro's names, decimals as bytes, pairs as records."""
    if schema is None:
        return lambda value: value
    present = _present_shaper(schema, settings)
    default = schema.default
    if default is not None:
        return lambda value: present(default if value is None else value)
    return lambda value: None if value is None else present(value)


def _present_shaper(schema: Schema, settings: AvroSettings) -> Shape:
    if is_union(schema):
        branches = [(member.name, make_shaper(member.schema, settings)) for member in schema.fields]
        return lambda value: next((shape(value[name]) for name, shape in branches if value.get(name) is not None), None)
    if schema.type is Type.STRUCT:
        members = [
            (member.name, avro_name(member.name, settings), make_shaper(member.schema, settings))
            for member in schema.fields
        ]
        return lambda value: {written: shape(value.get(name)) for name, written, shape in members}
    if schema.type is Type.ARRAY:
        item = make_shaper(schema.value_schema, settings)
        return lambda value: [item(element) for element in value]
    if schema.type is Type.MAP:
        key, item = make_shaper(schema.key_schema, settings), make_shaper(schema.value_schema, settings)
        if is_string_map(schema):
            return lambda value: {name: item(element) for name, element in value.items()}
        return lambda value: [{"key": key(name), "value": item(element)} for name, element in value.items()]
    if schema.type is Type.BYTES and schema.name == DECIMAL:
        scale = decimal_scale(schema)
        return lambda value: decimal_bytes(value, scale)
    return lambda value: value
