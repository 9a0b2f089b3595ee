"""A source of structs, of which some can't be converted; for tests of converters in a task host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.api import Batch, SourceConnector, SourceRecord, SourceTask
from connectors.options import ConfigDef, ConfigKey, ConfigType
from connectors.schema import INT32, STRING, struct

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def number(name: str, default: int) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.INT, doc="For tests.", default=default)


class StructTask(SourceTask):
    """Counts; the number is in a struct inside the record."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        config = self.context.config
        first = struct("test.Event", {"row": struct("test.Row", {"n": INT32})})
        changed = struct("test.Event", {"row": struct("test.Row", {"n": STRING})})
        partition = {"source": "0-0"}
        at = (self.context.offsets.get(partition) or {"n": 0})["n"]
        while at < config["end"]:
            stop = min(at + 10, config["end"])
            records = []
            for n in range(at, stop):
                schema = changed if n >= config["change.at"] >= 0 else first
                inner = str(n) if schema is changed else "not a number" if n == config["bad.at"] else n
                value = {"row": {"n": inner}}
                records.append(SourceRecord(partition, {"n": n + 1}, config["topic"], value, value_schema=schema))
            at = stop
            yield Batch(records, (), ((partition, {"n": stop}),), "")


class StructConnector(SourceConnector):
    """One task."""

    version = "1"
    task_class = StructTask
    config_def = ConfigDef(
        [
            ConfigKey(name="topic", type=ConfigType.STRING, doc="For tests."),
            number("end", 30),
            number("bad.at", -1),
            number("change.at", -1),
        ]
    )

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        del max_tasks
        return [{}]
