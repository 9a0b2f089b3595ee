"""Log lines, levels at run time, and repeats of the same event."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from tests.support.eventually import pass_turns
from worker import logs
from worker.logs import LoggerRegistry, LoggerState, RepeatLimiter
from worker.secrets.masking import SecretFilter, SecretMasker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def restored() -> Iterator[None]:
    """Puts the root logger back as pytest had it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def configured(form: str, level: str = "INFO") -> io.StringIO:
    stream = io.StringIO()
    logs.configure_logging(form, level, stream)
    return stream


def lines(stream: io.StringIO) -> list[str]:
    text = stream.getvalue()
    assert text.endswith("\n")
    return text.split("\n")[:-1]


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(stream)]


def in_task(write: Callable[[], None], connector: str) -> None:
    """Call `write` as a task of a connector does."""

    def run() -> None:
        logs.set_context(connector, "task-0")
        write()

    copy_context().run(run)


@pytest.mark.usefixtures("restored")
def test_a_text_line_is_connects_pattern() -> None:
    stream = configured("text")
    log = logging.getLogger("worker.test_a")
    log.info("Started %d tasks", 3)
    in_task(lambda: log.warning("Slow"), "my-file")
    log.debug("not shown")
    plain, marked = lines(stream)
    assert plain.split("] ", 1)[1].rsplit(":", 1)[0] == "INFO Started 3 tasks (worker.test_a"
    assert plain[1:5].isdigit()
    assert plain.index("]") == len("[2026-11-21 09:00:00,123")
    assert "] WARN [my-file|task-0] Slow (worker.test_a:" in marked


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("form", ["text", "json"])
def test_an_event_is_one_line_whatever_is_in_it(form: str) -> None:
    stream = configured(form)
    for text in ("first\nsecond", "another"):
        try:
            int(text)
        except ValueError:
            logging.getLogger("worker.test_b").exception("It broke:\r\nhere")
    first, second = lines(stream)
    assert "ValueError: invalid literal" in first
    assert "test_logs.py" in first
    assert "'another'" in second


@pytest.mark.usefixtures("restored")
def test_a_json_line_has_the_fields() -> None:
    stream = configured("json")
    logs.connector_logger("connectors.file", "my-file", "task-1").error("Can't read %s", "/x")
    logging.getLogger("worker.test_c").info("plain")
    marked, plain = objects(stream)
    assert marked["time"].endswith("Z")
    assert {name: marked[name] for name in ("level", "logger", "message", "connector", "scope")} == {
        "level": "ERROR",
        "logger": "connectors.file",
        "message": "Can't read /x",
        "connector": "my-file",
        "scope": "task-1",
    }
    assert "connector" not in plain
    assert "trace" not in plain


@pytest.mark.usefixtures("restored")
@given(text=st.text())
def test_any_text_makes_one_json_object(text: str) -> None:
    record = logging.LogRecord("n", logging.INFO, "f", 1, text, None, None)
    (line,) = logs.JsonFormatter().format(record).split("\n")
    assert isinstance(json.loads(line)["message"], str)


@pytest.mark.usefixtures("restored")
async def test_tasks_of_the_loop_inherit_the_context_and_do_not_leak_it() -> None:
    stream = configured("json")
    log = logging.getLogger("worker.test_d")

    async def connector_code(name: str) -> None:
        logs.set_context(name, "task-0")
        await pass_turns()
        await asyncio.create_task(library_code())

    async def library_code() -> None:
        log.info("from a library")

    await asyncio.gather(connector_code("a"), connector_code("b"))
    log.info("from the worker")
    assert [item.get("connector") for item in objects(stream)] == ["a", "b", None]


@pytest.mark.usefixtures("restored")
def test_the_same_error_is_not_written_again_and_again() -> None:
    stream = configured("json")
    log = logging.getLogger("worker.test_e")
    for _ in range(50):
        log.error("Kafka is away")
        log.info("working")
    in_task(lambda: log.error("Kafka is away"), "a")
    log.error("Kafka is away, %s", "really")
    messages = [(item["level"], item["message"], item.get("connector")) for item in objects(stream)]
    assert messages.count(("ERROR", "Kafka is away", None)) == 1
    assert messages.count(("INFO", "working", None)) == 50
    assert messages[-2:] == [("ERROR", "Kafka is away", "a"), ("ERROR", "Kafka is away, really", None)]


@pytest.mark.usefixtures("restored")
def test_a_wrong_call_does_not_fail_the_code_that_makes_it() -> None:
    class Unprintable(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("not even this")

    stream = configured("text")
    for handler in logging.getLogger().handlers:
        handler.addFilter(SecretFilter(SecretMasker()))
    log = logging.getLogger("worker.test_l")
    log.warning("%d rows of %s", *(5,))
    log.error("Strange", exc_info=Unprintable())
    wrong, strange = lines(stream)
    assert "WARN %d rows of %s (its arguments do not fit: " in wrong
    assert "ERROR Strange: " in strange


def test_held_back_events_are_counted() -> None:
    limiter = RepeatLimiter(interval_s=10)
    assert [limiter.admit("x", now) for now in (0.0, 1.0, 9.9, 10.0, 10.1, 30.0)] == [0, None, None, 2, None, 1]
    assert limiter.admit("y", 30.0) == 0


def test_a_limiter_remembers_a_bounded_number_of_events() -> None:
    limiter = RepeatLimiter(interval_s=10, remembered=3)
    for name in "abcd":
        assert limiter.admit(name, 0.0) == 0
    assert limiter.admit("d", 1.0) is None
    assert limiter.admit("a", 1.0) == 0


def manager(*names: str) -> logging.Manager:
    root = logging.RootLogger(logging.INFO)
    loggers = logging.Manager(root)
    for name in names:
        loggers.getLogger(name)
    # getLogger of a manager makes loggers of the process's class, whose root is the process's
    for logger in loggers.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.manager = loggers
    return loggers


def registry(*names: str) -> LoggerRegistry:
    moments = iter(range(1000, 9000, 1000))
    return LoggerRegistry(manager(*names), lambda: next(moments))


def test_setting_a_parent_sets_and_lists_its_children() -> None:
    loggers = registry("worker", "worker.host", "worker.host.delivery.session", "workers", "aiokafka")
    assert loggers.list() == {"root": LoggerState("INFO")}
    assert loggers.set("worker", "debug") == ["worker", "worker.host", "worker.host.delivery.session"]
    assert loggers.list() == {
        "root": LoggerState("INFO"),
        "worker": LoggerState("DEBUG", 1000),
        "worker.host": LoggerState("DEBUG", 1000),
        "worker.host.delivery.session": LoggerState("DEBUG", 1000),
    }
    assert loggers.get("workers") == LoggerState("INFO")


def test_setting_root_sets_all() -> None:
    loggers = registry("a", "b.c")
    assert loggers.set("root", "TRACE") == ["a", "b.c", "root"]
    assert loggers.get("ROOT") == LoggerState("TRACE", 1000)
    assert loggers.get("b.c") == LoggerState("TRACE", 1000)


def test_only_what_changed_is_named_and_gets_a_time() -> None:
    loggers = registry("a", "a.b")
    assert loggers.set("a", "INFO") == []
    assert loggers.get("a") == LoggerState("INFO")
    assert loggers.set("a.b", "WARN") == ["a.b"]
    assert loggers.set("a", "WARN") == ["a"]
    assert loggers.set("a", "WARN") == []
    assert loggers.get("a") == LoggerState("WARN", 3000)
    assert loggers.get("a.b") == LoggerState("WARN", 2000)


def test_an_unknown_logger_is_made_by_setting_it_but_not_by_asking() -> None:
    loggers = registry()
    assert loggers.get("io.debezium.connector.mysql") is None
    assert loggers.get("io.debezium.connector.mysql") is None
    assert loggers.set("io.debezium.connector.mysql", "TRACE") == ["io.debezium.connector.mysql"]
    assert loggers.get("io.debezium.connector.mysql") == LoggerState("TRACE", 1000)


def test_names_of_the_java_worker_set_the_parts_that_do_its_work() -> None:
    loggers = registry("worker", "worker.rest", "worker.rest.access", "worker.control")
    affected = loggers.set("org.apache.kafka.connect.runtime.rest", "DEBUG")
    assert affected == ["org.apache.kafka.connect.runtime.rest", "worker.rest", "worker.rest.access"]
    assert loggers.get("worker.control") == LoggerState("INFO")


@pytest.mark.parametrize("level", ["", "LOUD", "WARNING", "CRITICAL"])
def test_a_level_that_java_does_not_know_is_refused(level: str) -> None:
    loggers = registry("a")
    with pytest.raises(ConfigInvalid, match="invalid log level"):
        loggers.set("a", level)
    assert loggers.list() == {"root": LoggerState("INFO")}


@pytest.mark.parametrize(
    ("level", "passes"), [("TRACE", 6), ("DEBUG", 5), ("INFO", 4), ("WARN", 3), ("ERROR", 2), ("FATAL", 1), ("OFF", 0)]
)
def test_levels_are_javas(level: str, passes: int) -> None:
    loggers = manager("a")
    LoggerRegistry(loggers).set("a", level)
    logger = loggers.getLogger("a")
    assert sum(logger.isEnabledFor(number) for number in (5, 10, 20, 30, 40, 50)) == passes


def test_a_task_host_gets_the_levels_of_its_control_process() -> None:
    control, host = registry("a", "a.b"), registry("a.b.c")
    control.set("root", "WARN")
    control.set("a", "DEBUG")
    host.apply({**control.levels(), "x": "nonsense"})
    assert host.levels() == {"root": "WARN", "a": "DEBUG", "a.b": "DEBUG"}
    assert host.get("a.b.c") == LoggerState("DEBUG")


@pytest.mark.usefixtures("restored")
def test_a_wrong_format_or_level_is_a_configuration_error() -> None:
    with pytest.raises(ConfigInvalid, match=r"log\.format"):
        logs.configure_logging("xml")
    with pytest.raises(ConfigInvalid, match="LOUD"):
        logs.configure_logging("text", "LOUD")
