"""Decisions about errors: tolerance, dead letters, restarts, pauses between tries."""

from __future__ import annotations

import logging
import traceback
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.api import BadRecord, SourceRecord
from connectors.errors import Fatal
from worker.host.errors import ErrorHandler, ErrorStage, RestartPolicy, retry_pauses
from worker.host.options import CONNECTOR
from worker.protocol import HostTaskId, TaskStats

TASK = HostTaskId("orders", 3)
RECORD = SourceRecord({"file": "a"}, {"line": 7}, "t", {"id": 1, "raw": b"\xff"}, key="k")


def handler(limit: int = 10_000, **options: Any) -> tuple[ErrorHandler, TaskStats]:
    stats = TaskStats(TASK)
    config = CONNECTOR.parse({f"errors.{name.replace('_', '.')}": str(value) for name, value in options.items()})
    return ErrorHandler(TASK, config, stats, logging.LoggerAdapter(logging.getLogger("test.errors"), {}), limit), stats


def test_without_tolerance_a_bad_record_is_fatal_with_its_place_and_cause() -> None:
    errors, stats = handler()
    cause = ValueError("no number")
    with pytest.raises(Fatal, match=r'VALUE_CONVERTER of a record failed at source partition \{"file":"a"\}') as caught:
        errors.bad(ErrorStage.VALUE_CONVERTER, cause, RECORD)
    assert caught.value.__cause__ is cause
    assert (stats.record_failures, stats.record_errors, stats.records_skipped) == (1, 1, 0)
    assert stats.last_error_ms > 0


def test_with_tolerance_it_is_skipped_and_counted() -> None:
    errors, stats = handler(tolerance="all")
    assert errors.bad(ErrorStage.TRANSFORMATION, ValueError("x"), RECORD) is None
    assert (stats.record_failures, stats.record_errors, stats.records_skipped, stats.dead_letter_requests) == (
        1,
        1,
        1,
        0,
    )


def test_a_dead_letter_topic_without_tolerance_is_not_used() -> None:
    assert handler(deadletterqueue_topic_name="d")[0].topic == ""


def test_dead_letters_hold_the_raw_input() -> None:
    errors, stats = handler(tolerance="all", deadletterqueue_topic_name="d")
    letter = errors.bad(
        ErrorStage.TASK_POLL, ValueError("x"), BadRecord({"file": "a"}, {"line": 7}, ValueError("x"), b"\x00raw")
    )
    assert letter is not None
    assert (letter.key, letter.value) == (None, b"\x00raw")
    letter = errors.bad(ErrorStage.VALUE_CONVERTER, ValueError("x"), RECORD)
    assert letter is not None
    assert (letter.key, letter.value) == (b"k", '{"id":1,"raw":"ÿ"}'.encode())
    assert stats.dead_letter_requests == 2


def test_dead_letters_without_headers_on_request() -> None:
    errors, _ = handler(tolerance="all", deadletterqueue_topic_name="d", deadletterqueue_context_headers_enable="false")
    letter = errors.bad(ErrorStage.TASK_POLL, ValueError("x"), RECORD)
    assert letter is not None
    assert letter.headers == []


@given(st.integers(0, 20_000))
def test_dead_letters_fit_the_producer(size: int) -> None:
    errors, _ = handler(limit=12_000, tolerance="all", deadletterqueue_topic_name="d")
    letter = errors.bad(ErrorStage.TASK_POLL, ValueError("x" * 50), BadRecord({}, {}, ValueError("x"), b"r" * size))
    assert letter is not None
    assert letter.value is not None
    assert len(letter.value) + sum(len(name) + len(data or b"") for name, data in letter.headers) <= 12_000
    assert (("__connect.errors.truncated", b"true") in letter.headers) == (len(letter.value) < size)


@pytest.mark.parametrize(
    ("key", "value", "cut"),
    [
        (b"k" * 50_000, b"v", True),
        (b"k" * 50_000, b"v" * 50_000, True),
        (b"k" * 50_000, None, True),
        (b"k" * 10, b"v", False),
    ],
)
def test_a_long_key_or_topic_is_cut_too(key: bytes, value: bytes | None, cut: bool) -> None:
    errors, _ = handler(limit=12_000, tolerance="all", deadletterqueue_topic_name="d")
    letter = errors.refused(
        ErrorStage.KAFKA_PRODUCE, ValueError("x"), "", "t" * 90_000, key, value, {"f": "p" * 90_000}, None
    )
    assert letter is not None
    assert letter.key
    assert (letter.value is None) is (value is None)
    assert sum(len(data or b"") for _, data in (("", letter.key), ("", letter.value), *letter.headers)) <= 12_000
    assert (("__connect.errors.truncated", b"true") in letter.headers) is cut


@pytest.mark.parametrize(("messages", "shown"), [("false", False), ("true", True)])
def test_logs_show_the_record_only_on_request(caplog: pytest.LogCaptureFixture, messages: str, shown: bool) -> None:
    errors, stats = handler(tolerance="all", log_enable="true", log_include_messages=messages)
    errors.bad(ErrorStage.KEY_CONVERTER, ValueError("bad"), RECORD, "some.Converter")
    assert "Executing stage 'KEY_CONVERTER' with class 'some.Converter'" in caplog.text
    assert ('"id":1' in caplog.text) is shown
    assert stats.errors_logged == 1


def test_the_record_that_ends_a_task_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    errors, stats = handler(log_enable="true", log_include_messages="true")
    with pytest.raises(Fatal):
        errors.bad(ErrorStage.KEY_CONVERTER, ValueError("bad"), RECORD, "some.Converter")
    assert "Executing stage 'KEY_CONVERTER'" in caplog.text
    assert '"id":1' in caplog.text
    assert (stats.errors_logged, stats.records_skipped) == (1, 0)


def policy(**options: Any) -> RestartPolicy:
    return RestartPolicy(
        CONNECTOR.parse({f"errors.restart.{name.replace('_', '.')}": str(value) for name, value in options.items()})
    )


def test_no_restarts_by_default() -> None:
    assert policy().delay(1000.0) is None


def test_restarts_pause_longer_and_longer_up_to_the_limit() -> None:
    always = policy(policy="always", delay_ms=1_000, max_delay_ms=5_000)
    assert [always.delay(0.1) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_restarts_end_after_the_attempts_that_are_allowed() -> None:
    limited = policy(policy="always", max_attempts=2, delay_ms=1_000)
    assert [limited.delay(0.1) for _ in range(3)] == [1.0, 2.0, None]


def test_a_long_run_makes_good() -> None:
    always = policy(policy="always", max_attempts=2, delay_ms=1_000, reset_ms=60_000)
    assert [always.delay(0.1), always.delay(0.1), always.delay(60.0), always.delay(0.1), always.delay(0.1)] == [
        1.0,
        2.0,
        1.0,
        2.0,
        None,
    ]


@given(st.floats(0.001, 10), st.floats(0.001, 100))
def test_pauses_between_tries_double_with_jitter_and_stay_bounded(first: float, last: float) -> None:
    pauses = list(islice(retry_pauses(first, last), 40))
    assert all(0 < pause <= last * 1.2 for pause in pauses)
    assert pauses[-1] >= last * 0.8
    assert pauses[0] <= first * 1.2


@pytest.mark.parametrize(
    ("raw", "stage", "hidden"),
    [
        ({"mask.rules": "m"}, ErrorStage.TASK_POLL, True),
        ({"mask.rules": "m"}, ErrorStage.VALUE_CONVERTER, False),
        ({"column.mask.with.3.chars": "a.b.c"}, ErrorStage.TASK_POLL, True),
        ({"mask.rules": ""}, ErrorStage.TASK_POLL, False),
        ({"transforms": "m", "transforms.m.type": "MaskColumns$Value"}, ErrorStage.TRANSFORMATION, True),
        ({"transforms": "m", "transforms.m.type": "MaskColumns$Value"}, ErrorStage.TASK_POLL, True),
        ({"transforms": "m", "transforms.m.type": "MaskColumns$Value"}, ErrorStage.KEY_CONVERTER, False),
        ({"mask.rules": "m"}, ErrorStage.TRANSFORMATION, False),
    ],
)
def test_what_is_not_masked_yet_is_shown_nowhere(
    raw: dict[str, str], stage: ErrorStage, hidden: bool, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"{'planted'}@x is no number"  # no line of this file, which a traceback may quote, has it
    options = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dead",
        "errors.log.enable": "true",
        "errors.log.include.messages": "true",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    log = logging.LoggerAdapter(logging.getLogger("test.errors"), {})
    errors = ErrorHandler(TASK, CONNECTOR.parse({**options, **raw}), TaskStats(TASK), log, 10_000)
    record = SourceRecord({}, {}, "t", {"mail": text})
    letters = [
        errors.bad(stage, ValueError(text), record),
        errors.bad(stage, ValueError(text), BadRecord({}, {}, ValueError(), text.encode(), "t")),
    ]
    for letter in letters:
        assert letter is not None
        assert (text.encode() in repr(letter).encode()) is not hidden
    assert (text in caplog.text) is not hidden
    strict = ErrorHandler(TASK, CONNECTOR.parse(raw), TaskStats(TASK), log, 10_000)
    with pytest.raises(Fatal) as caught:
        strict.bad(stage, ValueError(text), record)
    shown = "".join(traceback.format_exception(caught.value))
    assert (text in shown) is not hidden
