"""The counterpart of ``CaseSource.java``: the same connector and the same transform for Millrace's worker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from connectors.api import Batch, Header, Position, SourceConnector, SourceRecord, SourceTask
from connectors.options import ConfigDef, ConfigKey, ConfigType
from connectors.schema import STRING
from worker.converters.json import JsonConverter
from worker.transforms.base import RecordFunction, Transform, copy_record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

CONVERTER = JsonConverter({"schemas.enable": "true", "replace.null.with.default": "false"})
_END = {"record": -1}


def read(data: Any) -> tuple[Any, Any]:
    """The schema and value that JSON describes."""
    return (None, None) if data is None else CONVERTER.to_connect("t", json.dumps(data).encode())


def record_of(described: dict[str, Any], name: str = "", number: int = 0) -> SourceRecord:
    """The record that JSON describes, as one of the case ``name``."""
    key_schema, key = read(described["key"])
    value_schema, value = read(described["value"])
    headers = []
    for header in described["headers"]:
        schema, content = read(header["value"])
        headers.append(Header(header["key"], content, schema))
    return SourceRecord(
        {"case": name},
        {"record": number},
        described["topic"],
        value,
        value_schema,
        key,
        key_schema,
        described["partition"],
        tuple(headers),
        described["timestamp"],
    )


class CaseTask(SourceTask):
    """Emits the records of one case and writes a file once they are through."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """All records at once, then nothing."""
        name = self.context.config["case"]
        records = [record_of(record, name, number) for number, record in enumerate(json.loads(Path(name).read_bytes()))]
        yield Batch(records, offsets=(({"case": name}, _END),))
        await asyncio.Event().wait()

    async def committed(self, offsets: Sequence[tuple[Position, Position]]) -> None:
        """The end's position is saved only after each record was delivered, dropped or refused."""
        if any(offset == _END for _, offset in offsets):
            Path(f"{self.context.config['case']}.done").touch()


class CaseSource(SourceConnector):
    """One task per case."""

    version: ClassVar[str] = "1"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="case",
                type=ConfigType.STRING,
                doc="File with the records; the same name with .done says that all of them are through.",
            ),
        ]
    )
    task_class: ClassVar[type[SourceTask]] = CaseTask
    aliases: ClassVar[tuple[str, ...]] = ("CaseSource",)

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The one task."""
        del max_tasks
        return [{}]


class Stamp(Transform):
    """Sends records to one topic and tells in a header where they would have gone."""

    version: ClassVar[str] = "1"
    aliases: ClassVar[tuple[str, ...]] = ("CaseSource$Stamp",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(name="topic", type=ConfigType.STRING, doc="Where all records go."),
            ConfigKey(name="case", type=ConfigType.STRING, doc="The case's number."),
        ]
    )

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        topic, name = self.config["topic"], self.config["case"]

        def apply(record: SourceRecord) -> SourceRecord:
            stamp = {
                "case": name,
                "record": record.source_offset["record"],
                "topic": record.topic,
                "partition": record.partition,
                "timestamp": record.timestamp,
            }
            result = copy_record(record)
            result.headers = (*record.headers, Header("stamp", json.dumps(stamp), STRING))
            result.topic, result.partition = topic, 0
            return result

        return apply
