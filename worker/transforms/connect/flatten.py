"""Flatten: one level of fields instead of nested ones, whose names are joined.

Source: org.apache.kafka.connect.transforms.Flatten of Kafka 4.1.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType
from connectors.schema import Field, Schema, Type
from worker.transforms.base import (
    RecordFunction,
    Transform,
    ValueFunction,
    by_schema,
    is_struct,
    not_a_map,
    refusing,
    struct_only,
    with_fields,
)
from worker.transforms.generated import TakenField, struct_taker
from worker.transforms.java.conversions import class_name

if TYPE_CHECKING:
    from connectors.api import SourceRecord

_PURPOSE = "flattening"
#: Types that most values have, and that are no maps.
_LEAVES: Final = frozenset((str, int, float, bool, bytes, type(None)))
#: A field of the result: its name, the names that lead to it, and the default that stands for a null.
_Leaf = tuple[str, tuple[str, ...], Any]


class Flatten(Transform):
    """Flattens the key or the value."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.Flatten",)
    sided: ClassVar[bool] = True
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="delimiter",
                type=ConfigType.STRING,
                default=".",
                doc="The string between the names of nested fields.",
                example="_",
            ),
        ]
    )

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        return by_schema(self.side, self._for_schema, skip_null=True)

    def _for_schema(self, schema: Schema | None) -> tuple[Schema | None, ValueFunction]:
        if schema is None:
            return None, self._make_schemaless
        if not is_struct(schema):
            return schema, struct_only(schema, _PURPOSE)
        try:
            field_leaves = self._fields(schema, "", (), schema.default, optional=schema.optional)
            flat = with_fields(schema, [field for field, _ in field_leaves])
        except Skippable as error:
            return schema, refusing(error)
        top = [(name, path[0], default) for _, (name, path, default) in field_leaves if len(path) == 1]
        nested = [leaf for _, leaf in field_leaves if len(leaf[1]) > 1]
        order = [field.name for field in flat.fields]

        def convert(value: Any, record: SourceRecord) -> Any:
            del record
            get = value.get
            result = dict.fromkeys(order)
            for name, old, default in top:
                member = get(old)
                result[name] = default if member is None else member
            for name, path, default in nested:
                member = value
                for step in path[:-1]:
                    member = member.get(step)
                    if member is None:
                        break
                else:
                    member = member.get(path[-1])
                    if member is None:
                        member = default
                result[name] = member
            return result

        leaves = {leaf[0]: leaf for _, leaf in field_leaves}
        return flat, struct_taker([TakenField(*leaves[name]) for name in order], convert, "value, record")

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self.config['delimiter']}{name}" if prefix else name

    def _fields(
        self, schema: Schema, prefix: str, path: tuple[str, ...], default: Any, *, optional: bool
    ) -> list[tuple[Field, _Leaf]]:
        """The fields that those of ``schema`` become.

        Args:
            schema: a struct's.
            prefix: the joined names that lead to it.
            path: those names.
            default: the struct's default, from itself or from what it is in.
            optional: whether it or anything that it is in is optional.

        Raises:
            Skippable: a field is a map.
        """
        leaves: list[tuple[Field, _Leaf]] = []
        for field in schema.fields:
            name, here = self._name(prefix, field.name), (*path, field.name)
            may_miss = optional or field.schema.optional
            own_default = field.schema.default
            inherited = own_default if own_default is not None else (default or {}).get(field.name)
            if field.schema.type is Type.STRUCT:
                leaves += self._fields(field.schema, name, here, inherited, optional=may_miss)
            elif field.schema.type is Type.MAP:
                raise Skippable(
                    f"Flatten transformation does not support MAP for record with schemas (for field {name})."
                )
            else:
                flat = replace(field.schema, optional=may_miss, default=inherited)
                leaves.append((Field(name, flat), (name, here, own_default)))
        return leaves

    def _make_schemaless(self, value: Any, record: SourceRecord) -> Any:
        del record
        if not isinstance(value, dict):
            raise not_a_map(value, _PURPOSE)
        result: dict[str, Any] = {}
        join = self.config["delimiter"]
        for key, item in value.items():
            if type(item) in _LEAVES:
                result[key] = item
            elif isinstance(item, dict):
                _flatten_map(item, f"{key}{join}" if key else "", join, result)
            else:
                result[key] = _check_item(item)
        return result


def _flatten_map(value: dict[str, Any], prefix: str, join: str, result: dict[str, Any]) -> None:
    for key, item in value.items():
        name = f"{prefix}{key}" if prefix else key
        if type(item) in _LEAVES:
            result[name] = item
        elif isinstance(item, dict):
            _flatten_map(item, f"{name}{join}" if name else "", join, result)
        else:
            result[name] = _check_item(item)


def _check_item(item: Any) -> Any:
    if isinstance(item, Decimal):
        raise Skippable(
            f"Flatten transformation was passed a value of type class {class_name(item)} which is not supported by "
            "Connect's data API"
        )
    return item
