"""The worker's properties: defaults, mistakes that name their property, warnings, Java names."""

from __future__ import annotations

import pytest

from connectors.errors import ConfigInvalid
from worker.config.worker_config import exactly_once, parse_labels, parse_worker, placement_topic, process_count
from worker.config.worker_keys import WORKER_CONFIG

REQUIRED = {
    "group.id": "g",
    "config.storage.topic": "c",
    "offset.storage.topic": "o",
    "status.storage.topic": "s",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


def test_required_properties_alone_are_enough() -> None:
    config, warnings = parse_worker(REQUIRED)
    assert not warnings
    assert config["session.timeout.ms"] == 6000
    assert config["offset.flush.interval.ms"] == 60000
    assert placement_topic(config) == "c-placement"
    assert not exactly_once(config)
    assert process_count(config, None) >= 1
    assert process_count(config, 0) == 0


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_a_missing_property_is_named(name: str) -> None:
    with pytest.raises(ConfigInvalid, match=name.replace(".", r"\.")):
        parse_worker({key: value for key, value in REQUIRED.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("value.converter", "com.example.MyConverter", "com.example.MyConverter"),
        ("exactly.once.source.support", "perhaps", "exactly.once.source.support"),
        ("connector.client.config.override.policy", "com.example.Policy", "must be one of All, None, Principal"),
        ("heartbeat.interval.ms", "5000", "a third of session.timeout.ms"),
        ("status.storage.topic", "o", "It is also offset.storage.topic"),
        ("offset.storage.partitions", "0", "Number of partitions must be positive"),
        ("node.labels", "zone", "A label must be name=value"),
        ("listeners", "ftp://:21", "Listener"),
        ("processes", "-1", "processes"),
    ],
)
def test_a_mistake_is_named(name: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_worker({**REQUIRED, name: value})
    assert complaint in str(caught.value)


def test_a_file_with_javas_default_of_heartbeats_works() -> None:
    config, warnings = parse_worker({**REQUIRED, "heartbeat.interval.ms": "3000"})
    assert (config["heartbeat.interval.ms"], config["session.timeout.ms"], warnings) == (3000, 10_000, [])
    config, _ = parse_worker({**REQUIRED, "heartbeat.interval.ms": "2000"})
    assert config["session.timeout.ms"] == 6000


def test_standalone_files_are_refused_with_the_command_to_run() -> None:
    with pytest.raises(ConfigInvalid, match=r"millrace worker WORKER\.properties CONNECTOR\.properties"):
        parse_worker({**REQUIRED, "offset.storage.file.filename": "/tmp/offsets"})


def test_what_has_no_effect_is_said() -> None:
    _, warnings = parse_worker(
        {
            **REQUIRED,
            "metric.reporters": "com.example.Reporter",
            "foo.bar": "1",
            "producer.linger.ms": "5",
            "offset.storage.segment.ms": "1",
            "sasl.mechanism": "PLAIN",
        }
    )
    assert len(warnings) == 2
    assert any("metric.reporters is ignored" in warning and "/metrics" in warning for warning in warnings)
    assert any("foo.bar is not known" in warning for warning in warnings)


def test_java_names_of_policies_are_accepted() -> None:
    parse_worker(
        {
            **REQUIRED,
            "connector.client.config.override.policy": "org.apache.kafka.connect.connector.policy.PrincipalConnectorClientConfigOverridePolicy",  # noqa: E501
        }
    )


def test_labels() -> None:
    config, _ = parse_worker({**REQUIRED, "node.labels": "zone=a, disk = ssd"})
    assert parse_labels(config) == {"zone": "a", "disk": "ssd"}


def test_every_option_has_a_group_and_a_sentence() -> None:
    for key in WORKER_CONFIG.keys.values():
        assert key.group, key.name
        assert key.doc.rstrip().endswith("."), key.name
