"""ExtractNewRecordState: the row as it is after a change, instead of Debezium's envelope around it.

Source: io.debezium.transforms.ExtractNewRecordState of Debezium 3.5. ``drop.tombstones`` and ``delete.handling.mode``, which
Debezium 3.2 removed, still work as they did while ``delete.tombstone.handling.mode`` is not set. Two differences: a block of
the event may be added as a field (Debezium fails), and fields are dropped from the key of a deletion's tombstone too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.api import Header
from connectors.errors import ConfigInvalid, Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, Width
from connectors.schema import OPTIONAL_STRING, STRING, Field, Schema, Type
from connectors.wire import EVENT, ROW, Fixed
from worker.transforms.base import (
    RecordFunction,
    SchemaCache,
    Side,
    Transform,
    copy_record,
    is_struct,
    not_a_struct,
    remember,
    struct_copier,
    with_fields,
)
from worker.transforms.connect.replace_field import ReplaceField
from worker.transforms.debezium.events import is_envelope, validate_enumerated
from worker.transforms.rewriting import NULL, Member, Struct, SymbolicRecord, SymbolicStruct, copy_members

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import SourceRecord
    from worker.transforms.rewriting import Node

_DELETED: Final = "__deleted"
_TRANSACTION_FIELDS: Final = frozenset(("id", "data_collection_order", "total_order"))
_ENVELOPE_FIELDS: Final = frozenset(("op", "ts_ms", "ts_us", "ts_ns"))
_MODES: Final = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")

#: Works on the event's value: finds the block, and returns a value in it.
_Getter = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class _Reference:
    """One item of ``add.fields`` or ``add.headers``: the position of a value in the event, and its new name."""

    block: str | None
    name: str
    new_name: str

    @classmethod
    def parse(cls, prefix: str, reference: str) -> _Reference:
        """``name``, ``block.name``, either with ``:new_name``.

        Raises:
            ConfigInvalid: there is more than one colon.
        """
        parts = reference.strip().rstrip(":").split(":")
        if len(parts) > 2 or not parts[0]:
            raise ConfigInvalid(f"Unexpected field name: {reference}; write name, block.name, or either with :new_name")
        path = parts[0].split(".")
        name = path[0] if len(path) == 1 else path[1]
        block = _block_name(name) if len(path) == 1 else path[0]
        default = name if len(path) == 1 else f"{block}_{name}"
        return cls(block, name, prefix + (parts[1] if len(parts) == 2 else default))

    def resolve(self, envelope: Schema) -> tuple[Schema, _Getter] | None:
        """The field's schema and how to get it; None if events of that schema don't have it.

        Raises:
            Skippable: the block it should stand in doesn't exist, or is no struct.
        """
        top = envelope.field(self.name)
        if self.block is None:
            return None if top is None else (_make_optional(top.schema), _make_getter(self.name))
        block = envelope.field(self.block)
        if block is None:
            raise Skippable(
                f"the event {envelope.name} has no block {self.block!r} to take {self.name!r} from: correct "
                "add.fields or add.headers"
            )
        if not is_struct(block.schema):
            raise Skippable("Cannot look up fields on non-struct type")
        field = block.schema.field(self.name)
        if field is not None:
            return _make_optional(field.schema), _get_in(self.block, self.name)
        if top is None:
            return None
        return _make_optional(top.schema), _get_beside(self.block, self.name)

    def find(self, event: SymbolicStruct) -> Member | Fixed:
        """The same member as ``resolve`` finds, of a symbolic event.

        Raises:
            ValueError: it can't be taken from where it is.
        """
        node: Node | None = event.struct.members.get(self.block or self.name)
        optional = False
        if self.block is not None and isinstance(node, Struct):
            node = node.members.get(self.name)
            optional = _find_block(event.schema, self.block).optional
        if node == NULL:
            return NULL
        if not isinstance(node, Member | Fixed):
            raise ValueError(f"{self.name} is no single member")  # noqa: TRY004 - of the configuration
        if optional and not (isinstance(node, Member) and node.is_plain and node.marker == ROW):
            raise ValueError(f"{self.block} may be null")
        return node


def _block_name(name: str) -> str | None:
    """Return the block that contains an unqualified name."""
    if name in _TRANSACTION_FIELDS:
        return "transaction"
    if name in _ENVELOPE_FIELDS:
        return None
    return "updateDescription" if name == "updateDescription" else "source"


def _make_optional(schema: Schema) -> Schema:
    return replace(schema, optional=True, default=None)


def _make_getter(name: str) -> _Getter:
    def get(event: dict[str, Any]) -> Any:
        return event.get(name)

    return get


def _get_in(block: str, name: str) -> _Getter:
    def get(event: dict[str, Any]) -> Any:
        inner = event.get(block)
        return None if inner is None else inner.get(name)

    return get


def _get_beside(block: str, name: str) -> _Getter:
    """A field another transform put into the event itself: it counts only where its block is there, as in Debezium."""

    def get(event: dict[str, Any]) -> Any:
        return None if event.get(block) is None else event.get(name)

    return get


@dataclass(frozen=True, slots=True)
class _Policy:
    """The handling of deletions and tombstones."""

    keep_tombstones: bool
    #: ``drop``, ``null`` (null with the row's schema), ``tombstone`` (null without schema) or ``rewrite``.
    deletes: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> _Policy:
        mode = config["delete.tombstone.handling.mode"]
        legacy = config["delete.handling.mode"], config["drop.tombstones"]
        if mode is None and legacy != (None, None):
            deletes = (legacy[0] or "drop").strip().lower()
            return cls(legacy[1] is False, "null" if deletes == "none" else deletes)
        mode = (mode or "tombstone").strip().lower()
        deletes = {"tombstone": "null", "delete-to-tombstone": "tombstone", "rewrite-with-tombstone": "rewrite"}.get(
            mode, mode
        )
        return cls(mode == "rewrite-with-tombstone", deletes)


@dataclass(frozen=True, slots=True)
class _ImageRow:
    """How one of the event's row images becomes the value."""

    schema: Schema
    convert: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
    #: Names that must survive ``drop.fields.header.name``.
    added: frozenset[str]


@dataclass(slots=True)
class _NewStatePlan:
    """Everything that is known of one event schema; the parts are made when the first record needs them."""

    envelope: Schema
    upsert: _ImageRow | None = None
    delete: _ImageRow | None = None
    headers: tuple[tuple[str, Schema, _Getter], ...] | None = None


class _Dropper:
    """Removes the fields a record's header names, from the value and if asked from the key."""

    def __init__(self, header: str, *, from_key: bool, compatible: bool) -> None:
        self.header = header
        self.from_key = from_key
        self.compatible = compatible
        self._replacers: dict[tuple[Side, tuple[str, ...]], RecordFunction] = {}

    def apply(self, record: SourceRecord, kept: frozenset[str]) -> SourceRecord:
        names = next((header.value for header in record.headers if header.key == self.header), None)
        if not names:
            return record
        if not isinstance(names, list | tuple):
            raise Skippable(f"header {self.header} must hold a list of field names, found: {names!r}")
        if self.from_key and record.key is not None:
            record = self._drop_fields(record, Side.KEY, record.key_schema, names)
        if record.value is None:
            return record
        return self._drop_fields(record, Side.VALUE, record.value_schema, [name for name in names if name not in kept])

    def _drop_fields(
        self, record: SourceRecord, side: Side, schema: Schema | None, names: Sequence[str]
    ) -> SourceRecord:
        if self.compatible:
            optional = {field.name for field in schema.fields if field.schema.optional} if schema is not None else ()
            names = [name for name in names if name in optional]
        if not names:
            return record
        cache_key = side, tuple(names)
        replacer = self._replacers.get(cache_key)
        if replacer is None:
            config = ReplaceField.config_def.parse({"exclude": ",".join(names)})
            replacer = ReplaceField(config, side).compile()
            remember(self._replacers, cache_key, replacer)
        return replacer(record) or record


class ExtractNewRecordState(Transform):
    """Unwraps change events."""

    version: ClassVar[str] = "3.5.0.Final"
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.transforms.ExtractNewRecordState",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="delete.tombstone.handling.mode",
                type=ConfigType.STRING,
                default=None,
                width=Width.MEDIUM,
                validator=validate_enumerated(*_MODES),
                display_name="Handle delete and tombstone records",
                doc="What becomes of deletions and of the tombstones after them: drop (both go), tombstone (the default: the "
                "deletion's value becomes null, its tombstone goes), rewrite (the deleted row with __deleted=true, the "
                "tombstone goes), rewrite-with-tombstone (the same, the tombstone stays), delete-to-tombstone (as "
                "tombstone, without a schema).",
                example="rewrite",
            ),
            ConfigKey(
                name="route.by.field",
                type=ConfigType.STRING,
                default="",
                importance=Importance.LOW,
                width=Width.LONG,
                display_name="Route by field name",
                doc="A field of the row whose value becomes the record's topic.",
            ),
            ConfigKey(
                name="add.fields.prefix",
                type=ConfigType.STRING,
                default="__",
                importance=Importance.LOW,
                width=Width.SHORT,
                display_name="Field prefix to be added to each field.",
                doc="What the names of added fields begin with.",
            ),
            ConfigKey(
                name="add.fields",
                type=ConfigType.LIST,
                default=[],
                importance=Importance.LOW,
                width=Width.LONG,
                display_name="Adds the specified field(s) to the message if they exist.",
                doc="Parts of the event to add to the row: name (of op, ts_ms, ts_us, ts_ns, the source block, or id and "
                "orders of the transaction), block.name, each with :new_name if wanted.",
                example="op,table,source.ts_ms:changed_at",
            ),
            ConfigKey(
                name="add.headers.prefix",
                type=ConfigType.STRING,
                default="__",
                importance=Importance.LOW,
                width=Width.SHORT,
                display_name="Header prefix to be added to each header.",
                doc="What the names of added headers begin with.",
            ),
            ConfigKey(
                name="add.headers",
                type=ConfigType.LIST,
                default=[],
                importance=Importance.LOW,
                width=Width.LONG,
                display_name="Adds the specified fields to the header if they exist.",
                doc="Parts of the event to add as headers; written like add.fields.",
                example="op,source.ts_ms",
            ),
            ConfigKey(
                name="drop.fields.header.name",
                type=ConfigType.STRING,
                default=None,
                importance=Importance.LOW,
                width=Width.SHORT,
                display_name="Specifies a header that contains a list of field names to be removed",
                doc="A header that names fields to remove from the row.",
            ),
            ConfigKey(
                name="drop.fields.from.key",
                type=ConfigType.BOOLEAN,
                default=False,
                importance=Importance.LOW,
                width=Width.SHORT,
                display_name="Specifies whether the fields to be dropped should also be omitted from the key",
                doc="Whether those fields are removed from the key too.",
            ),
            ConfigKey(
                name="drop.fields.keep.schema.compatible",
                type=ConfigType.BOOLEAN,
                default=True,
                importance=Importance.LOW,
                width=Width.SHORT,
                display_name="Specifies if fields are dropped, will the event's schemas be compatible",
                doc="Whether only optional fields are removed, so that readers of the older schema can continue.",
            ),
            ConfigKey(
                name="replace.null.with.default",
                type=ConfigType.BOOLEAN,
                default=True,
                importance=Importance.LOW,
                width=Width.SHORT,
                display_name="replace null field value with default",
                doc="Whether a null gets its field's default when a row is rewritten.",
            ),
            ConfigKey(
                name="drop.tombstones",
                type=ConfigType.BOOLEAN,
                default=None,
                importance=Importance.LOW,
                width=Width.SHORT,
                display_name="Drop tombstones",
                doc="Deprecated: use delete.tombstone.handling.mode. Whether tombstones go (true if only "
                "delete.handling.mode is set).",
            ),
            ConfigKey(
                name="delete.handling.mode",
                type=ConfigType.STRING,
                default=None,
                width=Width.MEDIUM,
                validator=validate_enumerated("drop", "rewrite", "none"),
                display_name="Handle delete records",
                doc="Deprecated: use delete.tombstone.handling.mode. drop (the default if only drop.tombstones is set), "
                "rewrite or none (the value becomes null).",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._policy = _Policy.of(config)
        self._fields = [_Reference.parse(config["add.fields.prefix"], item) for item in config["add.fields"]]
        self._headers = [_Reference.parse(config["add.headers.prefix"], item) for item in config["add.headers"]]
        self._route_by = config["route.by.field"] or None
        name = config["drop.fields.header.name"]
        self._dropper = (
            _Dropper(
                name, from_key=config["drop.fields.from.key"], compatible=config["drop.fields.keep.schema.compatible"]
            )
            if name and name.strip()
            else None
        )

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``: the row after the change, where neither headers nor topics depend on its row."""
        envelope, event = record.value
        if self._route_by is not None or self._dropper is not None or not is_envelope(envelope):
            return None
        after = event.members.get("after")
        if not isinstance(after, Struct):
            return None
        rewriting = self._policy.deletes == "rewrite"
        row = SymbolicStruct(_find_block(envelope, "after"), after)
        members = copy_members(row, replace_null=rewriting and self.config["replace.null.with.default"])
        if rewriting:
            members[_DELETED] = Fixed("false")
        for item in self._fields:
            if item.resolve(envelope) is not None:
                members[item.new_name] = item.find(record.value)
        headers = list(record.headers)
        for item in self._headers:
            source = item.resolve(envelope)
            if source is not None:
                node = item.find(record.value)
                if isinstance(node, Member) and not (node.marker == EVENT and node.is_plain):
                    return None
                headers.append(Header(item.new_name, node.value if isinstance(node, Fixed) else node, source[0]))
        value = SymbolicStruct(self._compile_row(envelope, "after", "false").schema, Struct(members))
        return replace(record, headers=tuple(headers), value=value, deletions=False)

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        plans: SchemaCache[_NewStatePlan | None] = SchemaCache(_make_plan)
        find, add = plans.by_id.get, plans.add
        keep_tombstones = self._policy.keep_tombstones
        tombstone_headers = tuple(Header(item.new_name, "d", STRING) for item in self._headers if item.name == "op")
        plain = self._route_by is None and self._dropper is None and not self._headers

        last: object = plans
        plan: _NewStatePlan | None

        def apply(record: SourceRecord) -> SourceRecord | None:
            nonlocal last, plan
            event = record.value
            if event is None:
                if not keep_tombstones:
                    return None
                return _with_headers(record, tombstone_headers) if tombstone_headers else record
            schema = record.value_schema
            if schema is not last:
                plan = (find(id(schema)) or add(schema))[1]
                last = schema
            if plan is None:
                return record
            after = event.get("after")
            if after is None:
                return self._handle_delete(record, event, plan)
            row = plan.upsert or self._upsert_row(plan)
            result = copy_record(record)
            result.value = row.convert(after, event)
            result.value_schema = row.schema
            return result if plain else self._finish_record(result, event, "after", result.value, plan, frozenset())

        return apply

    def _handle_delete(self, record: SourceRecord, event: dict[str, Any], plan: _NewStatePlan) -> SourceRecord | None:
        after = _find_block(plan.envelope, "after")
        _find_block(plan.envelope, "before")
        before = event.get("before")
        if before is None or self._policy.deletes == "drop":
            return None  # neither image: a truncation, which Debezium drops
        result = copy_record(record)
        kept: frozenset[str] = frozenset()
        if self._policy.deletes == "rewrite":
            row = plan.delete or self._delete_row(plan)
            result.value, result.value_schema, kept = row.convert(before, event), row.schema, row.added
        else:
            result.value = None
            result.value_schema = after if self._policy.deletes == "null" else None
        return self._finish_record(result, event, "before", before, plan, kept)

    def _finish_record(
        self,
        result: SourceRecord,
        event: dict[str, Any],
        image: str,
        row: dict[str, Any],
        plan: _NewStatePlan,
        kept: frozenset[str],
    ) -> SourceRecord:
        """Headers, route and dropped fields, for configurations that have them; changes ``result``, which is ours."""
        if self._headers:
            if plan.headers is None:
                added = [(item.new_name, item.resolve(plan.envelope)) for item in self._headers]
                plan.headers = tuple((name, *source) for name, source in added if source is not None)
            result.headers = (
                *result.headers,
                *(Header(name, get(event), schema) for name, schema, get in plan.headers),
            )
        if self._route_by is not None:
            topic = _routing_value(_find_block(plan.envelope, image), row, self._route_by)
            if topic is not None and topic.strip():
                result.topic = topic
        return result if self._dropper is None else self._dropper.apply(result, kept)

    def _upsert_row(self, plan: _NewStatePlan) -> _ImageRow:
        plan.upsert = self._compile_row(plan.envelope, "after", "false")
        return plan.upsert

    def _delete_row(self, plan: _NewStatePlan) -> _ImageRow:
        plan.delete = self._compile_row(plan.envelope, "before", "true")
        return plan.delete

    def _compile_row(self, envelope: Schema, image: str, deleted: str) -> _ImageRow:
        """Compile the way from an image and its event to the value.

        Raises:
            Skippable: events of this schema have no such image, or it can't take the fields.
        """
        schema = _find_block(envelope, image)
        if not is_struct(schema):
            raise not_a_struct("", schema, "source field insertion")
        if envelope.field("op") is None:
            raise Skippable("op is not a valid field name")
        rewrite = self._policy.deletes == "rewrite"
        fields = [*schema.fields, *([Field(_DELETED, OPTIONAL_STRING)] if rewrite else [])]
        added = [(item.new_name, item.resolve(envelope)) for item in self._fields]
        present = [(name, *source) for name, source in added if source is not None]
        new_schema = with_fields(schema, [*fields, *(Field(name, kind) for name, kind, _ in present)])
        copy = struct_copier(schema, replace_null=rewrite and self.config["replace.null.with.default"])
        getters = [(name, get) for name, _, get in present]
        fixed = {_DELETED: deleted} if rewrite else {}

        def convert(row: dict[str, Any], event: dict[str, Any]) -> dict[str, Any]:
            value = copy(row)
            if fixed:
                value.update(fixed)
            for name, get in getters:
                value[name] = get(event)
            return value

        return _ImageRow(new_schema, convert, frozenset(name for name, _ in getters))


def _make_plan(schema: Schema | None) -> _NewStatePlan | None:
    """A plan for change events, None for anything else, which passes unchanged."""
    return _NewStatePlan(schema) if schema is not None and is_envelope(schema) else None


def _find_block(envelope: Schema, name: str) -> Schema:
    field = envelope.field(name)
    if field is None:
        raise Skippable(f"Unknown field: {name}")
    return field.schema


def _routing_value(schema: Schema, row: dict[str, Any], name: str) -> str | None:
    field = schema.field(name)
    if field is None:
        raise Skippable(f"{name} is not a valid field name")
    if field.schema.type is not Type.STRING:
        raise Skippable(f"Field '{name}' is not of type STRING")
    value: str | None = row.get(name)
    return value


def _with_headers(record: SourceRecord, headers: tuple[Header, ...]) -> SourceRecord:
    result = copy_record(record)
    result.headers = record.headers + headers
    return result
