"""A source that counts, and misbehaves on request; for tests of the task host."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from connectors.api import BadRecord, Batch, SourceConnector, SourceRecord, SourceTask
from connectors.errors import Fatal, Retriable
from connectors.options import ConfigDef, ConfigKey, ConfigType

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence


def key(name: str, kind: ConfigType, default: Any) -> ConfigKey:
    return ConfigKey(name=name, type=kind, doc="For tests.", default=default)


class Marker:
    """Remembers, in a file if there is a name, that something has happened."""

    def __init__(self, name: str) -> None:
        self._name = name

    def first(self) -> bool:
        if not self._name:
            return True
        path = Path(self._name)
        existed = path.exists()
        path.touch()
        return not existed


class CounterTask(SourceTask):
    """Counts 0, 1, 2 ... for each of its source partitions."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        config = self.context.config
        topic, rows, end, width = config["topic"], config["rows"], config["end"], config["sources"]
        partitions = [{"source": f"{self.context.task}-{number}"} for number in range(width)]
        positions = [(self.context.offsets.get(partition) or {"n": 0})["n"] for partition in partitions]
        marker = Marker(config["marker"])
        while min(positions) < end:
            for number, partition in enumerate(partitions):
                start = positions[number]
                stop = min(start + rows, end)
                records = [
                    SourceRecord(
                        partition,
                        {"n": n + 1},
                        topic,
                        {"n": n, "source": number},
                        key=str(n) if config["keys"] else None,
                    )
                    for n in range(start, stop)
                    if not (config["bad.every"] and n % config["bad.every"] == 1)
                ]
                bad = tuple(
                    BadRecord(partition, {"n": n + 1}, ValueError(f"{n} is bad"), raw=b"raw %d" % n, topic=topic)
                    for n in range(start, stop)
                    if config["bad.every"] and n % config["bad.every"] == 1
                )
                if config["unconvertible"] in range(start, stop):
                    records[config["unconvertible"] - start].value = {"n": object()}
                if config["big"] in range(start, stop):
                    records[config["big"] - start].value = {
                        "n": config["big"],
                        "source": number,
                        "fill": "x" * config["size"],
                    }
                await self.misbehave(start, stop, marker)
                positions[number] = stop
                transaction: Any = ""
                if config["commit.every"]:
                    transaction = "commit" if stop // rows % config["commit.every"] == 0 or stop == end else ""
                if config["abort.at"] in range(start, stop):
                    transaction = "abort"
                yield Batch(records, bad, ((partition, {"n": stop}),), transaction, receipt=stop - start)
            if config["pause.ms"]:
                await asyncio.sleep(config["pause.ms"] / 1000)

    async def misbehave(self, start: int, stop: int, marker: Marker) -> None:
        config = self.context.config
        here = range(start, stop)
        if config["away.at"] in here and marker.first():
            raise Retriable("the source is away")
        if config["fail.at"] in here and marker.first():
            raise Fatal(f"it fails at {config['fail.at']}, and the password is {config['password']}")
        if config["block.at"] in here:
            time.sleep(3600)  # noqa: ASYNC251 - what a bad connector does
        if config["stubborn.at"] in here:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
        while config["deaf.at"] in here:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    def delivered(self, receipt: int) -> None:
        self.context.metrics.add("delivered", receipt)

    async def committed(self, offsets: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        for partition, offset in offsets:
            self.context.metrics.set("committed", offset["n"], {"source": partition["source"]})


class CounterConnector(SourceConnector):
    """Starts ``tasks.max`` counters."""

    version = "1.2.3"
    task_class = CounterTask
    metrics: ClassVar = {
        "committed": ("gauge", "the last committed number"),
        "delivered": ("counter", "numbers that Kafka has"),
    }
    config_def = ConfigDef(
        [
            key("topic", ConfigType.STRING, "unset"),
            key("rows", ConfigType.INT, 100),
            key("end", ConfigType.INT, 1000),
            key("sources", ConfigType.INT, 1),
            key("keys", ConfigType.BOOLEAN, False),
            key("bad.every", ConfigType.INT, 0),
            key("unconvertible", ConfigType.INT, -1),
            key("marker", ConfigType.STRING, ""),
            key("away.at", ConfigType.INT, -1),
            key("fail.at", ConfigType.INT, -1),
            key("block.at", ConfigType.INT, -1),
            key("stubborn.at", ConfigType.INT, -1),
            key("deaf.at", ConfigType.INT, -1),
            key("pause.ms", ConfigType.INT, 0),
            key("commit.every", ConfigType.INT, 0),
            key("abort.at", ConfigType.INT, -1),
            key("big", ConfigType.INT, -1),
            key("size", ConfigType.INT, 0),
            key("password", ConfigType.PASSWORD, None),
            key("splits", ConfigType.INT, 0),
            key("watch", ConfigType.INT, 0),
        ]
    )

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        password_config = {"password": self.context.config["password"].value} if self.context.config["password"] else {}
        return [
            {"split": str(number), **password_config} for number in range(self.context.config["splits"] or max_tasks)
        ]

    async def start(self) -> None:
        if self.context.config["watch"]:
            self._watch = asyncio.create_task(self._watch_offsets(self.context.config["watch"]))

    async def stop(self) -> None:
        if self.context.config["watch"]:
            self._watch.cancel()

    async def _watch_offsets(self, target: int) -> None:
        """Ask for a new split once a position has been saved that far."""
        while not any(offset["n"] >= target for _, offset in self.context.offsets.items()):
            await self.context.refresh_offsets()
            await asyncio.sleep(0.05)
        self.context.request_task_reconfiguration()

    @classmethod
    def exactly_once_support(cls, config: Any) -> bool:
        return bool(config["end"])

    @classmethod
    def can_define_transaction_boundaries(cls, config: Any) -> bool:
        return bool(config["commit.every"] or config["abort.at"] >= 0)
