"""RegexRouter: a topic's new name by a regular expression and a replacement.

Source: org.apache.kafka.connect.transforms.RegexRouter of Kafka 4.1: the expression must match the whole topic, then its
first match, which may be shorter, is replaced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance
from worker.transforms.base import RecordFunction, Side, Transform, copy_record
from worker.transforms.java.regex import compile_java, java_expression, java_replacement
from worker.transforms.predicates import TOPIC_CACHE_SIZE

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from worker.transforms.rewriting import SymbolicRecord


class RegexRouter(Transform):
    """Sends records to other topics."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.RegexRouter",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="regex",
                type=ConfigType.STRING,
                validator=java_expression,
                importance=Importance.HIGH,
                doc="A regular expression in Java's syntax. Topics that it doesn't match as a whole stay as they are.",
                example=r"server\.(.*)",
            ),
            ConfigKey(
                name="replacement",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                doc="The new name: $1 is the first group, ${name} a named one.",
                example="lake.$1",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._pattern = compile_java(config["regex"])
        self._replacement = java_replacement(config["replacement"], self._pattern)

    def _target(self, topic: str) -> str:
        return self._pattern.sub(self._replacement, topic, count=1) if self._pattern.fullmatch(topic) else topic

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``."""
        return replace(record, topic=self._target(record.topic))

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        cache: dict[str, str] = {}

        def route(topic: str) -> str:
            if len(cache) >= TOPIC_CACHE_SIZE:
                cache.clear()
            target = self._target(topic)
            cache[topic] = target
            return target

        def apply(record: SourceRecord) -> SourceRecord:
            topic = record.topic
            target = cache.get(topic)
            if target is None:
                target = route(topic)
            if target is topic or target == topic:
                return record
            result = copy_record(record)
            result.topic = target
            return result

        return apply
