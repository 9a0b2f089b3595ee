"""A materializer over many topics: each topic has its own output, changelog and caches, as if it had a job of its own.

``sink.kafka.topic`` with ``${topic}`` chooses this. Names then depend on the topic alone, so a topic that joins or leaves the
job changes nothing for the others. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.options import Config

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Stands for the input topic in names of topics.
TOPIC: Final = "${topic}"
_OUTPUT: Final = "sink.kafka.topic"
_CHANGELOG: Final = "materializer.changelog.topic"


def is_per_topic(config: Config) -> bool:
    """Whether each input topic has its own output and state."""
    return TOPIC in str(config[_OUTPUT] or "")


def config_for(config: Config, topic: str) -> Config:
    """The configuration for one input topic: as of a job that reads this topic alone."""
    if not is_per_topic(config):
        return config
    changelog = config[_CHANGELOG]
    values = dict(config) | {
        "name": f"{config['name']}-{topic}",
        "source.topics": [topic],
        "source.topics.pattern": None,
        _OUTPUT: str(config[_OUTPUT]).replace(TOPIC, topic),
        _CHANGELOG: None if changelog is None else str(changelog).replace(TOPIC, topic),
        # The state of each topic needs its own folder, but the consumer group is the job's.
        "kafka.group.id": config["kafka.group.id"] or f"millrace-{config['name']}",
        "state.dir": None if config["state.dir"] is None else f"{config['state.dir']}/topics/{topic}",
    }
    return Config(values, config.raw)


def choose_topic(config: Config, topic: str | None) -> Config:
    """The configuration for a command on the state of one topic.

    Raises:
        ConfigInvalid: the job has a state per topic and none is named, or one is named and the job has one state.
    """
    if is_per_topic(config):
        if not topic:
            raise ConfigInvalid(
                f"the job {config['name']} has a state for each of its topics ({_OUTPUT} has {TOPIC}): name one by --topic"
            )
        return config_for(config, topic)
    if topic and topic not in (config["source.topics"] or ()):
        raise ConfigInvalid(f"the job {config['name']} does not read the topic {topic}")
    return config


def problems_of(config: Config, topics: Sequence[str]) -> list[str]:
    """Complaints about the topics that a materializer reads.

    Args:
        config: the job's.
        topics: those that it names; empty for a pattern.
    """
    if is_per_topic(config):
        if config[_CHANGELOG] is not None and TOPIC not in config[_CHANGELOG]:
            problem = (
                f"Invalid value {config[_CHANGELOG]} for configuration {_CHANGELOG}: {_OUTPUT} has {TOPIC}, so each topic "
                f"needs its own changelog: add {TOPIC}, or leave it out"
            )
            return [problem]
        return []
    if len(topics) != 1:
        problem = (
            f"Invalid value {list(topics) or config['source.topics.pattern']} for configuration source.topics: a materializer "
            f"over several topics needs an output for each of them: write {TOPIC} into {_OUTPUT} (example: {TOPIC}.rows)"
        )
        return [problem]
    if TOPIC in str(config[_CHANGELOG] or ""):
        return [
            f"Invalid value {config[_CHANGELOG]} for configuration {_CHANGELOG}: {TOPIC} needs {TOPIC} in {_OUTPUT} too"
        ]
    return []
