"""A source that does what operators ask: snapshots with a given number of rows, slowly, with progress in its offsets."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, ClassVar

from connectors.api import Batch, SourceConnector, SourceRecord, SourceTask
from connectors.errors import ConfigInvalid, Retriable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from connectors.api import Instruction, Position

_TASK = {"task": "0"}
_INITIAL = {"id": "own", "origin": "initial", "rows": 1_000_000, "state": "running"}


def merged(instructions: Sequence[Instruction]) -> dict[str, dict[str, Any]]:
    """Snapshots by id: the connector's own, and those asked for."""
    snapshots: dict[str, dict[str, Any]] = {"own": dict(_INITIAL)}
    for asked in instructions:
        snapshots[asked["id"]] = {**snapshots.get(asked["id"], {}), **asked}
    return snapshots


class AskedTask(SourceTask):
    """One row of one snapshot at a time, the highest priority first."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.requested: dict[str, dict[str, Any]] = {}
        self.instructed = 0

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        self.requested = merged(instructions)
        self.instructed += 1

    async def batches(self) -> AsyncGenerator[Batch, None]:
        assert self.instructed, "instruct comes before batches"
        incarnation = uuid.uuid4().hex
        saved = {
            partition["snapshot"]: dict(offset)
            for partition, offset in self.context.offsets.items()
            if "snapshot" in partition
        }
        while True:
            await asyncio.sleep(0.02)
            offsets: list[tuple[Position, Position | None]] = [
                (_TASK, {"incarnation": incarnation, "told": self.instructed, "waits": self.context.config["waits"]})
            ]
            offsets += [({"snapshot": gone}, None) for gone in saved.keys() - self.requested.keys()]
            for gone in saved.keys() - self.requested.keys():
                del saved[gone]
            records = []
            for row in self.requested.values():
                state = saved.setdefault(row["id"], {"state": "waiting", "done": 0})
                if state["state"] not in {"completed", "cancelled"} and state["state"] != row["state"]:
                    state["state"] = row["state"]
                    offsets.append(({"snapshot": row["id"]}, dict(state)))
            for row in sorted(self.requested.values(), key=lambda row: -row.get("priority", 0)):
                state = saved[row["id"]]
                if state["state"] == "running":
                    state["done"] += 1
                    if state["done"] == row["rows"]:
                        state["state"] = "completed"
                    records.append(
                        SourceRecord(
                            {"snapshot": row["id"]},
                            dict(state),
                            self.context.config["topic"],
                            {"snapshot": row["id"], "n": state["done"]},
                        )
                    )
                    break
            yield Batch(records, offsets=tuple(offsets))


class AskedConnector(SourceConnector):
    """Knows the tables ``t`` and ``u``."""

    version: ClassVar[str] = "1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(name="topic", type=ConfigType.STRING, doc="Where rows go."),
            ConfigKey(name="waits", type=ConfigType.STRING, doc="For a changed configuration.", default=""),
            ConfigKey(name="away", type=ConfigType.BOOLEAN, doc="Whether the source can't be asked.", default=False),
        ]
    )
    task_class: ClassVar[type[SourceTask]] = AskedTask

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        del max_tasks
        return [{}]

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        del config
        return True

    @classmethod
    def check_snapshot(cls, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
        del config
        unknown = set(request.get("tables", ())) - {"t", "u"}
        if unknown or not request.get("tables"):
            raise ConfigInvalid(f"there are the tables t and u, not {sorted(unknown)}")
        rows = int(request.get("conditions", {}).get("t", "1000000"))
        return {"tables": sorted(request["tables"]), "priority": request.get("priority", 0), "rows": rows}

    @classmethod
    def snapshots(
        cls, config: Config, instructions: Sequence[Instruction], offsets: Sequence[tuple[Position, Position]]
    ) -> list[dict[str, Any]]:
        del config
        saved = {partition["snapshot"]: offset for partition, offset in offsets if "snapshot" in partition}
        rows = []
        for row in merged(instructions).values():
            state = saved.get(row["id"], {"state": "waiting", "done": 0})
            shown = state["state"] if state["state"] in {"completed", "waiting"} else row["state"]
            rows.append(
                {
                    "id": row["id"],
                    "origin": row["origin"],
                    "state": shown,
                    "saved": state["state"],
                    "tables": [{"table": table, "rows_done": state["done"]} for table in row.get("tables", ["t"])],
                }
            )
        return rows

    @classmethod
    async def lag(cls, config: Config, offsets: Sequence[tuple[Position, Position]]) -> dict[str, Any]:
        if config["away"]:
            raise Retriable("the source is away")
        return {
            "time_behind_s": 0.5,
            "bytes_behind": None,
            "tables": [],
            "position": next((offset for partition, offset in offsets if partition == _TASK), None),
        }

    @classmethod
    def tables(cls, config: Config, offsets: Sequence[tuple[Position, Position]]) -> list[dict[str, Any]]:
        del config, offsets
        return [{"table": "t", "version": 1}]
