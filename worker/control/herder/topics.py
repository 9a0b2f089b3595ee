"""Topics of the console: which connectors use them, and their newest records, which a task host reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from worker.config.worker_config import placement_topic
from worker.control.herder.base import ask_host
from worker.protocol import ReadTopic, Redrive
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.control.herder.base import HerderContext

_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
#: What the answer's way takes of the time that a request has.
_SHARE: Final = 0.7


class TopicOperations:
    """``/console/topics``."""

    def __init__(self, ctx: HerderContext) -> None:
        self.ctx = ctx

    async def topic_uses(self) -> dict[str, dict[str, str]]:
        """Topic -> connector -> what it does with it: ``uses``, ``dead letters``."""
        await self.ctx.catch_up()
        state = self.ctx.node.status.state
        uses: dict[str, dict[str, str]] = {}
        for name, config in self.ctx.snapshot.connectors.items():
            for topic in state.topics(name):
                uses.setdefault(topic, {})[name] = "uses"
            for topic in (config.get("topics") or config.get("source.topics") or "").split(","):
                if topic.strip():
                    uses.setdefault(topic.strip(), {})[name] = "uses"
            dead = (config.get(_DEAD_LETTERS) or "").strip()
            if dead:
                uses.setdefault(dead, {})[name] = "dead letters"
        internal = self._internal_topics()
        return {topic: uses[topic] for topic in sorted(uses) if not _is_internal(topic, internal)}

    async def read_topic(self, topic: str, connector: str | None, request: Mapping[str, Any]) -> dict[str, Any]:
        """The newest records of a topic, decoded as this connector has written them.

        Raises:
            RestError: 403 for a topic of the cluster itself; 400, 404, 503 as the host says.
        """
        if _is_internal(topic, self._internal_topics()):
            raise RestError(
                403, f"{topic} is a topic of Kafka or of the workers: it may hold secrets, and is not shown"
            )
        config = self.ctx.snapshot.connectors.get(connector, {}) if connector else {}
        seconds = self.ctx.validate_s * _SHARE
        asked = {**request, "topic": topic, "seconds": min(8.0, seconds)}
        answer: dict[str, Any] = orjson.loads(
            await ask_host(self.ctx, ReadTopic(dict(config), msgspec.json.encode(asked)))
        )
        return answer

    async def redrive(self, name: str, partition: int, offset: int) -> dict[str, Any]:
        """Send a dead letter of a connector to the topic that it was read from.

        Raises:
            RestError: 400: the connector reads no topics, or sets no records aside; 404, 503 as the host says.
        """
        await self.ctx.require_connector(name)
        config = self.ctx.snapshot.connectors[name]
        topics = [topic.strip() for key in ("topics", "source.topics") for topic in config.get(key, "").split(",")]
        pattern = config.get("topics.regex") or config.get("source.topics.pattern") or ""
        dead = config.get(_DEAD_LETTERS, "").strip()
        if not dead or not (pattern or any(topics)):
            raise RestError(
                400,
                f"Connector {name} {'reads no topics' if dead else f'has no {_DEAD_LETTERS}'}: "
                "there is no topic to which a dead letter could be sent again",
            )
        internal = self._internal_topics()
        request = {
            "topic": dead,
            "partition": partition,
            "offset": offset,
            "topics": [topic for topic in topics if topic and not _is_internal(topic, internal)],
            "pattern": pattern,
        }
        try:
            answer: dict[str, Any] = orjson.loads(
                await ask_host(self.ctx, Redrive(config, msgspec.json.encode(request)))
            )
        except RestError as error:
            if error.status < 500:
                raise
            raise RestError(error.status, f"It is not known whether it was sent: {error}") from error
        return answer

    def _internal_topics(self) -> frozenset[str]:
        """Topics of the workers and of connectors' offsets. This looks at all connectors: ask once for many topics."""
        config = self.ctx.config
        names = {config[f"{name}.storage.topic"] for name in ("config", "offset", "status")}
        others = {connector.get("offsets.storage.topic", "") for connector in self.ctx.snapshot.connectors.values()}
        return frozenset({*names, placement_topic(config), *others})


def _is_internal(topic: str, internal: frozenset[str]) -> bool:
    """Whether a topic is one of Kafka or of the workers."""
    return topic.startswith("__") or topic in internal or topic.endswith("-millrace-members")
