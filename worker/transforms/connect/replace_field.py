"""ReplaceField: keep, leave out and rename fields.

Source: org.apache.kafka.connect.transforms.ReplaceField of Kafka 4.1; ``whitelist`` and ``blacklist`` of Kafka before 4.0 are
still understood. One difference: a rename of a field that a struct doesn't have, or that is excluded, has no effect. Connect
would look for it all the same where a field of the new name is there, and fail or take the excluded one's value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, invalid
from connectors.schema import Field, Schema
from worker.transforms.base import (
    RecordFunction,
    Side,
    Transform,
    ValueFunction,
    by_schema,
    is_struct,
    not_a_map,
    null_refused,
    struct_only,
    with_fields,
)
from worker.transforms.generated import FrequentMaps, TakenField, map_taker, struct_taker
from worker.transforms.rewriting import SymbolicStruct, change_side, copy_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from connectors.api import SourceRecord
    from worker.transforms.rewriting import SymbolicRecord

_PURPOSE = "field replacement"


def _pair(mapping: str) -> tuple[str, str] | None:
    """``old:new``; trailing colons don't count, as in Java's ``split``."""
    parts = mapping.rstrip(":").split(":")
    return (parts[0], parts[1]) if len(parts) == 2 else None


def _check_renames(name: str, value: Sequence[str]) -> str | None:
    for mapping in value or ():
        if _pair(mapping) is None:
            return invalid(name, value, f"Invalid rename mapping: {mapping}")
    return None


class ReplaceField(Transform):
    """Keeps or leaves out fields, and renames them."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.ReplaceField",)
    sided: ClassVar[bool] = True
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="exclude",
                type=ConfigType.LIST,
                default=[],
                aliases=("blacklist",),
                doc="Fields to leave out. It wins over include.",
                example="internal_id,password",
            ),
            ConfigKey(
                name="include",
                type=ConfigType.LIST,
                default=[],
                aliases=("whitelist",),
                doc="Fields to keep; all if empty.",
                example="id,name",
            ),
            ConfigKey(
                name="renames",
                type=ConfigType.LIST,
                default=[],
                validator=_check_renames,
                doc="Fields to rename, as pairs old:new.",
                example="id:user_id,name:user_name",
            ),
            ConfigKey(
                name="replace.null.with.default",
                type=ConfigType.BOOLEAN,
                default=True,
                doc="Whether a field that is null gets its schema's default, if it has one.",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._exclude = frozenset(config["exclude"])
        self._include = frozenset(config["include"])
        self._renames = dict(pair for pair in map(_pair, config["renames"]) if pair is not None)

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``."""
        return change_side(record, self.side, self._rewritten, skip_null=True)

    def _rewritten(self, symbol: SymbolicStruct) -> SymbolicStruct:
        copied = copy_members(symbol, replace_null=self.config["replace.null.with.default"])
        kept = self._kept_fields(symbol.schema)
        members = {self._renames.get(field.name, field.name): copied[field.name] for field in kept}
        return SymbolicStruct(self._new_schema(symbol.schema, kept), symbol.struct._replace(members=members))

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        return by_schema(self.side, self._for_schema, skip_null=True)

    def _kept(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self._exclude and (not self._include or name in self._include)]

    def _kept_fields(self, schema: Schema) -> list[Field]:
        names = set(self._kept(field.name for field in schema.fields))
        return [field for field in schema.fields if field.name in names]

    def _new_schema(self, schema: Schema, kept: Iterable[Field]) -> Schema:
        return with_fields(schema, [Field(self._renames.get(field.name, field.name), field.schema) for field in kept])

    def _for_schema(self, schema: Schema | None) -> tuple[Schema | None, ValueFunction]:
        if schema is None:
            return None, self._make_schemaless()
        if not is_struct(schema):
            return schema, struct_only(schema, _PURPOSE)
        kept = self._kept_fields(schema)
        new_schema = self._new_schema(schema, kept)
        replace_null = self.config["replace.null.with.default"]
        moves = [(field.name, self._renames.get(field.name, field.name)) for field in kept]
        defaults = (
            [
                (new, field.schema.default)
                for field, (_, new) in zip(kept, moves, strict=True)
                if field.schema.default is not None
            ]
            if replace_null
            else []
        )
        required = (
            [
                (new, field)
                for field, (_, new) in zip(kept, moves, strict=True)
                if field.schema.default is not None and not field.schema.optional
            ]
            if not replace_null
            else []
        )

        def slow(value: Any, record: SourceRecord) -> Any:
            del record
            get = value.get
            result = {new: get(old) for old, new in moves}
            for name, default in defaults:
                if result[name] is None:
                    result[name] = default
            for name, field in required:
                if result[name] is None:
                    raise null_refused(field)
            return result

        filled, checked = dict(defaults), {name for name, _ in required}
        taken_fields = [TakenField(new, (old,), filled.get(new), required=new in checked) for old, new in moves]
        return new_schema, struct_taker(taken_fields, slow, "value, record")

    def _make_schemaless(self) -> ValueFunction:
        if not self._include and not self._renames:
            return self._leaving_out()
        rename = self._renames.get
        kept = self._kept

        def slow(value: dict[str, Any]) -> dict[str, Any]:
            return {rename(name, name): value[name] for name in kept(value)}

        def make(names: tuple[str, ...]) -> Callable[[dict[str, Any]], dict[str, Any]]:
            return map_taker(names, {name: rename(name, name) for name in kept(names)})

        frequent = FrequentMaps(make, slow)
        find, seldom = frequent.generated.get, frequent.seldom
        last: tuple[str, ...] = ()
        last_function: Callable[[dict[str, Any]], Any] = slow

        def convert(value: Any, record: SourceRecord) -> Any:
            nonlocal last, last_function
            del record
            if not isinstance(value, dict):
                raise not_a_map(value, _PURPOSE)
            names = tuple(value)
            if names != last:
                function = find(names)
                if function is None:
                    return seldom(names)(value)
                last, last_function = names, function
            return last_function(value)

        return convert

    def _leaving_out(self) -> ValueFunction:
        exclude = tuple(self._exclude)

        def convert(value: Any, record: SourceRecord) -> Any:
            del record
            if not isinstance(value, dict):
                raise not_a_map(value, _PURPOSE)
            result = dict(value)
            for name in exclude:
                result.pop(name, None)
            return result

        return convert
