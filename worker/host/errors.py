"""Handling of errors: pauses between tries, tolerance of bad records, dead letters, automatic restarts. All pure."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.api import BadRecord, SourceRecord
from connectors.backoff import Backoff, pause_after
from connectors.errors import Fatal
from connectors.formats.masks.masking import has_rules, hide_reason

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterator, Mapping

    from connectors.api import Position
    from connectors.options import Config
    from worker.host.delivery.chunk import Headers
    from worker.protocol import HostTaskId, TaskStats

_FIRST_PAUSE_S: Final = 0.2
_LAST_PAUSE_S: Final = 10.0
#: Characters of a topic, a message or a position in a dead letter's header: they must not take the record's own room.
_LONGEST_TEXT: Final = 2000


class ErrorStage(StrEnum):
    """Where a record went wrong; Connect's names."""

    TASK_POLL = "TASK_POLL"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"


def retry_pauses(first_s: float = _FIRST_PAUSE_S, last_s: float = _LAST_PAUSE_S) -> Iterator[float]:
    """Seconds to wait before each further try: doubling up to ``last_s``, with jitter, without end."""
    pauses = Backoff(first_s, last_s, low=0.8, high=1.2)
    while True:
        yield pauses.next_s()


class RestartPolicy:
    """Decides whether and when a failed task starts again.

    Args:
        config: with the ``errors.restart.*`` options.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._always = config["errors.restart.policy"] == "always"
        self._most: int = config["errors.restart.max.attempts"]
        self._first_s = config["errors.restart.delay.ms"] / 1000
        self._last_s = config["errors.restart.max.delay.ms"] / 1000
        self._reset_s = config["errors.restart.reset.ms"] / 1000
        self.attempts = 0

    def delay(self, ran_s: float) -> float | None:
        """Seconds until the restart after a run of ``ran_s`` seconds, or None to stay FAILED."""
        if not self._always:
            return None
        if ran_s >= self._reset_s:
            self.attempts = 0
        if 0 <= self._most <= self.attempts:
            return None
        self.attempts += 1
        return pause_after(self.attempts, self._first_s, self._last_s)


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """A record for the dead letter topic: the raw input as its value."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class ErrorHandler:
    """Applies ``errors.tolerance`` and its companions to bad records of one task, and counts them.

    Args:
        task: the task.
        config: with the ``errors.*`` options.
        stats: counts go there.
        log: of the task.
        limit: largest dead letter in bytes; longer input is cut.
        scrub: removes secrets from a string; headers of dead letters quote errors.
    """

    def __init__(
        self,
        task: HostTaskId,
        config: Config,
        stats: TaskStats,
        log: logging.LoggerAdapter[logging.Logger],
        limit: int,
        scrub: Callable[[str], str] = str,
    ) -> None:
        self._task = task
        self._scrub = scrub
        self._stats = stats
        self._log = log
        self._limit = limit
        self.tolerant = config["errors.tolerance"] == "all"
        self._log_enabled: bool = config["errors.log.enable"]
        self._log_messages: bool = config["errors.log.include.messages"]
        self._headers: bool = config["errors.deadletterqueue.context.headers.enable"]
        self.topic: str = config["errors.deadletterqueue.topic.name"] or "" if self.tolerant else ""
        raw = config.raw
        transforms = any(name.startswith("transforms.") and "MaskColumns" in value for name, value in raw.items())
        #: Stages before which values are not masked yet: what such a record holds is shown nowhere.
        self._unmasked = frozenset(
            (
                *([ErrorStage.TASK_POLL] if transforms or has_rules(raw) else []),
                *([ErrorStage.TRANSFORMATION] if transforms else []),
            )
        )

    def bad(
        self, stage: ErrorStage, error: Exception, origin: SourceRecord | BadRecord, executing: str = ""
    ) -> DeadLetterRecord | None:
        """Take note of a bad record.

        Returns:
            What to write to the dead letter topic (``topic``) before offsets pass the record, or None.

        Raises:
            Fatal: bad records are not tolerated.
        """
        if stage in self._unmasked:
            return self.refused(
                stage,
                hide_reason(error),
                executing,
                origin.topic,
                None,
                None,
                origin.source_partition,
                origin.source_offset,
            )
        if isinstance(origin, BadRecord):
            return self.refused(
                stage, error, executing, origin.topic, None, origin.raw, origin.source_partition, origin.source_offset
            )
        return self.refused(
            stage,
            error,
            executing,
            origin.topic,
            _to_bytes(origin.key),
            _to_bytes(origin.value),
            origin.source_partition,
            origin.source_offset,
        )

    def refused(
        self,
        stage: ErrorStage,
        error: Exception,
        executing: str,
        topic: str | None,
        key: bytes | None,
        value: bytes | None,
        partition: Position | None,
        offset: Position | None,
    ) -> DeadLetterRecord | None:
        """As ``bad``, for what is known of a record in serialized form."""
        stats = self._stats
        stats.record_failures += 1
        stats.record_errors += 1
        stats.last_error_ms = int(time.time() * 1000)
        position = f"source partition {_position_json(partition)}, source offset {_position_json(offset)}"
        if self._log_enabled:
            stats.errors_logged += 1
            content = f", key {key!r}, value {value!r}" if self._log_messages else ""
            self._log.error(
                "Error encountered in task %s. Executing stage '%s' with class '%s', where source record is at %s, "
                "for topic %s%s: %s",
                self._task,
                stage,
                executing,
                position,
                topic,
                content,
                error,
            )
        if not self.tolerant:
            raise Fatal(
                f"Tolerance exceeded in error handler: {stage} of a record failed at {position}: {error} "
                "(errors.tolerance=all skips such records)"
            ) from error
        stats.records_skipped += 1
        if not self.topic:
            return None
        stats.dead_letter_requests += 1
        headers = self._context_headers(stage, error, executing, topic, partition, offset) if self._headers else []
        room = max(0, self._limit - sum(len(name) + len(data or b"") + 12 for name, data in headers) - 200)
        size = len(key or b"") + len(value or b"")
        if size > room:
            # A key that alone fills the dead letter must not block every later record.
            key = key and key[: room // 2]
            value = value and value[: room - len(key or b"")]
            headers.append(("__connect.errors.truncated", b"true"))
        return DeadLetterRecord(key, value, headers)

    def _context_headers(
        self,
        stage: ErrorStage,
        error: Exception,
        executing: str,
        topic: str | None,
        partition: Position | None,
        offset: Position | None,
    ) -> Headers:
        trace = "".join(traceback.format_exception(error))
        fields: list[tuple[str, str | None]] = [
            ("topic", topic and topic[:_LONGEST_TEXT]),
            ("partition", None),
            ("offset", None),
            ("connector.name", self._task.connector),
            ("task.id", str(self._task.task)),
            ("stage", stage),
            ("class.name", executing),
            ("exception.class.name", f"{type(error).__module__}.{type(error).__qualname__}"),
            ("exception.message", self._scrub(str(error))[:_LONGEST_TEXT]),
            ("exception.stacktrace", self._scrub(trace)[-8000:]),
            ("source.partition", _position_json(partition)[:_LONGEST_TEXT]),
            ("source.offset", _position_json(offset)[:_LONGEST_TEXT]),
        ]
        return [
            (f"__connect.errors.{name}", None if field_value is None else field_value.encode("utf-8", "replace"))
            for name, field_value in fields
        ]


def _position_json(position: Position | None) -> str:
    return orjson.dumps(position, default=str).decode() if position is not None else "unknown"


def _to_bytes(value: Any) -> bytes | None:
    """A record's key or value as bytes that a person can read."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    try:
        return orjson.dumps(value, default=_to_readable, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        return repr(value).encode("utf-8", "replace")


def _to_readable(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes | bytearray) else str(value)
