"""A transform that puts a header on each record, and a predicate on the numbers of a countdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from connectors.api import Header
from connectors.options import ConfigDef, ConfigKey, ConfigType, at_least, non_empty
from connectors.schema import STRING
from worker.transforms.base import Predicate, RecordFunction, RecordTest, Transform, copy_record

if TYPE_CHECKING:
    from connectors.api import SourceRecord


class Stamp(Transform):
    """Adds a header."""

    version: ClassVar[str] = "1.2.3"
    aliases: ClassVar[tuple[str, ...]] = ("com.example.Stamp",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="text", type=ConfigType.STRING, validator=non_empty, doc="The header's value.", example="checked"
            ),
        ]
    )

    def compile(self) -> RecordFunction:
        """The function that is called for each record."""
        stamp = Header("stamp", f"{self.config['text']} by {self.version}", STRING)

        def apply(record: SourceRecord) -> SourceRecord:
            result = copy_record(record)
            result.headers = (*record.headers, stamp)
            return result

        return apply


class Below(Predicate):
    """True for records whose ``left`` is below a limit."""

    version: ClassVar[str] = "1.2.3"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="limit", type=ConfigType.LONG, default=5, validator=at_least(0), unit="numbers", doc="The limit."
            ),
        ]
    )

    def compile(self) -> RecordTest:
        """The function that is called for each record."""
        limit = self.config["limit"]
        return lambda record: isinstance(record.value, dict) and record.value.get("left", limit) < limit
