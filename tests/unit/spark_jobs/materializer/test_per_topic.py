"""A materializer over many topics: names of its parts, and complaints that name the fix."""

from __future__ import annotations

import pytest

from spark_jobs.config import job_files as config
from spark_jobs.materializer.config import changelog_topic, find_loop
from spark_jobs.materializer.per_topic import choose_topic, config_for

JOB = {
    "name": "rows",
    "kafka.bootstrap.servers": "h:9092",
    "source.topics": "a,b",
    "source.format": "debezium",
    "transform.type": "materialize",
    "sink.type": "kafka",
    "sink.kafka.topic": "${topic}.rows",
    "state.dir": "/state",
}


def complaints(properties: dict[str, str]) -> list[str]:
    return [problem.message for problem in config.check_job(properties)[1]]


def test_each_topic_has_its_own_names() -> None:
    job = config.build_job(JOB).config
    part = config_for(job, "b")
    assert part["source.topics"] == ["b"]
    assert (part["name"], part["sink.kafka.topic"], changelog_topic(part)) == ("rows-b", "b.rows", "rows-b-changelog")
    assert (part["state.dir"], part["kafka.group.id"]) == ("/state/topics/b", "millrace-rows")
    named = config.build_job(JOB | {"materializer.changelog.topic": "state.${topic}"}).config
    assert changelog_topic(config_for(named, "a")) == "state.a"


def test_one_topic_keeps_the_names_of_the_job() -> None:
    job = config.build_job(JOB | {"source.topics": "a", "sink.kafka.topic": "rows-out"}).config
    assert config_for(job, "a") is job
    assert choose_topic(job, None) is job
    assert changelog_topic(job) == "rows-changelog"


@pytest.mark.parametrize(
    ("template", "topics", "loop"),
    [
        ("${topic}.rows", ["a", "b"], ""),
        ("${topic}.rows", ["a", "a.rows"], "a.rows"),
        # The output comes before its input in the list of topics.
        ("rows.${topic}", ["rows.z", "z"], "rows.z"),
        ("${topic}.rows", ["a", "rows-a-changelog"], "rows-a-changelog"),
    ],
)
def test_a_pattern_must_not_match_what_the_job_writes(template: str, topics: list[str], loop: str) -> None:
    named = {name: value for name, value in JOB.items() if name != "source.topics"}
    job = config.build_job(named | {"source.topics.pattern": ".*", "sink.kafka.topic": template}).config
    complaint = find_loop(job, topics)
    assert complaint.startswith(f"source.topics.pattern matches {loop}, which this job writes" if loop else "")
    assert bool(complaint) == bool(loop)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"sink.kafka.topic": "rows"}, "write ${topic} into sink.kafka.topic"),
        ({"sink.kafka.topic": "${name}.rows"}, "sink.kafka.topic"),
        ({"sink.kafka.topic": "${topic}"}, "input, output and changelog"),
        (
            {"materializer.changelog.topic": "state"},
            "each topic needs its own changelog: add ${topic}, or leave it out",
        ),
        (
            {"source.topics": "a", "sink.kafka.topic": "rows-out", "materializer.changelog.topic": "s.${topic}"},
            "${topic} needs ${topic} in sink.kafka.topic too",
        ),
    ],
)
def test_complaints(more: dict[str, str], message: str) -> None:
    messages = complaints(JOB | more)
    assert any(message in text for text in messages), messages
