"""TimezoneConverter: points in time of a row, moved to or rewritten for another time zone.

Source: io.debezium.transforms.TimezoneConverter of Debezium 3.5. A ``ZonedTimestamp`` or ``ZonedTime`` is written with the
zone's offset and means the same instant. The other types have no zone: their UTC reading is taken for the zone's local time,
so that the instant moves by the zone's offset. Two differences: an offset beyond 18 hours and Java's old names of three letters
are refused at validation (Debezium fails at the first record), and the value that comes in is not changed.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from connectors.errors import ConfigInvalid, Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, Width
from connectors.schema import TIMESTAMP, Schema, Type
from worker.transforms.base import RecordFunction, SchemaCache, Side, Transform, copy_record
from worker.transforms.debezium.events import DEBEZIUM_VERSION, is_envelope
from worker.transforms.java.zones import TimeZone, find_zone, zoned_time, zoned_timestamp
from worker.transforms.predicates import TOPIC_CACHE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import SourceRecord

_log = logging.getLogger("worker.transforms.timezone_converter")

_MICRO: Final = "io.debezium.time.MicroTimestamp"
_NANO: Final = "io.debezium.time.NanoTimestamp"
_MILLI: Final = "io.debezium.time.Timestamp"
_ZONED_TIMESTAMP: Final = "io.debezium.time.ZonedTimestamp"
_ZONED_TIME: Final = "io.debezium.time.ZonedTime"
#: Units in a second.
_UNITS: Final = {_MILLI: 1_000, TIMESTAMP: 1_000, _MICRO: 1_000_000, _NANO: 1_000_000_000}
_LONG: Final = 1 << 63
_EPOCHS: Final = {"ts_ms": 1_000, "ts_us": 1_000_000, "ts_ns": 1_000_000_000}
_WITHOUT_ZONE: Final = frozenset(
    (
        "io.debezium.time.Date",
        "io.debezium.time.MicroTime",
        "io.debezium.time.NanoTime",
        "io.debezium.time.Time",
        "org.apache.kafka.connect.data.Date",
        "org.apache.kafka.connect.data.Time",
    )
)
_IMAGES: Final = ("before", "after")
_BLOCKS: Final = (*_IMAGES, "source")
_RULES: Final = re.compile(r'\[(source|topic|[".\w\s_]+):([".\w\s_]+(?::[".\w\s_]+)?(?:,|\]\Z))+\Z', re.ASCII)


class _Rules(NamedTuple):
    """The rules of the list: the fields by topic, by table, and by either. No fields mean all."""

    topics: dict[str, set[str]]
    tables: dict[str, set[str]]
    either: dict[str, set[str]]

    def match(self, table: str | None, topic: str) -> set[str] | None:
        """The fields of the first rule that fits; None if none does."""
        for rules, name in ((self.topics, topic), (self.tables, table), (self.either, topic), (self.either, table)):
            if name in rules:
                return rules[name]
        return None


def _list_key(name: str, display: str, doc: str) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=ConfigType.LIST,
        default=[],
        importance=Importance.HIGH,
        width=Width.MEDIUM,
        display_name=display,
        doc=doc,
    )


class TimezoneConverter(Transform):
    """Converts points in time."""

    version: ClassVar[str] = DEBEZIUM_VERSION
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.transforms.TimezoneConverter",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="converted.timezone",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                width=Width.MEDIUM,
                display_name="Converted Timezone",
                doc="The time zone: a name (America/Los_Angeles) or an offset from UTC (+08:00).",
                example="Europe/Paris",
            ),
            _list_key(
                "include.list",
                "Include List",
                "What is converted; without a list all rows are: source:TABLE, source:TABLE:FIELD, topic:TOPIC, "
                "topic:TOPIC:FIELD or NAME:FIELD (NAME is a topic or a table). FIELD may begin with before., after. or "
                "source. to mean the field of that block alone; ts_ms, ts_us and ts_ns of source are converted if named.",
            ),
            _list_key(
                "exclude.list",
                "Exclude List",
                "What is not converted, written like include.list; only one of the two may be set.",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._zone = _parse_zone(config["converted.timezone"])
        include, exclude = config["include.list"], config["exclude.list"]
        if include and exclude:
            raise ConfigInvalid("Both include and exclude lists are specified. Please specify only one.")
        for name, items in (("include", include), ("exclude", exclude)):
            if items and not _RULES.match(f"[{', '.join(items)}]"):
                raise ConfigInvalid(
                    f"Invalid {name} list format. Please specify a list of rules in the format of "
                    '"source:<tablename>:<fieldnames>", "topic:<topicname>:<fieldnames>", '
                    '"<matchname>:<fieldnames>"'
                )
        self._rules = _parse_rules(exclude or include)
        self._mode = "include" if include else "exclude" if exclude else "all"

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        cache: SchemaCache[_Plans | None] = SchemaCache(_make_plans)
        find, add = cache.by_id.get, cache.add
        last: object = cache
        plans: _Plans | None

        def apply(record: SourceRecord) -> SourceRecord:
            nonlocal last, plans
            event = record.value
            schema = record.value_schema
            if event is None or schema is None:
                return record
            if schema is not last:
                plans = (find(id(schema)) or add(schema))[1]
                last = schema
            if plans is None:
                return record
            table = _table_of(event) if plans.has_table else None
            cache_key = table, record.topic
            plan = plans.by_table.get(cache_key)
            if plan is None:
                if len(plans.by_table) >= TOPIC_CACHE_SIZE:
                    plans.by_table.clear()
                plan = plans.by_table[cache_key] = tuple(self._make_plan(schema, table, record.topic))
            value = _convert_event(event, plan)
            if value is event:
                return record
            result = copy_record(record)
            result.value = value
            return result

        return apply

    def _make_plan(self, schema: Schema, table: str | None, topic: str) -> Sequence[tuple[str, tuple[_Step, ...]]]:
        """For each block of the events what is to be converted."""
        fields = self._rules.match(table, topic)
        if self._mode == "all" or (self._mode == "exclude" and fields is None):
            mode, fields = "all", set()
        elif fields is None or (self._mode == "exclude" and not fields):
            return ()
        else:
            mode = self._mode if fields else "all"
        result = []
        for block in _BLOCKS:
            block_fields = _fields_of(fields, block)
            field = schema.field(block)
            if field is None or field.schema.type is not Type.STRUCT or (block == "source" and not block_fields):
                continue
            steps = tuple(
                step
                for member in field.schema.fields
                if mode == "all" or (member.name in block_fields) is (mode == "include")
                if (step := self._make_step(block, member.name, member.schema)) is not None
            )
            if steps:
                result.append((block, steps))
        return result

    def _make_step(self, block: str, name: str, schema: Schema) -> _Step | None:
        zone = self._zone
        units = _UNITS.get(schema.name or "")
        if units is not None:
            return _Step(name, schema.default, _local_converter(units, zone))
        if schema.name == _ZONED_TIMESTAMP:
            return _Step(name, schema.default, lambda value: zoned_timestamp(value, zone))
        if schema.name == _ZONED_TIME:
            return _Step(name, schema.default, lambda value: zoned_time(value, zone))
        if schema.name in _WITHOUT_ZONE:
            _log.warning(
                "%s.%s is not converted: %s is a date or a time of day, which is no point in time",
                block,
                name,
                schema.name,
            )
            return None
        if schema.name is None and block == "source" and name in _EPOCHS:
            return _Step(name, schema.default, _epoch_converter(schema, _EPOCHS[name], zone))
        return None


class _Step(NamedTuple):
    """One field to convert; its default stands for a null."""

    name: str
    default: Any
    convert: Callable[[Any], Any]


#: What is to be converted in which block.
_Plan = tuple[tuple[str, tuple[_Step, ...]], ...]


class _Plans(NamedTuple):
    """The derived data of one schema of events.

    Attributes:
        has_table: whether the source block names a table.
        by_table: the fields to convert, by table and topic.
    """

    has_table: bool
    by_table: dict[tuple[str | None, str], _Plan]


def _make_plans(schema: Schema | None) -> _Plans | None:
    """An empty collection of plans for change events, None for all else, which passes unchanged."""
    return _Plans(_has_table(schema), {}) if schema is not None and is_envelope(schema) else None


def _parse_zone(zone_name: str) -> TimeZone:
    zone = find_zone(zone_name)
    if zone is None:
        raise ConfigInvalid(
            f"Invalid timezone format: {zone_name}. Please specify either a geographic timezone (e.g. "
            "America/Los_Angeles) or a UTC offset in the format of +/-hh:mm, (e.g. +08:00)."
        )
    return zone


def _parse_rules(items: Sequence[str]) -> _Rules:
    rules = _Rules({}, {}, {})
    prefix = None
    for item in items:
        parts = item.split(":")
        if len(parts) > 1 and parts[0].lower() in ("source", "topic"):
            # It holds for the items after it too, up to the next one.
            prefix, *parts = parts
        target = rules.topics if prefix == "topic" else rules.tables if prefix == "source" else rules.either
        fields = target.setdefault(parts[0], set())
        if len(parts) > 1:
            fields.add(parts[1])
    return rules


def _fields_of(fields: set[str], block: str) -> set[str]:
    """The fields of a block among those configured; a name without block means the row's, before and after."""
    block_fields = {name.removeprefix(f"{block}.") for name in fields if name.startswith(f"{block}.")}
    if block in _IMAGES:
        block_fields |= {
            name for name in fields if not name.startswith(tuple(f"{any_block}." for any_block in _BLOCKS))
        }
    return block_fields


def _has_table(schema: Schema) -> bool:
    source = schema.field("source")
    if source is None or source.schema.type is not Type.STRUCT:
        return False
    field = source.schema.field("table")
    return field is not None and field.schema.type is Type.STRING


def _table_of(event: dict[str, Any]) -> str | None:
    """The table that the source block names."""
    block = event.get("source")
    if block is None:
        raise Skippable("the event has no source block, which tells the table")
    table: str | None = block.get("table")
    return table


def _convert_event(event: dict[str, Any], plan: _Plan) -> dict[str, Any]:
    """The event with its fields converted; the same one if there was nothing to convert."""
    result = event
    for block, steps in plan:
        row = event.get(block)
        if row is None:
            continue
        changed: dict[str, Any] | None = None
        for name, default, convert in steps:
            value = row.get(name)
            if value is None:
                value = default
                if value is None:
                    continue
            if changed is None:
                changed = dict(row)
            changed[name] = convert(value)
        if changed is not None:
            if result is event:
                result = dict(event)
            result[block] = changed
    return result


def _local_converter(units: int, zone: TimeZone) -> Callable[[int], int]:
    """A value becomes the instant at which the zone's clocks show what UTC's show at it."""
    offset_of_local = zone.offset_of_local

    def convert(value: int) -> int:
        result = value - offset_of_local(value // units) * units
        return result if -_LONG <= result < _LONG else _wrap_long(result)

    return convert


def _epoch_converter(schema: Schema, units: int, zone: TimeZone) -> Callable[[Any], Any]:
    """Times of the source block go the other way: they become what the zone's clocks show, read as UTC."""

    def convert(value: Any) -> int:
        if schema.type is not Type.INT64:
            raise Skippable("Epoch field value should be a java.lang.Long")
        return _wrap_long(value + zone.offset_of_instant(value // units) * units)

    return convert


def _wrap_long(number: int) -> int:
    """A long of Java's, which goes round at its ends."""
    return (number + _LONG) % (2 * _LONG) - _LONG
