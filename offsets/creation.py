"""Topics of source connectors, created with their own settings before the first record (KIP-158)."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiokafka.errors import KafkaError

from connectors.errors import Fatal
from connectors.options import REQUIRED, ConfigDef, ConfigKey, ConfigType, Importance, Width, invalid
from offsets.admin import TopicAdmin, TopicRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOG: Final = logging.getLogger(__name__)
PREFIX: Final = "topic.creation."
_DEFAULT: Final = "default"
_HEADING: Final = "Topic Creation"
_NAMED: Final = frozenset({"include", "exclude", "replication.factor", "partitions"})

#: The option that lists further groups; declared for every source connector.
GROUPS_KEY: Final = ConfigKey(
    name=f"{PREFIX}groups",
    type=ConfigType.LIST,
    default=(),
    importance=Importance.LOW,
    group=_HEADING,
    width=Width.LONG,
    display_name="Topic Creation Groups",
    doc="Names of groups of topics with settings of their own, in addition to the group default, which is always there.",
    validator=lambda name, value: (
        invalid(name, value, "Duplicate alias provided.") if len(set(value or ())) < len(value or ()) else None
    ),
)


def _check_count(complaint: str) -> Any:
    def check(name: str, value: Any) -> str | None:
        if value is not None and value != -1 and value < 1:
            return invalid(name, value, f"{complaint}, or -1 to use the broker's default")
        return None

    return check


def _check_patterns(name: str, value: Any) -> str | None:
    for pattern in value or ():
        try:
            re.compile(pattern)
        except re.error as error:
            return invalid(name, value, f"Syntax error in regular expression: {error}")
    return None


def group_keys(raw: Mapping[str, str]) -> list[ConfigKey]:
    """Declarations of the ``topic.creation.<group>.*`` options that a connector's configuration calls for.

    None unless it has any ``topic.creation.`` property. Only the default group's replication factor and partitions are
    required; other groups inherit them.
    """
    if not any(name.startswith(PREFIX) for name in raw):
        return []
    names = [item.strip() for item in raw.get(GROUPS_KEY.name, "").split(",")]
    groups = [_DEFAULT, *dict.fromkeys(name for name in names if name and name != _DEFAULT)]
    keys: list[ConfigKey] = []
    for group in groups:
        group_prefix = f"{PREFIX}{group}."
        heading = group if group == _DEFAULT else f"{_HEADING}: {group}"
        default = REQUIRED if group == _DEFAULT else None
        if group != _DEFAULT:
            keys += [
                ConfigKey(
                    name=f"{group_prefix}include",
                    type=ConfigType.LIST,
                    default=(),
                    importance=Importance.LOW,
                    group=heading,
                    width=Width.LONG,
                    display_name=f"Inclusion Topic Pattern for {heading}",
                    validator=_check_patterns,
                    doc="Regular expressions; topics whose whole name matches one of them belong to this group.",
                ),
                ConfigKey(
                    name=f"{group_prefix}exclude",
                    type=ConfigType.LIST,
                    default=(),
                    importance=Importance.LOW,
                    group=heading,
                    width=Width.LONG,
                    display_name=f"Exclusion Topic Pattern for {heading}",
                    validator=_check_patterns,
                    doc="Regular expressions; topics whose whole name matches one of them do not belong to this group, "
                    "even if they are included.",
                ),
            ]
        keys += [
            ConfigKey(
                name=f"{group_prefix}replication.factor",
                type=ConfigType.SHORT,
                default=default,
                importance=Importance.LOW,
                width=Width.LONG,
                display_name=f"Replication Factor for Topics in {heading}",
                validator=_check_count(
                    "Replication factor must be positive and not larger than the number of brokers in the Kafka cluster"
                ),
                doc="Replication factor of topics created by this group; -1 takes the broker's default. A group other "
                "than the default one inherits the default group's.",
            ),
            ConfigKey(
                name=f"{group_prefix}partitions",
                type=ConfigType.INT,
                default=default,
                importance=Importance.LOW,
                group=heading,
                width=Width.LONG,
                display_name=f"Partition Count for Topics in {heading}",
                validator=_check_count("Number of partitions must be positive"),
                doc="Number of partitions of topics created by this group; -1 takes the broker's default. A group other "
                "than the default one inherits the default group's.",
            ),
        ]
    return keys


@dataclass(frozen=True, slots=True)
class CreationGroup:
    """Settings for topics whose name matches."""

    name: str
    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]

    def matches(self, topic: str) -> bool:
        """Whether the topic belongs to this group; exclusion goes before inclusion."""
        return not any(pattern.fullmatch(topic) for pattern in self.exclude) and any(
            pattern.fullmatch(topic) for pattern in self.include
        )


def creation_groups(raw: Mapping[str, str]) -> tuple[CreationGroup, ...]:
    """The groups a connector's configuration declares, the default group last; empty if it declares none.

    Raises:
        ConfigInvalid: with every complaint.
    """
    keys = group_keys(raw)
    if not keys:
        return ()
    config = ConfigDef([GROUPS_KEY, *keys]).parse(raw)
    default = f"{PREFIX}{_DEFAULT}."
    groups: list[CreationGroup] = []
    for name in (*dict.fromkeys(item for item in config[GROUPS_KEY.name] if item not in {"", _DEFAULT}), _DEFAULT):
        group_prefix = f"{PREFIX}{name}."
        settings = {key: value for key, value in config.prefixed(group_prefix).items() if key not in _NAMED}
        partitions, replicas = config[f"{group_prefix}partitions"], config[f"{group_prefix}replication.factor"]
        groups.append(
            CreationGroup(
                name,
                tuple(re.compile(item) for item in config[f"{group_prefix}include"])
                if name != _DEFAULT
                else (re.compile(".*"),),
                tuple(re.compile(item) for item in config[f"{group_prefix}exclude"]) if name != _DEFAULT else (),
                config[f"{default}partitions"] if partitions is None else partitions,
                config[f"{default}replication.factor"] if replicas is None else replicas,
                settings,
            )
        )
    return tuple(groups)


class TopicCreator:
    """Makes sure that a task's topics exist, once per topic until it is forgotten.

    Args:
        client: aiokafka client arguments.
        groups: ``creation_groups`` of the connector; without any, or with ``enabled`` off, the broker's automatic creation is
            all there is.
        enabled: the worker's ``topic.creation.enable``.
    """

    def __init__(self, client: Mapping[str, Any], groups: tuple[CreationGroup, ...], *, enabled: bool = True) -> None:
        self._client = dict(client)
        self._groups = groups if enabled else ()
        self._existing_topics: set[str] = set()
        self._one_at_a_time = asyncio.Lock()

    def is_known(self, topic: str) -> bool:
        """Whether nothing has to be done for ``topic``: call it per batch, ``ensure`` only when it says no."""
        return not self._groups or topic in self._existing_topics

    def forget(self, topic: str) -> None:
        """Let ``ensure`` look for ``topic`` again: it may have been deleted."""
        self._existing_topics.discard(topic)

    async def ensure(self, topic: str) -> None:
        """Create ``topic`` by the first group that matches it, unless it exists. Immediate for a known one.

        Raises:
            Fatal: it can't be created.
            Retriable: Kafka is unavailable.
        """
        if self.is_known(topic):
            return
        async with self._one_at_a_time:
            if topic in self._existing_topics:
                return
            async with TopicAdmin(self._client) as admin:
                await self._create_topic(admin, topic)
            self._existing_topics.add(topic)

    async def _create_topic(self, admin: TopicAdmin, topic: str) -> None:
        try:
            if await admin.partitions(topic) is not None:
                return
        except KafkaError as error:
            raise Fatal(
                f"Not authorized to describe topic '{topic}' ({error!r}): give the connector's user the permission "
                "Describe on it"
            ) from error
        group = next(group for group in self._groups if group.matches(topic))
        try:
            outcome = await admin.create(topic, group.partitions, group.replication_factor, group.settings)
        except TopicRefused as error:
            raise Fatal(
                f"Unable to create topic '{topic}' by the topic creation group '{group.name}' (partitions "
                f"{group.partitions}, replication factor {group.replication_factor}, {dict(group.settings)}): {error}. "
                f"Correct the {PREFIX}{group.name}.* properties of the connector"
            ) from error
        if outcome == "denied":
            raise Fatal(
                f"Task failed to create new topic '{topic}'. Ensure that the task is authorized to create topics or "
                "that the topic exists and restart the task"
            )
        _LOG.info(
            "Topic %s %s (topic creation group %s)",
            topic,
            "was created" if outcome == "created" else "exists",
            group.name,
        )
