"""The interface of the control process for the REST layer, and the errors that become status codes.

The control process implements ``Herder`` (``worker.control.herder.cluster``); the REST layer knows nothing else of it.
Methods that change something work on the leader only: elsewhere they raise ``NotLeader``, and the REST layer forwards the
request. Bodies are JSON-able values in exactly the shape Kafka Connect 4.1 answers with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from connectors.errors import MillraceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.console.history import PastConfig

#: Kafka Connect's text for a 409 while a rebalance is under way; clients retry on exactly these words.
REBALANCE_TEXT = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
#: What Kafka Connect answers where a task is known and no worker runs it.
NO_OWNER_TEXT = (
    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
)


class RestError(MillraceError):
    """An answer other than success: ``{"error_code": status, "message": text}``, with these headers."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


class NotLeader(MillraceError):
    """This worker is not the leader; ``leader_url`` is the leader's REST address, or None without a leader."""

    def __init__(self, leader_url: str | None) -> None:
        super().__init__("this worker is not the leader")
        self.leader_url = leader_url


class ClusterAdmin(Protocol):
    """The worker, its plugins, loggers, health and metrics."""

    def root(self) -> dict[str, Any]:
        """``GET /``: version, commit, kafka_cluster_id."""

    def ready(self) -> bool:
        """Whether this worker has caught up with the config topic and joined the group; until then REST answers 503."""

    async def connector_topics(self, name: str) -> list[str]:
        """Topics used since the last reset, of known and unknown connectors."""

    async def reset_connector_topics(self, name: str) -> None:
        """Forget them."""

    async def plugins(self, *, connectors_only: bool) -> list[dict[str, Any]]:
        """``[{class, type, version}]``."""

    async def plugin_config(self, plugin: str, version: str | None) -> list[dict[str, Any]]:
        """``[{name, type, required, default_value, importance, documentation, group, ...}]``; 404 if unknown."""

    async def validate(self, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
        """``ConfigInfos``: name, error_count, groups, configs."""

    async def source_tables(self, config: Mapping[str, str]) -> dict[str, Any]:
        """``SourceTables``: what a source has, for a form to choose from; changes nothing."""

    async def config_providers(self) -> list[str]:
        """Names of the config providers that configurations may refer to."""

    async def loggers(self) -> dict[str, dict[str, Any]]:
        """``{name: {level, last_modified}}``."""

    async def logger(self, name: str) -> dict[str, Any]:
        """``{level, last_modified}``; 404 if unknown."""

    async def set_log_level(self, name: str, level: str, *, cluster: bool) -> list[str]:
        """Affected loggers on this worker; with ``cluster`` all workers' by the config topic."""

    async def send_log_level(self, leader_url: str | None, name: str, level: str) -> list[str]:
        """Let the leader set a level on all workers; 409 without a leader."""

    async def explain(self, name: str) -> dict[str, Any]:
        """Why each task is where it is, or why it isn't running."""

    async def plugin_environments(self) -> dict[str, Any]:
        """This worker's environments of ``plugin.path``, their plugins and hosts, and what can't be used."""

    async def refresh_plugins(self) -> dict[str, Any]:
        """Look at ``plugin.path`` of this worker now; answers as ``plugin_environments``."""

    async def drain(self) -> dict[str, Any]:
        """Hand this worker's connectors and tasks over; answers at once with what is still here."""

    async def health(self) -> tuple[bool, str]:
        """KIP-1017: (healthy, message)."""

    async def metrics(self) -> bytes:
        """The Prometheus exposition."""


class ConsoleView(Protocol):
    """The console's view of connectors, workers and rates."""

    async def connector_rows(self) -> list[dict[str, Any]]:
        """All connectors in short, by name: ``ConnectorRow`` without the caller's role."""

    async def pipeline(self) -> dict[str, Any]:
        """``Pipeline``: the live workers, and what each connector reads and writes."""

    def me(self) -> str:
        """The id of this worker."""

    async def from_workers(self, path: str) -> dict[str, Any]:
        """Answers of the other workers to a signed GET, by their ids; those that don't answer are left out."""

    def numbers(self) -> tuple[dict[Any, tuple[int, str, float]], float, int, float]:
        """Of this worker: by task records written, state and milliseconds behind; CPU seconds, bytes, longest delay."""

    async def config_history(self, name: str) -> Sequence[PastConfig]:
        """A connector's configurations that are known, the newest first; 404 if unknown."""

    def own_rates(self) -> dict[str, tuple[float, float | None]]:
        """Of this worker's tasks, by connector: records per second, and seconds behind (None: not known)."""


class FlowPlans(Protocol):
    """Plans and previews of flows."""

    async def plan_flow(self, config: Mapping[str, str]) -> dict[str, Any]:
        """``FlowPlan`` of a configuration, compared with the connector of its name if there is one; changes nothing."""

    async def preview_flow(self, config: Mapping[str, str], request: Mapping[str, Any]) -> dict[str, Any]:
        """``FlowPreview``: what the configuration makes of some rows; changes nothing."""


class ConnectorOffsets(Protocol):
    """Saved positions of connectors."""

    async def connector_offsets(self, name: str) -> list[dict[str, Any]]:
        """``[{partition, offset}]``."""

    async def alter_connector_offsets(
        self, name: str, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> str:
        """KIP-875; the message of the answer. Needs STOPPED. Leader only."""

    async def reset_connector_offsets(self, name: str) -> str:
        """KIP-875; the message of the answer. Needs STOPPED. Leader only."""


class RuleSets(Protocol):
    """Rule sets of logs and their versions."""

    async def rule_sets(self) -> list[dict[str, Any]]:
        """All rule sets: ``{name, version, created_ms, forced, comment, versions, connectors}``."""

    async def rule_set(self, name: str) -> dict[str, Any]:
        """One of them with its newest ``rules``; 404 if unknown."""

    async def rule_versions(self, name: str) -> list[dict[str, Any]]:
        """Its versions, the newest first; 404 if unknown."""

    async def rule_version(self, name: str, version: int) -> dict[str, Any]:
        """One version with its ``rules``; 404 if unknown."""

    async def put_rules(self, name: str, rules: Any, *, force: bool, comment: str) -> tuple[bool, dict[str, Any]]:
        """Save a new version, unless it is the newest: (whether there was none, the set). 400 with what speaks against it.

        Leader only.
        """

    async def delete_rules(self, name: str) -> None:
        """Delete it; 404 if unknown, 409 while a connector names it. Leader only."""


class LogLines(Protocol):
    """Lines of connectors for logs, and what their rules make of them."""

    async def unknown_lines(self, name: str, lines: int) -> dict[str, Any]:
        """The newest lines that no rule of a logs connector accepted, with what there is to say of them; 404 if unknown."""

    async def recent_lines(self, name: str, lines: int) -> list[dict[str, Any]]:
        """The newest lines of a logs connector's input: ``{line, origin}``. Answered by the worker that runs task 0."""

    async def rule_conflicts(self, name: str, rules: Any) -> tuple[list[str], list[str]]:
        """The schemas of a rule set that the schema registry of a logs connector would refuse, and why; 404 if unknown."""


class JobSavepoints(Protocol):
    """Savepoints of jobs."""

    async def create_savepoint(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask a job for a savepoint: name, location, stop. 409 if it does not run. Answered by the worker that runs it."""

    async def list_savepoints(self, name: str) -> list[dict[str, Any]]:
        """A job's savepoints. Answered by the worker that runs it."""

    async def delete_savepoint(self, name: str, savepoint: str) -> None:
        """Remove one; 404 if unknown. Answered by the worker that runs it."""


class ConnectorSnapshots(Protocol):
    """Requests for snapshots, lag and tables of connectors."""

    async def create_snapshot(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for a snapshot: the request as it is kept, with its ``id``. Leader only; 409 if the id exists."""

    async def list_snapshots(self, name: str) -> list[dict[str, Any]]:
        """All snapshots of a connector with their progress (``SourceConnector.snapshots``)."""

    async def snapshot(self, name: str, snapshot: str) -> dict[str, Any]:
        """One of them; 404 if unknown."""

    async def steer_snapshot(self, name: str, snapshot: str, action: Literal["pause", "resume", "cancel"]) -> None:
        """Pause, resume or cancel one; 404 if unknown, 400 if it has ended. Leader only."""

    async def delete_snapshot(self, name: str, snapshot: str) -> None:
        """Forget a request; 404 if unknown, 400 if it is not a request. Leader only."""

    async def connector_lag(self, name: str) -> dict[str, Any]:
        """How far it is behind: ``{connector, time_behind_s, bytes_behind, tables, heartbeat, position, source_position}``."""

    async def connector_tables(self, name: str) -> list[dict[str, Any]]:
        """Its tables with their versions."""


class TopicReader(Protocol):
    """Topics as connectors use them, and their records."""

    async def redrive(self, name: str, partition: int, offset: int) -> dict[str, Any]:
        """Send a dead letter to the topic that it was read from: ``Redriven``. 400 for connectors that read no topics."""

    async def topic_uses(self) -> dict[str, dict[str, str]]:
        """Topic -> connector -> what it does with it: ``uses``, ``dead letters``."""

    async def read_topic(self, topic: str, connector: str | None, request: Mapping[str, Any]) -> dict[str, Any]:
        """``TopicRecords``: the newest records, decoded with the converters of this connector; 403 for internal topics."""


class Verifications(Protocol):
    """Comparisons of tables with topics."""

    async def start_verification(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to compare a connector's tables with its topics: ``VerifyRun``."""

    async def verification(self, name: str) -> dict[str, Any] | None:
        """``VerifyRun`` of the last one, or None."""

    async def cancel_verification(self, name: str) -> None:
        """End the one that runs, if one does."""

    async def repair_verified(self, name: str) -> dict[str, Any]:
        """Send again the rows that the last one found to be missing or different: the snapshot that does it."""


class Herder(Protocol):
    """The cluster as REST sees it. Every method may raise ``RestError``; none waits for connector code without a deadline.

    Each subject beyond connectors and tasks is an object of its own.
    """

    @property
    def admin(self) -> ClusterAdmin:
        """The worker, its plugins, loggers, health and metrics."""

    @property
    def console(self) -> ConsoleView:
        """The console's view of connectors, workers and rates."""

    @property
    def flows(self) -> FlowPlans:
        """Plans and previews of flows."""

    @property
    def offsets(self) -> ConnectorOffsets:
        """Saved positions of connectors."""

    @property
    def rules(self) -> RuleSets:
        """Rule sets of logs and their versions."""

    @property
    def logs(self) -> LogLines:
        """Lines of connectors for logs, and what their rules make of them."""

    @property
    def savepoints(self) -> JobSavepoints:
        """Savepoints of jobs."""

    @property
    def snapshots(self) -> ConnectorSnapshots:
        """Requests for snapshots, lag and tables of connectors."""

    @property
    def topics(self) -> TopicReader:
        """Topics as connectors use them, and their records."""

    @property
    def verifications(self) -> Verifications:
        """Comparisons of tables with topics."""

    async def connectors(self) -> list[str]:
        """Names of all connectors."""

    async def connector_info(self, name: str) -> dict[str, Any]:
        """``{name, config, tasks: [{connector, task}], type}``; 404 if unknown."""

    async def connector_status(self, name: str) -> dict[str, Any]:
        """``{name, connector: {state, worker_id, trace?, version?}, tasks: [...], type}``."""

    async def task_infos(self, name: str) -> list[dict[str, Any]]:
        """``[{id: {connector, task}, config}]``."""

    async def tasks_config(self, name: str) -> dict[str, dict[str, str]]:
        """``{"NAME-0": {...}}``."""

    async def task_status(self, name: str, task: int) -> dict[str, Any]:
        """``{id, state, worker_id, trace?, version?}``."""

    async def create_connector(self, name: str, config: Mapping[str, str], initial_state: str | None) -> dict[str, Any]:
        """Create; 409 if it exists, 400 with Kafka's text if the configuration is invalid. Leader only."""

    async def put_connector_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, dict[str, Any]]:
        """Create or replace: (created, info). Leader only."""

    async def patch_connector_config(self, name: str, patch: Mapping[str, str | None]) -> dict[str, Any]:
        """KIP-477: null removes a key. Leader only."""

    async def delete_connector(self, name: str) -> None:
        """Delete; 404 if unknown. Leader only."""

    async def restart_connector(self, name: str) -> None:
        """Restart the connector's own instance."""

    async def restart_connector_and_tasks(self, name: str, *, include_tasks: bool, only_failed: bool) -> dict[str, Any]:
        """Restart by plan (KIP-745): the status body with RESTARTING states. Leader only."""

    async def restart_task(self, name: str, task: int) -> None:
        """Restart one task."""

    async def set_target_state(self, name: str, state: str) -> None:
        """STARTED, PAUSED or STOPPED. 404 if unknown. Leader only for the write."""

    async def fence_zombies(self, name: str) -> None:
        """Exactly once: fence the producers of earlier task generations. Internal. Leader only."""

    async def connector_progress(self, name: str) -> dict[str, Any]:
        """How far a connector that moves data itself is: ``{name, type, tasks}``. Answered by the worker that runs it."""
