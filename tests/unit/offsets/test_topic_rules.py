"""The required settings of internal topics, and the topic creation groups of connectors (KIP-158)."""

from __future__ import annotations

import pytest

from connectors.errors import ConfigInvalid
from connectors.options import ConfigDef
from offsets.creation import GROUPS_KEY, creation_groups, group_keys
from offsets.topics import TUNING, InternalTopic, internal_topic, partitions_problem, policy_problem


def test_the_offsets_topic_is_tuned_and_every_setting_can_be_overridden() -> None:
    topic = internal_topic(
        "offset",
        {
            "offset.storage.topic": "o",
            "offset.storage.partitions": "9",
            "offset.storage.segment.ms": "7",
            "offset.storage.min.insync.replicas": "2",
            "offset.storage.cleanup.policy": "delete",
            "status.storage.segment.ms": "8",
        },
        name="o",
        partitions=9,
        replication_factor=3,
    )
    assert topic.settings == {**TUNING, "segment.ms": "7", "min.insync.replicas": "2"}
    assert (topic.partitions, topic.replication_factor, topic.named_by) == (9, 3, "offset.storage.topic")


def test_other_topics_are_not_tuned_and_the_config_topic_has_one_partition() -> None:
    topic = internal_topic("config", {"config.storage.partitions": "5"}, name="c", partitions=5, replication_factor=1)
    assert (topic.partitions, topic.settings) == (1, {})
    assert internal_topic("status", {}, name="s", partitions=5, replication_factor=1).partitions == 5


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete, compact"])
def test_a_wrong_policy_is_explained_with_the_command_to_fix_it(policy: str) -> None:
    topic = InternalTopic("offset", "my-offsets", 25, 3)
    problem = policy_problem(topic, policy, ["k1:9092", "k2:9092"])
    assert problem is not None
    assert problem.startswith(
        "Topic 'my-offsets' supplied via the 'offset.storage.topic' property is required to have 'cleanup.policy=compact' to "
        "guarantee consistency and durability of source connector offsets, but found the topic currently has 'cleanup.policy="
    )
    assert (
        "Continuing would likely result in eventually losing source connector offsets and problems restarting this Connect "
        "cluster in the future. Change the 'offset.storage.topic' property in the Connect worker configurations to use a "
        "topic with 'cleanup.policy=compact'."
    ) in problem
    assert problem.endswith(
        "kafka-configs.sh --bootstrap-server k1:9092,k2:9092 --alter --entity-type topics --entity-name "
        "my-offsets --add-config cleanup.policy=compact"
    )


def test_a_right_or_unknown_policy_is_no_problem() -> None:
    topic = InternalTopic("config", "c", 1, 1)
    assert policy_problem(topic, "compact", "k") is None
    assert policy_problem(topic, "", "k") is None  # not allowed to see it


def test_only_logs_need_one_partition() -> None:
    assert "found 3 partitions" in str(partitions_problem(InternalTopic("config", "c", 1, 1), 3))
    assert partitions_problem(InternalTopic("config", "c", 1, 1), 1) is None
    assert partitions_problem(InternalTopic("offset", "o", 25, 1), 3) is None


GROUPS = {
    "topic.creation.default.replication.factor": "3",
    "topic.creation.default.partitions": "10",
    "topic.creation.groups": "logs, compacted, default",
    "topic.creation.logs.include": "log\\..*",
    "topic.creation.logs.exclude": "log\\.secret.*,log\\.x",
    "topic.creation.logs.retention.ms": "1000",
    "topic.creation.compacted.include": ".*table.*",
    "topic.creation.compacted.partitions": "1",
    "topic.creation.compacted.cleanup.policy": "compact",
}


@pytest.mark.parametrize(
    ("topic", "group"),
    [
        ("log.a", "logs"),
        ("log.x", "default"),
        ("log.secret1", "default"),
        ("log.table", "logs"),
        ("a.table", "compacted"),
        ("xlog.a", "default"),
    ],
)
def test_the_first_group_that_matches_the_whole_name_decides(topic: str, group: str) -> None:
    assert (
        next(creation_group for creation_group in creation_groups(GROUPS) if creation_group.matches(topic)).name
        == group
    )


def test_groups_inherit_numbers_from_the_default_group_but_no_settings() -> None:
    logs, compacted, default = creation_groups(GROUPS)
    assert (logs.partitions, logs.replication_factor, logs.settings) == (10, 3, {"retention.ms": "1000"})
    assert (compacted.partitions, compacted.replication_factor, compacted.settings) == (
        1,
        3,
        {"cleanup.policy": "compact"},
    )
    assert (default.partitions, default.replication_factor, default.settings) == (10, 3, {})


def test_without_topic_creation_properties_there_are_no_groups() -> None:
    assert creation_groups({"name": "x"}) == ()
    assert group_keys({"name": "x"}) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            {"topic.creation.default.partitions": None},
            'Missing required configuration "topic.creation.default.partitions"',
        ),
        ({"topic.creation.default.replication.factor": "0"}, "Replication factor must be positive"),
        ({"topic.creation.logs.partitions": "-2"}, "Number of partitions must be positive"),
        ({"topic.creation.logs.include": "("}, "Syntax error in regular expression"),
        ({"topic.creation.groups": "a,a"}, "Duplicate alias provided."),
    ],
)
def test_mistakes_in_groups_are_named(change: dict[str, str | None], complaint: str) -> None:
    raw = {name: value for name, value in {**GROUPS, **change}.items() if value is not None}
    with pytest.raises(ConfigInvalid, match=complaint.replace("(", "\\(")):
        creation_groups(raw)


def test_minus_one_leaves_numbers_to_the_broker() -> None:
    (default,) = creation_groups(
        {"topic.creation.default.replication.factor": "-1", "topic.creation.default.partitions": "-1"}
    )
    assert (default.partitions, default.replication_factor) == (-1, -1)


def test_declarations_can_join_a_connectors_definition() -> None:
    names = list(ConfigDef([GROUPS_KEY, *group_keys(GROUPS)]).keys)
    assert "topic.creation.compacted.replication.factor" in names
    assert "topic.creation.default.include" not in names
