"""The top of the trace of a failed task, for clients that show a part of it."""

from __future__ import annotations

import pytest

from connectors.errors import Fatal
from tests.support.trace_reader import told_by_redpanda_console
from worker.host.task_runner import masked_trace


def _trace(error: BaseException, cause: BaseException | None = None) -> str:
    """As a task that failed with ``error`` makes it."""
    error.__cause__ = cause
    return masked_trace(error, lambda text: text)


@pytest.mark.parametrize(
    ("error", "cause", "shown"),
    [
        (Fatal("x is not a file (name a file)"), None, "x is not a file (name a file)."),
        (Fatal("no such server"), OSError(111, "refused ('127.0.0.1', 9)"), "[Errno 111] refused ('127.0.0.1', 9)."),
        (Fatal("this is an exception"), None, "this is an exception."),
        (Fatal("no answer in 30 s"), TimeoutError(), "no answer in 30 s"),
        (Fatal("no answer in 30 s"), TimeoutError("the server hangs"), "the server hangs"),
        (Fatal("first (a)\nsecond"), None, "first (a)."),
        (KeyError(), None, "no details were given"),
    ],
)
def test_every_error_tells_people_something(error: BaseException, cause: BaseException | None, shown: str) -> None:
    assert told_by_redpanda_console(_trace(error, cause)) == shown


def test_errors_without_a_text_are_named_all_the_same() -> None:
    trace = _trace(Fatal("no answer in 30 s"), TimeoutError())
    assert trace.startswith("Fatal: no answer in 30 s\n\n")
    assert "TimeoutError" in trace
    assert _trace(KeyError()).startswith("KeyError: no details were given\n\n")
