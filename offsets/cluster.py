"""The config topic's records folded into what the cluster shall run: Connect's ``KafkaConfigBackingStore`` as a pure fold.

Task configurations are one record each and must change together, so they wait until a commit record that finds a complete
set. Compaction can leave a commit with an incomplete set: the connector is *inconsistent* then and has no tasks until its
task configurations are written again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from connectors.errors import Skippable
from offsets.records import (
    ConnectorConfig,
    LoggerLevelRecord,
    RestartRequest,
    SessionKeyRecord,
    TargetState,
    TargetStateName,
    TaskConfig,
    TaskCount,
    TasksCommit,
    decode_config,
)
from offsets.unreadable import Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

ChangeKind = Literal["connector", "removed", "tasks", "target_state", "restart", "session_key", "logger", "task_count"]

_NO_TASKS: Final[Mapping[int, dict[str, str]]] = {}


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The change by one record.

    Attributes:
        kind: ``connector`` (new or changed configuration), ``removed``, ``tasks`` (a commit), ``target_state``, ``restart``,
            ``session_key``, ``logger`` or ``task_count``.
        name: the connector, or the logger.
        restart: the request, of kind ``restart``.
        level: the new level, of kind ``logger``.
    """

    kind: ChangeKind
    name: str = ""
    restart: RestartRequest | None = None
    level: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The state after the record before ``offset``. Treat it as immutable: configurations are shared with later snapshots.

    Attributes:
        offset: the next offset of the config topic; -1 before any record.
        session_key: the latest, or None.
        connectors: name -> configuration.
        target_states: name -> STARTED, PAUSED or STOPPED.
        tasks: name -> task number -> configuration in effect (numbers beyond ``task_counts`` are leftovers).
        task_counts: name -> number of tasks of the last commit.
        inconsistent: connectors whose last commit found an incomplete set.
        applied: name -> the connector's configuration when its tasks were last committed.
        generations: name -> how often task configurations came into effect, from 0.
        fenced_counts: name -> the last task count record (exactly once).
        pending_fencing: connectors whose tasks changed after their last task count record.
        loggers: logger -> level, as ever set with cluster scope.
        creation_offsets: name -> offset at which this reader has seen the connector created: one that was deleted and
            recreated is another connector, whatever its configuration is.
    """

    offset: int = -1
    session_key: SessionKeyRecord | None = None
    connectors: dict[str, dict[str, str]] = field(default_factory=dict)
    target_states: dict[str, TargetStateName] = field(default_factory=dict)
    tasks: dict[str, Mapping[int, dict[str, str]]] = field(default_factory=dict)
    task_counts: dict[str, int] = field(default_factory=dict)
    inconsistent: frozenset[str] = frozenset()
    applied: dict[str, dict[str, str]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    fenced_counts: dict[str, int] = field(default_factory=dict)
    pending_fencing: frozenset[str] = frozenset()
    loggers: dict[str, str] = field(default_factory=dict)
    creation_offsets: dict[str, int] = field(default_factory=dict)

    def target_state(self, name: str) -> TargetStateName:
        """Return the state that the operator has asked for; STARTED by default."""
        return self.target_states.get(name, "STARTED")

    def task_configs(self, name: str) -> list[dict[str, str]]:
        """The task configurations in effect, by number; empty for an unknown or inconsistent connector."""
        if name in self.inconsistent:
            return []
        configs_by_task = self.tasks.get(name, _NO_TASKS)
        return [configs_by_task[task] for task in range(self.task_counts.get(name, 0)) if task in configs_by_task]

    def task_config(self, name: str, task: int) -> dict[str, str] | None:
        """The configuration in effect of one task, or None; does not look at the connector's other tasks."""
        if name in self.inconsistent or not 0 <= task < self.task_counts.get(name, 0):
            return None
        return self.tasks.get(name, _NO_TASKS).get(task)

    def facts(self, name: str) -> tuple[object, ...]:
        """All that decides how a connector and its tasks run. What has not changed is the same object."""
        return (
            self.connectors.get(name),
            self.target_states.get(name),
            self.tasks.get(name),
            self.task_counts.get(name),
            name in self.inconsistent,
            self.applied.get(name),
            self.creation_offsets.get(name),
        )

    def all_tasks(self) -> list[tuple[str, int]]:
        """(connector, task) of every task in effect, sorted by connector."""
        return [(name, task) for name in sorted(self.connectors) for task in range(len(self.task_configs(name)))]


class ClusterState:
    """Folds records of the config topic; ``snapshot`` gives the result. Not thread-safe; nothing blocks."""

    def __init__(self) -> None:
        self._offset = -1
        self._session_key: SessionKeyRecord | None = None
        self._connectors: dict[str, dict[str, str]] = {}
        self._targets: dict[str, TargetStateName] = {}
        self._tasks: dict[str, Mapping[int, dict[str, str]]] = {}
        self._deferred: dict[str, dict[int, dict[str, str]]] = {}
        self._counts: dict[str, int] = {}
        self._inconsistent: set[str] = set()
        self._applied: dict[str, dict[str, str]] = {}
        self._generations: dict[str, int] = {}
        self._fenced: dict[str, int] = {}
        self._pending_fencing: set[str] = set()
        self._loggers: dict[str, str] = {}
        self._creation_offsets: dict[str, int] = {}
        self._snapshot: ClusterSnapshot | None = None
        self.unreadable = Unreadable("config")

    def snapshot(self) -> ClusterSnapshot:
        """The state now; the same object until the next record."""
        if self._snapshot is None:
            self._snapshot = ClusterSnapshot(
                self._offset,
                self._session_key,
                dict(self._connectors),
                dict(self._targets),
                dict(self._tasks),
                dict(self._counts),
                frozenset(self._inconsistent),
                dict(self._applied),
                dict(self._generations),
                dict(self._fenced),
                frozenset(self._pending_fencing),
                dict(self._loggers),
                dict(self._creation_offsets),
            )
        return self._snapshot

    def config_of(self, name: str) -> dict[str, str] | None:
        """A connector's configuration now, or None; treat it as immutable."""
        return self._connectors.get(name)

    def apply(self, offset: int, key: bytes | None, value: bytes | None) -> ConfigChange | None:
        """Fold the record at ``offset`` in; returns what it changed, or None. Never raises for a record's content."""
        self._offset = offset + 1
        self._snapshot = None
        try:
            record = decode_config(key, value)
        except Skippable as error:
            self.unreadable.add(key, error)
            return None
        if isinstance(record, ConnectorConfig):
            return self._apply_connector(record)
        if isinstance(record, TaskConfig):
            self._deferred.setdefault(record.connector, {})[record.task] = record.config
            return None
        if isinstance(record, TasksCommit):
            return self._apply_commit(record)
        if isinstance(record, TargetState):
            return self._apply_target(record)
        if isinstance(record, RestartRequest):
            return ConfigChange("restart", record.connector, restart=record)
        if isinstance(record, TaskCount):
            self._fenced[record.connector] = record.tasks
            self._pending_fencing.discard(record.connector)
            return ConfigChange("task_count", record.connector)
        if isinstance(record, LoggerLevelRecord):
            self._loggers[record.logger] = record.level
            return ConfigChange("logger", record.logger, level=record.level)
        self._session_key = record
        return ConfigChange("session_key")

    def _apply_connector(self, record: ConnectorConfig) -> ConfigChange:
        name = record.connector
        if record.config is None:
            self._forget_connector(name)
            return ConfigChange("removed", name)
        self._creation_offsets.setdefault(name, self._offset)
        self._connectors[name] = record.config
        self._targets.setdefault(name, "STARTED")
        return ConfigChange("connector", name)

    def _forget_connector(self, name: str) -> None:
        for by_name in (
            self._connectors,
            self._counts,
            self._tasks,
            self._deferred,
            self._applied,
            self._creation_offsets,
        ):
            by_name.pop(name, None)
        # Connect keeps this mark; a connector recreated under the name would then have no tasks until its next commit.
        self._inconsistent.discard(name)

    def _apply_commit(self, record: TasksCommit) -> ConfigChange | None:
        name = record.connector
        config = self._connectors.get(name)
        if config is None:
            # the connector was deleted and compaction removed its configuration: what is left of its tasks means nothing
            self._forget_connector(name)
            return None
        deferred = self._deferred.pop(name, {})
        # Leftovers of a larger earlier set are fine; a missing number is not.
        if all(task in deferred for task in range(record.tasks)):
            if deferred:
                self._tasks[name] = {**self._tasks.get(name, _NO_TASKS), **deferred}
                self._generations[name] = self._generations.get(name, -1) + 1
            self._inconsistent.discard(name)
            self._applied[name] = config
        else:
            self._inconsistent.add(name)
        self._counts[name] = record.tasks
        self._pending_fencing.add(name)
        return ConfigChange("tasks", name)

    def _apply_target(self, record: TargetState) -> ConfigChange | None:
        name = record.connector
        if record.state is None:
            self._targets.pop(name, None)
            if name in self._connectors:
                self._targets[name] = "STARTED"
            return None
        before = self._targets.get(name)
        self._targets[name] = record.state
        return ConfigChange("target_state", name) if before != record.state and name in self._connectors else None
