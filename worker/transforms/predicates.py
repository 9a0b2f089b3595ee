"""The predicates of Kafka Connect 4.1: TopicNameMatches, HasHeaderKey, RecordIsTombstone (KIP-585)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, all_of, non_empty
from worker.transforms.base import Predicate, RecordTest
from worker.transforms.java.regex import compile_java, java_expression

if TYPE_CHECKING:
    from connectors.api import SourceRecord

#: Topics a compiled predicate or router remembers the answer for.
TOPIC_CACHE_SIZE: Final = 4096


class TopicNameMatches(Predicate):
    """True for records whose topic matches the whole expression."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.predicates.TopicNameMatches",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="pattern",
                type=ConfigType.STRING,
                validator=all_of(non_empty, java_expression),
                doc="A regular expression in Java's syntax that the whole name of the topic must match.",
                example=r"inventory\..*",
            ),
        ]
    )

    def compile(self) -> RecordTest:
        """See ``Predicate.compile``."""
        matches = compile_java(self.config["pattern"]).fullmatch
        cache: dict[str, bool] = {}

        def test(record: SourceRecord) -> bool:
            topic = record.topic
            answer = cache.get(topic)
            if answer is None:
                if len(cache) >= TOPIC_CACHE_SIZE:
                    cache.clear()
                answer = cache[topic] = matches(topic) is not None
            return answer

        return test


class HasHeaderKey(Predicate):
    """True for records with at least one header of that name."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.predicates.HasHeaderKey",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="name", type=ConfigType.STRING, validator=non_empty, doc="The header's name.", example="trace-id"
            ),
        ]
    )

    def compile(self) -> RecordTest:
        """See ``Predicate.compile``."""
        name = self.config["name"]

        def test(record: SourceRecord) -> bool:
            for header in record.headers:  # noqa: SIM110 - any() with a generator takes four times as long
                if header.key == name:
                    return True
            return False

        return test


class RecordIsTombstone(Predicate):
    """True for records without a value."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",)
    config_def: ClassVar[ConfigDef] = ConfigDef()

    def compile(self) -> RecordTest:
        """See ``Predicate.compile``."""

        def test(record: SourceRecord) -> bool:
            return record.value is None

        return test
