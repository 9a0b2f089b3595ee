"""The status topic's records folded into the states of connectors and tasks: Connect's ``KafkaStatusBackingStore``."""

from __future__ import annotations

from typing import Final

from connectors.errors import Skippable
from offsets.records import ConnectorStatusRecord, ReportedStatus, TaskStatusRecord, TopicStatus, decode_status
from offsets.unreadable import Unreadable

_NOTHING: Final[dict[int, ReportedStatus]] = {}
_NO_TOPICS: Final[dict[str, TopicStatus]] = {}


def can_write_safely(current: ReportedStatus | None, new: ReportedStatus) -> bool:
    """Whether a worker that may be out of date can write ``new`` without hiding a newer owner's status."""
    return current is None or current.worker_id == new.worker_id or current.generation <= new.generation


class StatusState:
    """Folds records of the status topic. Not thread-safe; nothing blocks."""

    def __init__(self) -> None:
        self._connectors: dict[str, ReportedStatus] = {}
        self._tasks: dict[str, dict[int, ReportedStatus]] = {}
        self._topics: dict[str, dict[str, TopicStatus]] = {}
        self.unreadable = Unreadable("status")

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Fold one record in. Never raises for a record's content."""
        try:
            record = decode_status(key, value)
        except Skippable as error:
            self.unreadable.add(key, error)
            return
        if isinstance(record, ConnectorStatusRecord):
            if record.status is None:
                self._connectors.pop(record.connector, None)
                self._tasks.pop(record.connector, None)
            else:
                self._connectors[record.connector] = record.status
        elif isinstance(record, TaskStatusRecord):
            self._apply_task(record)
        elif record.status is None:
            topics = self._topics.get(record.connector)
            if topics is not None:
                topics.pop(record.topic, None)
                if not topics:
                    del self._topics[record.connector]
        else:
            self._topics.setdefault(record.connector, {})[record.topic] = record.status

    def _apply_task(self, record: TaskStatusRecord) -> None:
        tasks = self._tasks.setdefault(record.connector, {})
        new = record.status
        if new is None:
            tasks.pop(record.task, None)
            if not tasks:
                del self._tasks[record.connector]
            return
        current = tasks.get(record.task)
        # A worker that lost the task may say UNASSIGNED after the new owner said RUNNING: not news.
        if (
            new.state == "UNASSIGNED"
            and current is not None
            and current.state == "RUNNING"
            and current.generation >= new.generation
        ):
            return
        tasks[record.task] = new

    def connectors(self) -> list[str]:
        """Names of connectors that have a status, or a task with one."""
        return list(self._connectors | self._tasks)

    def connector(self, name: str) -> ReportedStatus | None:
        """The connector's status, or None."""
        return self._connectors.get(name)

    def task(self, name: str, task: int) -> ReportedStatus | None:
        """The task's status, or None."""
        return self._tasks.get(name, _NOTHING).get(task)

    def tasks(self, name: str) -> dict[int, ReportedStatus]:
        """Task number -> status, by number; a copy."""
        return dict(sorted(self._tasks.get(name, _NOTHING).items()))

    def with_topics(self) -> list[str]:
        """Names of connectors, known or gone, that have active topics."""
        return [name for name, topics in self._topics.items() if topics]

    def topics(self, name: str) -> dict[str, TopicStatus]:
        """Active topics of the connector; a copy."""
        return dict(self._topics.get(name, _NO_TOPICS))
