"""Logs: one line per event, with the connector or task it belongs to, and levels that change at run time.

Java's level names are used everywhere an operator sees one. ``/admin/loggers`` (KIP-495, KIP-976) works on ``LoggerRegistry``.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import OrderedDict
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec
import orjson

from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = "root"
#: Java level names -> Python's numbers; OFF is above everything, ALL below.
LEVELS: Final[dict[str, int]] = {
    "ALL": 1,
    "TRACE": 5,
    "DEBUG": 10,
    "INFO": 20,
    "WARN": 30,
    "ERROR": 40,
    "FATAL": 50,
    "OFF": 100,
}
_FORMATS: Final = ("text", "json")
#: ``LoggerRegistry.list`` hides the built-in in its class.
_Names = list[str]
#: What an operator's habits from the Java worker mean here: the Python package that does that part of the work.
_JAVA_NAMES: Final = {
    "org.apache.kafka.connect": ("worker", "offsets", "connectors"),
    "org.apache.kafka.connect.runtime": ("worker",),
    "org.apache.kafka.connect.runtime.rest": ("worker.rest",),
    "org.apache.kafka.connect.runtime.distributed": ("worker.control",),
    "org.apache.kafka.connect.storage": ("offsets",),
    "org.apache.kafka.connect.transforms": ("worker.transforms",),
    "org.apache.kafka.connect.file": ("connectors.file",),
    "org.apache.kafka.clients": ("aiokafka",),
}
#: Identical warnings and errors within this many seconds are counted, not written.
_REPEAT_S: Final = 10.0
_REMEMBERED: Final = 1000

#: Whose work is being done: "" or Connect's ``[connector|task-0] ``. Tasks of the event loop inherit it.
_context: ContextVar[tuple[str, str]] = ContextVar("log_context", default=("", ""))


def set_context(connector: str, scope: str = "worker") -> None:
    """Mark all further log lines of the running asyncio task, and of those it makes."""
    _context.set((connector, scope))


def connector_logger(name: str, connector: str, scope: str = "worker") -> logging.LoggerAdapter[logging.Logger]:
    """A logger for code of a connector: its lines carry the connector and ``task-N`` or ``worker`` wherever it is called."""
    return _ConnectorAdapter(logging.getLogger(name), {"connector": connector, "scope": scope})


class _ConnectorAdapter(logging.LoggerAdapter[logging.Logger]):
    """Puts its fields into the record, in addition to those given with the call."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


def java_level(number: int) -> str:
    """The Java name of a Python level; one in between gets the name of the next lower one."""
    name = "TRACE"
    for candidate, bound in LEVELS.items():
        if number >= bound:
            name = candidate
    return name


def parse_level(level_name: str) -> int:
    """The Python number of a Java level name, in any case of letters.

    Raises:
        ConfigInvalid: there is no such level.
    """
    level = LEVELS.get(level_name.strip().upper())
    if level is None:
        raise ConfigInvalid(f"invalid log level '{level_name}'; levels are {', '.join(LEVELS)}")
    return level


class LoggerState(msgspec.Struct, frozen=True):
    """A logger's level as REST shows it; ``last_modified`` is milliseconds since the epoch, None if never changed by REST."""

    level: str
    last_modified: int | None = None


class LoggerRegistry:
    """Levels of this process's loggers.

    Any name is accepted, also that of a Java class: it makes a logger of that name, and where the name stands for a part of
    the Java worker, the corresponding Python package is set with it.

    Args:
        manager: whose loggers; by default the process's.
        clock: milliseconds since the epoch.
    """

    def __init__(self, manager: logging.Manager | None = None, clock: Callable[[], float] | None = None) -> None:
        self._manager = manager or logging.Logger.manager
        self._clock = clock or (lambda: time.time() * 1000)
        self._modified: dict[str, int] = {}

    def list(self) -> dict[str, LoggerState]:
        """Root and every logger whose own level is set, by name."""
        named = {name: logger for name, logger in self._all_loggers().items() if logger.level != logging.NOTSET}
        return {
            name: self._logger_state(name, logger)
            for name, logger in sorted((*named.items(), (ROOT, self._manager.root)))
        }

    def get(self, name: str) -> LoggerState | None:
        """A logger's level in effect; None if there is no such logger (it is not made)."""
        if name.lower() == ROOT:
            return self._logger_state(ROOT, self._manager.root)
        logger = self._all_loggers().get(name)
        return None if logger is None else self._logger_state(name, logger)

    def set(self, name: str, level: str) -> _Names:
        """Set a logger and all below it, the whole tree for ``root``.

        Returns:
            The names of those whose level in effect was another one, sorted; Kafka Connect answers with these too.

        Raises:
            ConfigInvalid: no such level.
        """
        number = parse_level(level)
        if name.lower() == ROOT:
            affected = {ROOT: self._manager.root, **self._all_loggers()}
        else:
            for start in (name, *_JAVA_NAMES.get(name, ())):
                self._manager.getLogger(start)
            starts = (name, *_JAVA_NAMES.get(name, ()))
            affected = {
                logger_name: logger
                for logger_name, logger in self._all_loggers().items()
                if any(logger_name == start or logger_name.startswith(f"{start}.") for start in starts)
            }
        now = int(self._clock())
        # Before any level is set: child loggers inherit the levels of their parents.
        changed = sorted(
            logger_name for logger_name, logger in affected.items() if logger.getEffectiveLevel() != number
        )
        self._modified.update(dict.fromkeys(changed, now))
        for logger in affected.values():
            logger.setLevel(number)
        return changed

    def levels(self) -> dict[str, str]:
        """Logger -> level of all that have a level of their own: what a new task host must be given."""
        return {name: state.level for name, state in self.list().items()}

    def apply(self, levels: dict[str, str]) -> None:
        """Set exactly these loggers, without those below them; for a task host's start. Unknown levels are left out."""
        for name, level in levels.items():
            number = LEVELS.get(level.upper())
            if number is not None:
                (self._manager.root if name.lower() == ROOT else self._manager.getLogger(name)).setLevel(number)

    def _all_loggers(self) -> dict[str, logging.Logger]:
        return {name: logger for name, logger in self._manager.loggerDict.items() if isinstance(logger, logging.Logger)}

    def _logger_state(self, name: str, logger: logging.Logger) -> LoggerState:
        return LoggerState(java_level(logger.getEffectiveLevel()), self._modified.get(name))


class RepeatLimiter:
    """Lets the first of identical events pass, then one per interval with the number of those held back."""

    def __init__(self, interval_s: float = _REPEAT_S, remembered: int = _REMEMBERED) -> None:
        self._interval_s = interval_s
        self._remembered = remembered
        self._events: OrderedDict[object, tuple[float, int]] = OrderedDict()

    def admit(self, key: object, now: float) -> int | None:
        """How many were held back since the last that passed, if this one may pass; None if it is held back."""
        previous = self._events.get(key)
        if previous is not None and now - previous[0] < self._interval_s:
            self._events[key] = (previous[0], previous[1] + 1)
            return None
        self._events[key] = (now, 0)
        self._events.move_to_end(key)
        if len(self._events) > self._remembered:
            self._events.popitem(last=False)
        return previous[1] if previous is not None else 0


class _RepeatFilter(logging.Filter):
    """Applies a ``RepeatLimiter`` to warnings and errors with the same logger, context, text and exception."""

    def __init__(self, limiter: RepeatLimiter) -> None:
        super().__init__()
        self._limiter = limiter

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        try:
            message = record.getMessage()
            error = repr(record.exc_info[1]) if record.exc_info else ""
        except Exception:  # noqa: BLE001 - a wrong call in some library must not fail it
            message, error = str(record.msg), ""
        held_back = self._limiter.admit(
            (record.name, record.levelno, _connector_of(record), message, error), time.monotonic()
        )
        if held_back:
            record.repeated = held_back
        return held_back is not None


def _connector_of(record: logging.LogRecord) -> tuple[str, str]:
    connector = getattr(record, "connector", None)
    if connector:
        return str(connector), str(getattr(record, "scope", "worker"))
    return _context.get()


class TextFormatter(logging.Formatter):
    """Connect's pattern ``[time] LEVEL [connector|task-0] message (logger:line)``; a trace follows on the same line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; line ends in it are written as a backslash and an n."""
        connector, scope = _connector_of(record)
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        message = f"[{connector}|{scope}] {record.getMessage()}" if connector else record.getMessage()
        repeated = getattr(record, "repeated", 0)
        if repeated:
            message += f" (repeated {repeated} times since it was last shown)"
        trace = _format_trace(self, record)
        if trace:
            message += f": {trace}"
        line = (
            f"[{moment},{int(record.msecs):03d}] {java_level(record.levelno)} {message} ({record.name}:{record.lineno})"
        )
        return line.replace("\r", "\\r").replace("\n", "\\n")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, line, message, and connector, scope, repeated, trace if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The object."""
        connector, scope = _connector_of(record)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": java_level(record.levelno),
            "logger": record.name,
            "line": record.lineno,
            "message": record.getMessage(),
            "process": record.process,
        }
        if connector:
            fields["connector"] = connector
            fields["scope"] = scope
        repeated = getattr(record, "repeated", 0)
        if repeated:
            fields["repeated"] = repeated
        trace = _format_trace(self, record)
        if trace:
            fields["trace"] = trace
        try:
            return orjson.dumps(fields).decode()
        except orjson.JSONEncodeError:  # an unpaired surrogate in a message
            return orjson.dumps(
                {
                    name: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
                    for name, value in fields.items()
                }
            ).decode()


def _format_trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)


def configure_logging(form: str = "text", level: str = "INFO", stream: TextIO | None = None) -> LoggerRegistry:
    """Set up this process's logging from scratch, in place of the previous setup; returns the registry of levels.

    Args:
        form: ``text`` or ``json`` (``log.format``).
        level: Java name of the root logger's level (``log.level``).
        stream: where to; by default standard error.

    Raises:
        ConfigInvalid: unknown form or level.
    """
    if form not in _FORMATS:
        raise ConfigInvalid(
            f"Invalid value {form} for configuration log.format: String must be one of: {', '.join(_FORMATS)}"
        )
    number = parse_level(level)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(TextFormatter() if form == "text" else JsonFormatter())
    handler.addFilter(_RepeatFilter(RepeatLimiter()))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(number)
    logging.captureWarnings(capture=True)
    return LoggerRegistry()
