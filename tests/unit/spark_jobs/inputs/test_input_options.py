"""Complaints about the options of inputs: each names the option and the fix."""

from __future__ import annotations

import pytest

from spark_jobs.config import job_files as config

FILES = {
    "name": "drop",
    "source.type": "files",
    "source.files.path": "/drop",
    "source.files.format": "csv",
    "source.files.namespace": "drop.orders",
    "sink.type": "console",
}
HISTORY = {
    "name": "refill",
    "source.type": "history",
    "source.history.path": "/history",
    "trigger.mode": "available-now",
    "sink.type": "console",
}
TOPICS = {
    "name": "topics",
    "kafka.bootstrap.servers": "h:9092",
    "source.topics": "a",
    "source.format": "debezium",
    "sink.type": "console",
}


def complaints(properties: dict[str, str]) -> list[str]:
    return [problem.message for problem in config.check_job(properties)[1]]


def test_types_of_columns_need_no_session() -> None:
    types = (
        "id bigint, `a b` decimal(10, 2) NOT NULL, tags array<string>, m map<string,struct<x:int,y:string>>, at: date"
    )
    assert complaints(FILES | {"source.table.columns": types}) == []


@pytest.mark.parametrize("properties", [FILES, HISTORY, TOPICS])
def test_valid_jobs(properties: dict[str, str]) -> None:
    assert complaints(properties) == []


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (FILES | {"source.type": "tapes"}, "source.type"),
        ({k: v for k, v in FILES.items() if k != "source.files.path"}, "source.files.path"),
        (FILES | {"source.files.format": "xml"}, "source.files.format"),
        (FILES | {"source.topics": "a"}, "source.topics can't be used with source.type=files; remove it"),
        (FILES | {"source.files.operation": "update"}, "source.files.operation: update needs the key of a row"),
        (
            FILES | {"source.format": "debezium"},
            "source.format: debezium can be read from source.files.format=json only",
        ),
        (FILES | {"source.tables": "a"}, "source.tables can't be used with source.type=files"),
        (FILES | {"source.files.options.mode": "DROPMALFORMED"}, "source.files.options.mode: can't be set"),
        (
            FILES | {"source.table.columns": "id nonsense"},
            "source.table.columns: 'id nonsense': nonsense is no type of SQL",
        ),
        (
            FILES | {"source.table.columns.drop.orders": "id"},
            "source.table.columns.drop.orders: 'id' is no column with a type",
        ),
        (FILES | {"source.files.format": "json", "source.files.position.columns": "true"}, "name a key in the rows"),
        (FILES | {"transform.type": "materialize"}, "transform.type=materialize reads topics only"),
        (
            FILES | {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"},
            "Missing required configuration: errors.deadletterqueue.topic.name is a topic",
        ),
        (HISTORY | {"trigger.mode": "continuous"}, "and stops: set trigger.mode=available-now"),
        (HISTORY | {"source.format": "ums"}, "source.format can't be used with source.type=history"),
        (HISTORY | {"source.history.since": "soon"}, "must be a time in ISO 8601"),
        (
            HISTORY | {"source.history.since": "2026-11-21T02:00:00+02:00", "source.history.until": "2026-11-21"},
            "source.history.since: 2026-11-21T02:00:00+02:00 is not before source.history.until (2026-11-21)",
        ),
        (
            HISTORY | {"sink.type": "files", "sink.files.path": "/history/"},
            "sink.files.path: the job would write the history that it reads",
        ),
        (TOPICS | {"transform.type": "materialize", "source.tables": "a"}, "source.tables can't be used"),
        (TOPICS | {"source.format": "partition-update", "source.tables": "a"}, "choose by source.topics"),
        (
            {k: v for k, v in TOPICS.items() if k != "kafka.bootstrap.servers"},
            "Missing required configuration: source.type=kafka reads topics",
        ),
        ({k: v for k, v in TOPICS.items() if k != "source.format"}, "source.format"),
    ],
)
def test_complaints(properties: dict[str, str], message: str) -> None:
    messages = complaints(properties)
    assert any(message in text for text in messages), messages


def test_sinks_of_a_flow_without_topics_can_not_wait_for_each_other() -> None:
    files = {name: value for name, value in FILES.items() if name != "sink.type"}
    flow = files | {"sinks": "first,second", "sink.first.type": "console", "sink.second.type": "console"}
    assert config.check_flow(flow)[1] == []
    _, problems = config.check_flow(flow | {"sinks.max.lag.records": "100"})
    assert [problem.message for problem in problems] == [
        "sinks.max.lag.records can't be used with source.type=files: it counts records of topics; remove it"
    ]
