"""PartitionRouting: the partition of an event by the hash of some of its fields.

Source: io.debezium.transforms.partitions.PartitionRouting of Debezium 3.5. Two differences: an unknown hash function is refused
(Debezium takes ``java``), and so are structs, whose hash in Java differs from one start to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.codegen import CodeBuilder, indent_lines
from connectors.errors import Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, at_least
from connectors.schema import Schema, Type
from worker.transforms.base import RecordFunction, SchemaCache, Side, Transform, copy_record
from worker.transforms.debezium.events import (
    DEBEZIUM_VERSION,
    is_envelope,
    no_empty_items,
    or_default,
    validate_enumerated,
)
from worker.transforms.generated import MOST_FIELDS
from worker.transforms.java.hashes import java_hasher, murmur_hasher, remembering

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import SourceRecord

    _Hasher = Callable[[Schema], Callable[[Any], int]]

_NOT_ROUTED: Final = ("t", "m")
_MOST: Final = 0x7FFFFFFF
#: Types whose hashes cost more than to look one up; their equal values have equal hashes.
_REMEMBERED: Final[dict[_Hasher, frozenset[Type]]] = {
    java_hasher: frozenset((Type.STRING,)),
    murmur_hasher: frozenset((Type.STRING, Type.INT8, Type.INT16, Type.INT32, Type.INT64)),
}
#: Instead of ``before`` or ``after``: whichever holds the row.
_CHANGE: Final = "change"


@dataclass(frozen=True, slots=True)
class _Path:
    """The position of a field in events of one schema.

    Attributes:
        name: as it is configured, for errors.
        steps: the structs on the way, with their schemas.
        last: the field; None if the innermost of those structs doesn't have it, or the rest of the way to it.
        schema: the field's schema, of that struct where there is no field.
        hash: of its values.
    """

    name: str
    steps: tuple[tuple[str, Schema], ...]
    last: str | None
    schema: Schema
    hash: Callable[[Any], int]

    def value(self, event: dict[str, Any]) -> Any:
        """The field's value, or its default; None if there is no such field.

        Raises:
            Skippable: a struct on the way is null. As in Debezium that counts before the question whether there is a field.
        """
        current = event
        for step, schema in self.steps:
            current = or_default(current.get(step), schema)
            if current is None:
                raise Skippable(
                    f"Unprocessable message: {step} is null, so there is no {self.name}; "
                    f"{_CHANGE} stands for before or after, whichever holds the row"
                )
        return None if self.last is None else or_default(current.get(self.last), self.schema)


@dataclass(frozen=True, slots=True)
class _RoutingPlan:
    """How the hashes of an event's fields are summed up: in deletions, and in all others. None: it has none of the fields."""

    has_operation: bool
    deletions: Callable[[dict[str, Any]], int | None]
    others: Callable[[dict[str, Any]], int | None]


class PartitionRouting(Transform):
    """Chooses the Kafka partition."""

    version: ClassVar[str] = DEBEZIUM_VERSION
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.transforms.partitions.PartitionRouting",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="partition.payload.fields",
                type=ConfigType.LIST,
                importance=Importance.HIGH,
                group="partitions",
                display_name="List of payload fields to use for compute partition.",
                validator=no_empty_items,
                doc="The fields of the event, with dots between the parts: after.name, source.table. change stands for "
                "after, in deletions for before. Fields that an event doesn't have don't count; an event with none of "
                "them stays as it is.",
                example="change.customer_id",
            ),
            ConfigKey(
                name="partition.topic.num",
                type=ConfigType.INT,
                importance=Importance.HIGH,
                group="partitions",
                display_name="Number of partition configured for topic",
                validator=at_least(1),
                unit="partitions",
                doc="How many partitions the topic has. Use a predicate such as TopicNameMatches if topics differ.",
                example="12",
            ),
            ConfigKey(
                name="partition.hash.function",
                type=ConfigType.STRING,
                default="java",
                importance=Importance.LOW,
                group="partitions",
                display_name="Hash function",
                validator=validate_enumerated("java", "murmur"),
                doc="java (hashCode of Java's classes) or murmur (MurmurHash3, which spreads better).",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._fields: list[str] = config["partition.payload.fields"]
        self._count: int = config["partition.topic.num"]
        self._hash: _Hasher = (
            murmur_hasher if config["partition.hash.function"].strip().lower() == "murmur" else java_hasher
        )

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        plans: SchemaCache[_RoutingPlan | None] = SchemaCache(self._make_plan)
        find, add = plans.by_id.get, plans.add
        count = self._count
        last: object = plans
        plan: _RoutingPlan | None

        def apply(record: SourceRecord) -> SourceRecord:
            nonlocal last, plan
            event = record.value
            if event is None:
                return record
            schema = record.value_schema
            if schema is not last:
                plan = (find(id(schema)) or add(schema))[1]
                last = schema
            if plan is None:
                return record
            operation = event.get("op") if plan.has_operation else None
            if operation in _NOT_ROUTED:
                return record
            total = (plan.deletions if operation == "d" else plan.others)(event)
            if total is None:
                return record
            total &= _MOST
            result = copy_record(record)
            result.partition = 0 if total == _MOST else total % count
            return result

        return apply

    def _make_plan(self, schema: Schema | None) -> _RoutingPlan | None:
        if schema is None or not is_envelope(schema):
            return None
        has_operation = schema.field("op") is not None
        sums = []
        for image in ("before", "after"):
            optional_paths = [
                _find_path(schema, name, image if has_operation else None, self._hash) for name in self._fields
            ]
            sums.append(_make_sum([path for path in optional_paths if path is not None], _REMEMBERED[self._hash]))
        return _RoutingPlan(has_operation, *sums)


def _make_sum(paths: Sequence[_Path], remembered: frozenset[Type]) -> Callable[[dict[str, Any]], int | None]:
    """The sum of the hashes of those values that are not null: a generated function, which remembers those of some types."""

    def slow(event: dict[str, Any]) -> int | None:
        values = [(path, path.value(event)) for path in paths]
        hashes = [path.hash(value) for path, value in values if value is not None]
        return sum(hashes) if hashes else None

    if not any(path.last for path in paths) or len(paths) > MOST_FIELDS:
        return slow
    code = CodeBuilder(slow=slow)
    lines = []
    structs: dict[tuple[str, ...], str] = {(): "event"}
    present, terms = [], []
    for number, path in enumerate(paths):
        way: tuple[str, ...] = ()
        for step, _ in path.steps:
            of, way = structs[way], (*way, step)
            if way not in structs:
                structs[way] = f"struct{len(structs)}"
                lines.append(f"{structs[way]} = {of}[{step!r}]")
        if path.last is None:
            present.append(structs[way])
            continue
        value = f"value{number}"
        lines.append(f"{value} = {structs[way]}[{path.last!r}]")
        present.append(value)
        if path.schema.type in remembered:
            hashes_by_value: dict[Any, int] = {}
            find = code.bind("known", hashes_by_value.get)
            term = f"({find}({value}) or {code.bind('hash', remembering(path.hash, hashes_by_value))}({value}))"
        else:
            term = f"{code.bind('hash', path.hash)}({value})"
        terms.append(term)
    code.define(
        "made(event)",
        [
            "try:",
            *indent_lines(lines),
            "except (KeyError, TypeError):",
            "    return slow(event)",
            f"if {' or '.join(f'{name} is None' for name in dict.fromkeys(present))}:",
            "    return slow(event)",
            f"return {' + '.join(terms)}",
        ],
    )
    return code.function("made", "hashes of fields")


def _find_path(envelope: Schema, name: str, image: str | None, hasher: _Hasher) -> _Path | None:
    """A configured field in events of a schema; None if not even its first part is a struct of theirs."""
    *path, last = (part.strip() for part in name.split("."))
    steps: list[tuple[str, Schema]] = []
    current = envelope
    for part in path:
        step = (image or "") if part == _CHANGE else part
        field = current.field(step)
        if field is None or field.schema.type is not Type.STRUCT:
            break
        steps.append((step, field.schema))
        current = field.schema
    field = current.field(last) if len(steps) == len(path) else None
    if field is not None:
        return _Path(name, tuple(steps), last, field.schema, hasher(field.schema))
    return _Path(name, tuple(steps), None, current, hasher(current)) if steps else None
