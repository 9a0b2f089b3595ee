"""SchemaChangeEventFilter: drops schema change events of some kinds.

Source: io.debezium.transforms.SchemaChangeEventFilter of Debezium 3.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, Width, invalid
from worker.transforms.base import RecordFunction, Side, Transform
from worker.transforms.debezium.events import DEBEZIUM_VERSION, field_of, is_schema_change, or_default, require_struct

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from connectors.schema import Schema
    from worker.transforms.rewriting import SymbolicRecord

_KINDS: Final = ("CREATE", "ALTER", "DROP", "TRUNCATE", "DATABASE")


def _check_kinds(name: str, value: str | None) -> str | None:
    unknown = [item.strip() for item in (value or "").split(",") if item.strip() not in _KINDS]
    if unknown:
        return invalid(name, value, f"Unknown kind '{unknown[0]}'; write one or more of {', '.join(_KINDS)}")
    return None


class SchemaChangeEventFilter(Transform):
    """Drops schema change events."""

    version: ClassVar[str] = DEBEZIUM_VERSION
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.transforms.SchemaChangeEventFilter",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="schema.change.event.exclude.list",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                width=Width.SHORT,
                display_name="Schema change event exclude list",
                validator=_check_kinds,
                doc="The kinds of events that are dropped: CREATE, ALTER, DROP, TRUNCATE, DATABASE, with commas between "
                "them.",
                example="DROP,TRUNCATE",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._excluded = frozenset(item.strip() for item in config["schema.change.event.exclude.list"].split(","))

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``: rows pass."""
        return None if is_schema_change(record.value.schema) else record

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        excluded = self._excluded

        def apply(record: SourceRecord) -> SourceRecord | None:
            schema = record.value_schema
            if record.value is None or schema is None or not is_schema_change(schema):
                return record
            kind = _kind(record.value, schema)
            return None if kind is None or kind in excluded else record

        return apply


def _kind(event: Any, schema: Schema) -> str | None:
    """Return the kind of a change; None for an event without a list of changes, which is dropped."""
    event = require_struct(event, schema, "Read schema change event to filter")
    changes = or_default(event.get("tableChanges"), field_of(schema, "tableChanges").schema)
    if changes is None:
        return None
    kind = str(changes[0].get("type")) if changes else "DATABASE"
    if kind not in _KINDS:
        raise Skippable(f"a schema change event is of the unknown kind {kind!r}; known are {', '.join(_KINDS)}")
    return kind
