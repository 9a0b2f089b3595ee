"""A cluster of one worker without Kafka: enough of a herder to exercise the REST layer's own decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.console.history import PastConfig
from worker.console.pipeline import describe_endpoints
from worker.console.rows import build_row
from worker.rest.facade import NotLeader, RestError
from worker.rest.security.signing import SigningKey

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

STOPPED = "Connectors must be in the STOPPED state before their offsets can be modified."


class MemoryHerder:
    """Keeps connectors in a dictionary; ``leader_url`` other than "" makes it a follower."""

    def __init__(self) -> None:
        self.configs: dict[str, dict[str, str]] = {}
        self.states: dict[str, str] = {}
        self.kept_offsets: dict[str, list[dict[str, Any]]] = {}
        self.requests: dict[str, list[dict[str, Any]]] = {}
        self.kept_topics: dict[str, list[str]] = {}
        self.levels: dict[str, dict[str, Any]] = {"root": {"level": "INFO", "last_modified": None}}
        #: What was asked of a topic last.
        self.asked: dict[str, Any] = {}
        self.task_configs: dict[str, list[Mapping[str, str]]] = {}
        self.fenced: list[str] = []
        self.kept_rules: dict[str, list[Any]] = {}
        self.kept_verifications: dict[str, dict[str, Any]] = {}
        self.is_ready = True
        self.leader_url: str | None = ""
        self.health_answer: tuple[bool, str] = (True, "")
        self.key: SigningKey | None = SigningKey(b"k" * 32)
        self.keys_asked = 0
        self.hang: asyncio.Event | None = None
        self.error: Exception | None = None
        self.calls: list[tuple[Any, ...]] = []
        # One object answers for all subjects.
        self.admin = self.console = self.flows = self.logs = self.offsets = self.rules = self
        self.savepoints = self.snapshots = self.topics = self.verifications = self

    def root(self) -> dict[str, Any]:
        return {"version": "0.1.0", "commit": "unknown", "kafka_cluster_id": "memory"}

    def ready(self) -> bool:
        return self.is_ready

    def session_key(self) -> SigningKey | None:
        self.keys_asked += 1
        return self.key

    def signature_algorithms(self) -> Sequence[str]:
        return ["HmacSHA256"]

    async def put_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        self.lead()
        self.task_configs[name] = list(configs)

    async def fence_zombies(self, name: str) -> None:
        self.lead()
        self.fenced.append(name)

    def lead(self) -> None:
        if self.leader_url != "":
            raise NotLeader(self.leader_url)

    def require_connector(self, name: str) -> None:
        if name not in self.configs:
            raise RestError(404, f"Connector {name} not found")

    async def connectors(self) -> list[str]:
        if self.error is not None:
            raise self.error
        if self.hang is not None:
            await self.hang.wait()
        return list(self.configs)

    async def connector_rows(self) -> list[dict[str, Any]]:
        return [
            build_row(name, config, "source", None, [None], (1.5, None))
            for name, config in sorted(self.configs.items())
        ]

    async def pipeline(self) -> dict[str, Any]:
        worker = {"worker_id": "w:1", "leader": True, "draining": False, "hosts": 2, "started_ms": 1, "labels": {}}
        connectors = [
            describe_endpoints(name, config, "source", ["t"]) for name, config in sorted(self.configs.items())
        ]
        return {"workers": [{**worker, "connectors": len(connectors), "tasks": 0}], "connectors": connectors}

    async def topic_uses(self) -> dict[str, dict[str, str]]:
        return {f"of-{name}": {name: "uses"} for name in sorted(self.configs)}

    async def read_topic(self, topic: str, connector: str | None, request: Mapping[str, Any]) -> dict[str, Any]:
        if not topic.startswith("of-"):
            raise RestError(404, f"There is no topic {topic}")
        self.asked = {"topic": topic, "connector": connector, **request}
        return {
            "topic": topic,
            "records": [],
            "before": None,
            "partitions": {"0": {"first": 0, "end": 0}},
            "scanned": 0,
            "bytes": 0,
            "stopped": "",
            "errors": 0,
            "error": "",
            "problems": [],
        }

    async def config_history(self, name: str) -> list[PastConfig]:
        self.require_connector(name)
        return [
            PastConfig(name, 2, {**self.configs[name], "password": "new"}, 1),
            PastConfig(name, 1, {"password": "old"}, 1),
        ]

    async def redrive(self, name: str, partition: int, offset: int) -> dict[str, Any]:
        self.require_connector(name)
        return {"topic": "t", "partition": partition, "offset": offset}

    def me(self) -> str:
        return "w:1"

    def numbers(self) -> tuple[dict[Any, tuple[int, str, float]], float, int, float]:
        return dict.fromkeys(self.configs, (5, "RUNNING", 20.0)), 1.0, 1 << 20, 0.001

    async def from_workers(self, path: str) -> dict[str, Any]:
        del path
        return {"w:2": []}

    def own_rates(self) -> dict[str, tuple[float, float | None]]:
        return dict.fromkeys(self.configs, (1.5, None))

    async def connector_info(self, name: str) -> dict[str, Any]:
        self.require_connector(name)
        tasks = [{"connector": name, "task": 0}] if self.states[name] == "RUNNING" else []
        return {"name": name, "config": self.configs[name], "tasks": tasks, "type": "source"}

    async def connector_status(self, name: str) -> dict[str, Any]:
        if name not in self.configs:
            raise RestError(404, f"No status found for connector {name}")
        where = {"state": self.states[name], "worker_id": "127.0.0.1:8083", "version": "1"}
        tasks = [{"id": 0, **where}] if self.states[name] == "RUNNING" else []
        return {"name": name, "connector": where, "tasks": tasks, "type": "source"}

    async def task_infos(self, name: str) -> list[dict[str, Any]]:
        self.require_connector(name)
        return [{"id": {"connector": name, "task": 0}, "config": self.configs[name]}]

    async def tasks_config(self, name: str) -> dict[str, dict[str, str]]:
        self.require_connector(name)
        return {f"{name}-0": self.configs[name]}

    async def task_status(self, name: str, task: int) -> dict[str, Any]:
        if name not in self.configs or task != 0:
            raise RestError(404, f"No status found for task {name}-{task}")
        return {"id": 0, "state": self.states[name], "worker_id": "127.0.0.1:8083"}

    async def create_connector(self, name: str, config: Mapping[str, str], initial_state: str | None) -> dict[str, Any]:
        self.lead()
        self.calls.append(("create", name, dict(config), initial_state))
        if name in self.configs:
            raise RestError(409, f"Connector {name} already exists")
        self.configs[name] = dict(config)
        self.states[name] = initial_state or "RUNNING"
        return {"name": name, "config": dict(config), "tasks": [], "type": "source"}

    async def put_connector_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, dict[str, Any]]:
        self.lead()
        created = name not in self.configs
        self.configs[name] = dict(config)
        self.states.setdefault(name, "RUNNING")
        return created, await self.connector_info(name)

    async def patch_connector_config(self, name: str, patch: Mapping[str, str | None]) -> dict[str, Any]:
        self.lead()
        self.require_connector(name)
        merged = {**self.configs[name], **patch}
        self.configs[name] = {key: value for key, value in merged.items() if value is not None}
        return await self.connector_info(name)

    async def delete_connector(self, name: str) -> None:
        self.lead()
        self.require_connector(name)
        del self.configs[name], self.states[name]

    async def restart_connector(self, name: str) -> None:
        self.calls.append(("restart", name))
        if name not in self.configs:
            raise RestError(404, f"Unknown connector: {name}")

    async def restart_connector_and_tasks(self, name: str, *, include_tasks: bool, only_failed: bool) -> dict[str, Any]:
        self.lead()
        self.calls.append(("restart", name, include_tasks, only_failed))
        return await self.connector_status(name)

    async def restart_task(self, name: str, task: int) -> None:
        self.calls.append(("restart task", name, task))
        if task != 0:
            raise RestError(404, f"Unknown task: {name}-{task}")

    async def set_target_state(self, name: str, state: str) -> None:
        if name not in self.configs:
            raise RestError(404, f"Unknown connector {name}")
        self.states[name] = "RUNNING" if state == "STARTED" else state

    async def connector_offsets(self, name: str) -> list[dict[str, Any]]:
        self.require_connector(name)
        return self.kept_offsets.get(name, [])

    async def alter_connector_offsets(
        self, name: str, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> str:
        self.lead()
        self.require_connector(name)
        if self.states[name] != "STOPPED":
            raise RestError(400, STOPPED)
        self.kept_offsets[name] = [
            {"partition": dict(partition), "offset": dict(offset)}
            for partition, offset in offsets
            if offset is not None
        ]
        return "The offsets for this connector have been altered successfully"

    async def reset_connector_offsets(self, name: str) -> str:
        self.lead()
        self.require_connector(name)
        self.kept_offsets.pop(name, None)
        return "The offsets for this connector have been reset successfully"

    async def connector_topics(self, name: str) -> list[str]:
        return self.kept_topics.get(name, [])

    async def reset_connector_topics(self, name: str) -> None:
        self.kept_topics.pop(name, None)

    async def plugins(self, *, connectors_only: bool) -> list[dict[str, Any]]:
        rows = [{"class": "a.B", "type": "source", "version": "1"}]
        return rows if connectors_only else [*rows, {"class": "c.D", "type": "converter", "version": "1"}]

    async def plugin_config(self, plugin: str, version: str | None) -> list[dict[str, Any]]:
        if plugin != "B":
            raise RestError(404, f"Unknown plugin {plugin}.")
        return [{"name": "x", "type": "PASSWORD", "version": version}]

    async def validate(self, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
        self.calls.append(("validate", plugin, dict(config)))
        value: dict[str, Any] = {"name": "topic", "value": config.get("topic"), "recommended_values": [], "errors": []}
        return {
            "name": config["connector.class"],
            "error_count": 0,
            "groups": [],
            "configs": [{"definition": {}, "value": {**value, "visible": True}}],
        }

    async def source_tables(self, config: Mapping[str, str]) -> dict[str, Any]:
        self.calls.append(("source_tables", dict(config)))
        return {"option": "table.include.list", "patterns": True, "tables": ["shop.orders"]}

    async def config_providers(self) -> list[str]:
        return ["file"]

    async def plan_flow(self, config: Mapping[str, str]) -> dict[str, Any]:
        self.calls.append(("plan_flow", dict(config)))
        return {"name": config.get("name", ""), "valid": True, "errors": []}

    async def preview_flow(self, config: Mapping[str, str], request: Mapping[str, Any]) -> dict[str, Any]:
        self.calls.append(("preview_flow", dict(config), dict(request)))
        return {"name": config.get("name", ""), "inputs": [], "steps": [], "warnings": []}

    async def start_verification(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        self.require_connector(name)
        if self.kept_verifications.get(name, {}).get("state") == "running":
            raise RestError(409, f"A verification of connector {name} runs already")
        self.kept_verifications[name] = {
            "state": "running",
            "started_ms": 1,
            "ended_ms": None,
            "tables": request["tables"],
            "progress": "",
            "error": None,
        }
        return self.kept_verifications[name]

    async def verification(self, name: str) -> dict[str, Any] | None:
        self.require_connector(name)
        done = {"state": "completed", "started_ms": 1, "ended_ms": 2, "tables": "", "progress": "", "error": None}
        return self.kept_verifications.get(name, done)

    async def cancel_verification(self, name: str) -> None:
        self.require_connector(name)
        self.kept_verifications.pop(name, None)

    async def repair_verified(self, name: str) -> dict[str, Any]:
        return await self.create_snapshot(name, {"tables": ["t"], "priority": 1})

    async def loggers(self) -> dict[str, dict[str, Any]]:
        return self.levels

    async def logger(self, name: str) -> dict[str, Any]:
        if name not in self.levels:
            raise RestError(404, f"Logger {name} not found.")
        return self.levels[name]

    async def send_log_level(self, leader_url: str | None, name: str, level: str) -> list[str]:
        raise NotImplementedError((leader_url, name, level))

    async def set_cluster_level(self, name: str, level: str) -> None:
        await self.set_log_level(name, level, cluster=True)

    async def set_log_level(self, name: str, level: str, *, cluster: bool) -> list[str]:
        if cluster:
            self.lead()
        self.calls.append(("level", name, level, cluster))
        self.levels[name] = {"level": level, "last_modified": 1}
        return [name]

    async def explain(self, name: str) -> dict[str, Any]:
        self.require_connector(name)
        return {"name": name, "tasks": []}

    async def connector_progress(self, name: str) -> dict[str, Any]:
        self.require_connector(name)
        return {"name": name, "type": "sink", "tasks": []}

    async def create_savepoint(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        self.require_connector(name)
        self.calls.append(("savepoint", name, dict(request)))
        return {"name": request["name"], "location": "/savepoints", "stop": request.get("stop", False)}

    async def list_savepoints(self, name: str) -> list[dict[str, Any]]:
        self.require_connector(name)
        return [{"name": "s", "location": "/savepoints/s", "batch": 3}]

    async def delete_savepoint(self, name: str, savepoint: str) -> None:
        self.require_connector(name)
        if savepoint != "s":
            raise RestError(404, f"Savepoint {savepoint} of connector {name} not found")

    async def unknown_lines(self, name: str, lines: int) -> dict[str, Any]:
        self.require_connector(name)
        self.calls.append(("unknown", name, lines))
        lines_read = [{"line": f"job {number} took={number}ms", "origin": {"host": "web-1"}} for number in (1, 2)]
        steps = [{"table": "t", "group": "g", "step": 1, "operator": "grok", "lines": 2, "reason": "no match"}]
        return {
            "topic": "logs.unknown_table",
            "unreadable": 0,
            "replayed": 0,
            "first_ms": 1,
            "last_ms": 2,
            "failures": steps,
            "lines": lines_read,
        }

    async def recent_lines(self, name: str, lines: int) -> list[dict[str, Any]]:
        self.require_connector(name)
        self.calls.append(("recent", name, lines))
        return [{"line": "10.0.0.1 GET /", "origin": {"host": "web-1", "file": "/log", "position": 7, "timestamp": 1}}]

    async def rule_conflicts(self, name: str, rules: Any) -> tuple[list[str], list[str]]:
        self.require_connector(name)
        self.calls.append(("conflicts", name, rules))
        return ["table requests: no"], ["it has transforms"]

    async def rule_sets(self) -> list[dict[str, Any]]:
        return [await self.rule_set(name) for name in self.kept_rules]

    async def rule_set(self, name: str) -> dict[str, Any]:
        newest = await self.rule_version(name, len(self.kept_rules.get(name, ())))
        return {**newest, "versions": len(self.kept_rules[name]), "connectors": {}}

    async def rule_versions(self, name: str) -> list[dict[str, Any]]:
        return [await self.rule_version(name, number) for number in range(len(self.kept_rules.get(name, ())), 0, -1)]

    async def rule_version(self, name: str, version: int) -> dict[str, Any]:
        if not 0 < version <= len(self.kept_rules.get(name, ())):
            raise RestError(404, f"no version {version} of {name}")
        rules = self.kept_rules[name][version - 1]
        return {"name": name, "version": version, "created_ms": 1, "forced": False, "comment": "", "rules": rules}

    async def put_rules(self, name: str, rules: Any, *, force: bool, comment: str) -> tuple[bool, dict[str, Any]]:
        self.lead()
        self.calls.append(("rules", name, force, comment))
        self.kept_rules.setdefault(name, []).append(rules)
        return len(self.kept_rules[name]) == 1, await self.rule_set(name)

    async def delete_rules(self, name: str) -> None:
        self.lead()
        await self.rule_set(name)
        del self.kept_rules[name]

    async def create_snapshot(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        self.lead()
        self.require_connector(name)
        self.calls.append(("snapshot", name, dict(request)))
        row = {"id": f"s {len(self.calls)}", **request, "state": "running"}
        self.requests.setdefault(name, []).append(row)
        return row

    async def list_snapshots(self, name: str) -> list[dict[str, Any]]:
        self.require_connector(name)
        return self.requests.get(name, [])

    async def snapshot(self, name: str, snapshot: str) -> dict[str, Any]:
        self.require_connector(name)
        rows = [row for row in self.requests.get(name, []) if row["id"] == snapshot]
        if not rows:
            raise RestError(404, f"Snapshot {snapshot} of connector {name} not found")
        return rows[0]

    async def steer_snapshot(self, name: str, snapshot: str, action: str) -> None:
        self.lead()
        (await self.snapshot(name, snapshot))["state"] = action

    async def delete_snapshot(self, name: str, snapshot: str) -> None:
        self.lead()
        self.requests[name].remove(await self.snapshot(name, snapshot))

    async def connector_lag(self, name: str) -> dict[str, Any]:
        self.require_connector(name)
        return {"connector": name, "time_behind_s": 1.5}

    async def connector_tables(self, name: str) -> list[dict[str, Any]]:
        self.require_connector(name)
        return [{"table": "a.b", "version": 2}]

    async def plugin_environments(self) -> dict[str, Any]:
        return {"worker_id": "w", "environments": [], "hosts": [], "failures": {}}

    async def refresh_plugins(self) -> dict[str, Any]:
        return await self.plugin_environments()

    async def drain(self) -> dict[str, Any]:
        return {"draining": True, "connectors": [], "tasks": []}

    async def health(self) -> tuple[bool, str]:
        if self.hang is not None:
            await self.hang.wait()
        return self.health_answer

    async def metrics(self) -> bytes:
        return b"# HELP x y\nx 1\n"
