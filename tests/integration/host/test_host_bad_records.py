"""Bad records in a task host, against real Kafka: skipped, kept aside, or the end of the task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


async def test_dead_letters_carry_their_story(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    letters = f"{control.name}-letters"
    task = await control.start_task(
        end=300,
        rows=100,
        bad_every=100,
        unconvertible=250,
        errors_tolerance="all",
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_topic_replication_factor=1,
    )
    good = [n for n in range(300) if n % 100 != 1 and n != 251]
    assert await control.numbers(len(good)) == good
    records = await control.consume(letters, 4)
    assert [record.value for record in records][:2] == [b"raw 1", b"raw 101"]
    headers: dict[str, Any] = {key: value.decode() if value is not None else None for key, value in records[0].headers}
    assert headers.pop("__connect.errors.exception.stacktrace").endswith("ValueError: 1 is bad\n")
    assert headers == {
        "__connect.errors.topic": control.name,
        "__connect.errors.partition": None,
        "__connect.errors.offset": None,
        "__connect.errors.connector.name": control.name,
        "__connect.errors.task.id": "0",
        "__connect.errors.stage": "TASK_POLL",
        "__connect.errors.class.name": "",
        "__connect.errors.exception.class.name": "builtins.ValueError",
        "__connect.errors.exception.message": "1 is bad",
        "__connect.errors.source.partition": '{"source":"0-0"}',
        "__connect.errors.source.offset": '{"n":2}',
    }
    by_stage = {dict(record.headers)["__connect.errors.stage"]: record for record in records}
    unconvertible = by_stage[b"VALUE_CONVERTER"]
    assert json.loads(unconvertible.value)["n"].startswith("<object")
    assert dict(unconvertible.headers)["__connect.errors.class.name"].endswith(b"JsonConverter")
    stats = await control.until(lambda: (latest := control.stats(task)) and latest.records_skipped == 4 and latest)
    assert (stats.dead_letter_requests, stats.dead_letter_failures, stats.record_failures) == (4, 0, 4)
    await control.saved_is({"0-0": 300})


async def test_without_tolerance_the_first_bad_record_fails_the_task(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    task = await control.start_task(end=300, rows=100, unconvertible=250)
    failed = await control.state(task, "FAILED")
    assert "Tolerance exceeded in error handler" in failed.trace
    assert '{"n":251}' in failed.trace
    await control.saved_is({"0-0": 200})


async def test_a_record_too_large_for_the_producer_is_a_bad_record(control_for: Callable[..., Any]) -> None:
    control = control_for(producer_max_request_size=50_000)
    await control.start()
    letters = f"{control.name}-letters"
    await control.start_task(
        end=300,
        rows=100,
        big=150,
        size=60_000,
        errors_tolerance="all",
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_topic_replication_factor=1,
    )
    assert await control.numbers(299) == [n for n in range(300) if n != 150]
    (letter,) = await control.consume(letters, 1)
    headers = dict(letter.headers)
    assert headers["__connect.errors.stage"] == b"KAFKA_PRODUCE"
    assert headers["__connect.errors.truncated"] == b"true"
    assert len(letter.value) < 50_000
    await control.saved_is({"0-0": 300})


async def test_a_record_too_large_for_the_topic_is_found_in_its_batch(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    letters = f"{control.name}-letters"
    task = await control.start_task(
        end=300,
        rows=100,
        big=150,
        size=60_000,
        errors_tolerance="all",
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_topic_replication_factor=1,
        topic_creation_default_partitions=1,
        topic_creation_default_replication_factor=1,
        topic_creation_default_max_message_bytes=20_000,
        topic_creation_groups="letters",
        topic_creation_letters_include=letters,
    )
    assert await control.numbers(299) == [n for n in range(300) if n != 150]
    (letter,) = await control.consume(letters, 1)
    assert json.loads(letter.value)["n"] == 150
    await control.saved_is({"0-0": 300})
    stats = await control.until(lambda: (latest := control.stats(task)) and latest.records_skipped == 1 and latest)
    assert stats.state == "RUNNING"


@pytest.mark.parametrize("support", ["disabled", "enabled"])
async def test_large_batches_are_split_for_a_topic_with_a_low_limit(
    control_for: Callable[..., Any], support: str
) -> None:
    control = control_for(exactly_once_source_support=support)
    await control.start()
    await control.start_task(
        end=5_000,
        rows=5_000,
        topic_creation_default_partitions=1,
        topic_creation_default_replication_factor=1,
        topic_creation_default_max_message_bytes=10_000,
    )
    assert await control.numbers(5_000) == list(range(5_000))
    await control.saved_is({"0-0": 5_000})


ROUTED: dict[str, Any] = {
    "transforms": "route",
    "transforms_route_type": "RegexRouter",
    "transforms_route_regex": "(.*)",
    "transforms_route_replacement": "$1 x",
}


async def test_a_topic_name_that_kafka_does_not_allow_fails_the_task(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    task = await control.start_task(end=300, rows=100, **ROUTED)
    failed = await control.state(task, "FAILED")
    assert (
        f'KAFKA_PRODUCE of a record failed at source partition {{"source":"0-0"}}, source offset {{"n":1}}: invalid '
        f"topic name '{control.name} x': it contains ' '"
    ) in failed.trace


async def test_records_for_such_a_topic_are_skipped_where_errors_are_tolerated(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    letters = f"{control.name}-letters"
    await control.start_task(
        end=30,
        rows=10,
        errors_tolerance="all",
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_topic_replication_factor=1,
        **ROUTED,
    )
    records = await control.consume(letters, 30)
    assert {dict(record.headers)["__connect.errors.stage"] for record in records} == {b"KAFKA_PRODUCE"}
    await control.saved_is({"0-0": 30})
