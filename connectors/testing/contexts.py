"""The runtime's side of the contract, in memory: what a connector and its tasks are given in a test."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from connectors.errors import Skippable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from connectors.api import Batch, OffsetReader, Position, TaskMetrics, WrittenRecord, WrittenTopics
    from connectors.options import Config
    from connectors.wire import Wire


def position_key(partition: Mapping[str, Any]) -> str:
    """A source partition as a dictionary key."""
    return json.dumps(partition, sort_keys=True)


class SavedOffsets:
    """Positions as the runtime would have saved them; an ``OffsetReader`` that a test can write to."""

    def __init__(self, saved: Mapping[str, tuple[Position, Position]] | None = None) -> None:
        self.saved: dict[str, tuple[Position, Position]] = dict(saved or {})

    def get(self, partition: Position) -> Position | None:
        """The saved offset of ``partition``, or None."""
        entry = self.saved.get(position_key(partition))
        return None if entry is None else dict(entry[1])

    def items(self) -> list[tuple[Position, Position]]:
        """All saved positions."""
        return [(dict(partition), dict(offset)) for partition, offset in self.saved.values()]

    def put(self, partition: Position, offset: Position | None) -> None:
        """Save an offset; None deletes."""
        if offset is None:
            self.saved.pop(position_key(partition), None)
        else:
            # Through JSON, as offsets go in Kafka: what does not survive that can't be resumed from.
            self.saved[position_key(partition)] = (json.loads(json.dumps(partition)), json.loads(json.dumps(offset)))

    def deliver(self, batch: Batch) -> None:
        """Save what is saved once every record of ``batch`` is acknowledged."""
        for record in batch.records:
            self.put(record.source_partition, record.source_offset)
        for partition, offset in batch.offsets:
            self.put(partition, offset)

    def copy(self) -> SavedOffsets:
        """The same positions, to be changed independently."""
        return SavedOffsets(self.saved)


class RecordedMetrics:
    """A ``TaskMetrics`` that keeps the numbers and insists on declared names."""

    def __init__(self, declared: Mapping[str, tuple[str, str]]) -> None:
        self.values: dict[str, float] = {}
        #: Newest value of each series: (name, labels in their order).
        self.series: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._declared = declared

    def set(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Set a gauge.

        Raises:
            AssertionError: the connector does not declare it.
        """
        self._check_kind(name, "gauge")
        self.values[name] = self.series[name, tuple(sorted((labels or {}).items()))] = value

    def add(self, name: str, value: float = 1, labels: Mapping[str, str] | None = None) -> None:
        """Add to a counter.

        Raises:
            AssertionError: the connector does not declare it, or the value is negative.
        """
        self._check_kind(name, "counter")
        if value < 0:
            raise AssertionError(f"counter {name} is given {value}: counters only grow")
        self.values[name] = self.values.get(name, 0) + value
        key = name, tuple(sorted((labels or {}).items()))
        self.series[key] = self.series.get(key, 0) + value

    def _check_kind(self, name: str, kind: str) -> None:
        declared = self._declared.get(name)
        if declared is None or declared[0] != kind:
            raise AssertionError(
                f"metric {name} is used as a {kind} but declared as {declared}; see SourceConnector.metrics"
            )


class LogCapture(logging.Handler):
    """Keeps every line that is logged, formatted, with its level and stack."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[tuple[int, str]] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        self.lines.append((record.levelno, self.format(record)))

    def text(self) -> str:
        """All lines."""
        return "\n".join(line for _, line in self.lines)


def make_logger(name: str, capture: LogCapture) -> logging.LoggerAdapter[logging.Logger]:
    """A logger of its own that only ``capture`` hears."""
    private_logger = logging.Logger(name, logging.DEBUG)  # noqa: LOG001 - not in the tree: levels and handlers of others do not matter
    private_logger.addHandler(capture)
    return logging.LoggerAdapter(private_logger, {})


class NothingWritten:
    """``TaskContext.written`` of a task whose records go to no Kafka: there are no topics."""

    async def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """No partition."""
        del topic
        return {}

    async def read(
        self, topic: str, partition: int, start: int, end: int
    ) -> AsyncGenerator[tuple[list[WrittenRecord], int], None]:
        """Nothing."""
        del topic, partition, start
        yield [], end

    async def decode(self, topic: str, value: bytes) -> Any:
        """Refuse it.

        Raises:
            Skippable: always.
        """
        raise Skippable(f"nothing was written to {topic}: {value!r} is not one of its values")


class MemoryTaskContext:
    """A ``TaskContext``."""

    def __init__(
        self,
        connector: str,
        task: int,
        config: Config,
        offsets: SavedOffsets,
        metrics: RecordedMetrics,
        log: logging.LoggerAdapter[logging.Logger],
        transaction_boundary: str = "",
        wire: Wire | None = None,
    ) -> None:
        self.connector = connector
        self.task = task
        self.config = config
        self.offsets: OffsetReader = offsets
        self.metrics: TaskMetrics = metrics
        self.log = log
        self.transaction_boundary = transaction_boundary
        self.written: WrittenTopics = NothingWritten()
        self.wire = wire


class MemoryConnectorContext:
    """A ``ConnectorContext`` that counts what the connector asks for."""

    def __init__(
        self, connector: str, config: Config, offsets: SavedOffsets, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        self.connector = connector
        self.config = config
        self.offsets: OffsetReader = offsets
        self.log = log
        self.wants_tasks = False
        self.failure: Exception | None = None

    def request_task_reconfiguration(self) -> None:
        """Remember the request."""
        self.wants_tasks = True

    async def refresh_offsets(self) -> None:
        """Nothing to do: these offsets are always current."""

    def fail(self, error: Exception) -> None:
        """Remember the error."""
        self.failure = error
