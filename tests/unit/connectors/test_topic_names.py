"""Names of topics: Kafka's rules, and the options that follow them."""

from __future__ import annotations

import pytest

from connectors.errors import ConfigInvalid
from connectors.topic_names import LONGEST, find_problem
from spark_jobs.materializer.config import OPTIONS
from worker.host.options import CONNECTOR


@pytest.mark.parametrize("good", ["a", "A-z_0.9", "...", "_", "x" * LONGEST])
def test_what_kafka_takes(good: str) -> None:
    assert find_problem(good) is None


@pytest.mark.parametrize(("bad", "complaint"), [
    ("", "empty"), (None, "empty"), (".", "not allowed"), ("..", "not allowed"), ("x" * (LONGEST + 1), "250 characters"),
    ("a b", "' '"), ("größe", "'ö'"), ("a/b", "'/'"), ("a\n", r"'\\n'"),
])  # fmt: skip
def test_what_it_does_not_take(bad: object, complaint: str) -> None:
    assert complaint.replace("\\\\", "\\") in (find_problem(bad) or "")


@pytest.mark.parametrize("option", ["errors.deadletterqueue.topic.name", "offsets.storage.topic"])
def test_options_of_connectors(option: str) -> None:
    assert CONNECTOR.parse({"name": "c", option: "dead.letters"})[option] == "dead.letters"
    with pytest.raises(
        ConfigInvalid, match=f"dead letters for configuration {option}: Invalid topic name: it contains ' '"
    ):
        CONNECTOR.parse({"name": "c", option: "dead letters"})


def test_no_dead_letter_topic_is_none() -> None:
    assert CONNECTOR.parse({"errors.deadletterqueue.topic.name": ""})["errors.deadletterqueue.topic.name"] == ""


def test_the_materializers_output() -> None:
    with pytest.raises(
        ConfigInvalid, match=r"größe for configuration sink\.kafka\.topic: Invalid topic name: it contains 'ö'"
    ):
        OPTIONS.parse({"sink.kafka.topic": "größe"})
