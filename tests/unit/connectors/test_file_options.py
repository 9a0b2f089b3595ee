"""The file connector's options, and offsets that operators change, with Kafka Connect's words."""

from collections.abc import Mapping
from typing import Any

import pytest

from connectors.errors import ConfigInvalid
from connectors.file.connector import FileStreamSourceConnector as File


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'Missing required configuration "topic" which has no default value.'),
        ({"topic": ""}, "Invalid value  for configuration topic: String must be non-empty"),
        (
            {"topic": "t", "batch.size": "many"},
            "Invalid value many for configuration batch.size: Not a number of type INT",
        ),
        ({"topic": "t", "file.encoding": "nonsense"}, "Invalid value nonsense for configuration file.encoding"),
        ({"topic": "t", "line.too.long": "drop"}, "String must be one of: report, split"),
    ],
)
def test_wrong_options(options: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        File.config_def.parse(options)
    assert message in str(caught.value)


async def test_file_and_directory_exclude_each_other() -> None:
    config = File.config_def.parse({"topic": "t", "file": "f", "directory": "d"})
    assert [problem.name for problem in await File.validate(config)] == ["directory"]


@pytest.mark.parametrize(
    ("options", "supported"), [({"file": "f"}, True), ({}, False), ({"file": ""}, False), ({"directory": "d"}, True)]
)
def test_exactly_once_needs_a_file(options: Mapping[str, str], *, supported: bool) -> None:
    assert File.exactly_once_support(File.config_def.parse({"topic": "t", **options})) is supported


@pytest.mark.parametrize(
    ("partition", "offset", "message"),
    [
        ({"filename": "f"}, {"other": 1}, "Offset objects should either be null or contain the key 'position'"),
        (
            {"filename": "f"},
            {"position": "1"},
            "The value for the 'position' key in the offset is expected to be a Long value",
        ),
        (
            {"filename": "f"},
            {"position": 1.0},
            "The value for the 'position' key in the offset is expected to be a Long value",
        ),
        (
            {"filename": "f"},
            {"position": -1},
            "The value for the 'position' key in the offset should be a non-negative value",
        ),
        ({"other": "f"}, {"position": 1}, "Partition objects should contain the key 'filename'"),
        ({}, {"position": 1}, "Partition objects should contain the key 'filename'"),
    ],
)
async def test_altered_offsets_are_checked_with_kafka_connects_words(
    partition: dict[str, Any], offset: dict[str, Any], message: str
) -> None:
    config = File.config_def.parse({"topic": "t", "file": "f"})
    with pytest.raises(ConfigInvalid) as caught:
        await File.alter_offsets(config, [(partition, offset)])
    assert str(caught.value) == message


async def test_offsets_of_the_standard_input_cannot_be_altered() -> None:
    with pytest.raises(ConfigInvalid, match="stdin is used for input and offsets are not tracked"):
        await File.alter_offsets(File.config_def.parse({"topic": "t"}), [({"filename": "f"}, {"position": 1})])
    config = File.config_def.parse({"topic": "t", "file": "f"})
    assert await File.alter_offsets(config, [({"garbage": 1}, None), ({"filename": "old"}, {"position": 1})])
