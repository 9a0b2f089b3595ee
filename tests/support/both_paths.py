"""Compares the fast path (``connectors.wire``) with the general one: the same rows must be the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from worker.converters.simple_header import SimpleHeaderConverter
from worker.host.delivery.convert import Conversion
from worker.host.delivery.convert import split_runs as runs_of
from worker.host.delivery.fast_path import TaskWire, headers_of, parts_of
from worker.transforms.pipeline import build_pipeline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from connectors.api import Batch, Position, SourceRecord
    from connectors.wire import EncodedBatch
    from worker.converters.base import Converter
    from worker.host.delivery.chunk import Headers
    from worker.host.delivery.convert import Refused
    from worker.transforms.pipeline import TransformError


class Delivered(NamedTuple):
    """One record as it would get into Kafka, with its position; None for a record whose position only its batch tells.

    ``timestamp`` is the record's own; None for the time at which it is sent.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    position: Position | None
    timestamp: int | None = None


class Paths:
    """The converters of a task, and what they make of records on either path."""

    def __init__(self, key: Converter, value: Converter, transforms: Mapping[str, str] | None = None) -> None:
        self.header = SimpleHeaderConverter({})
        self.pipeline = build_pipeline(transforms or {})
        self.wire = TaskWire(self.pipeline, key, value, self.header, verify=False)
        self._conversion = Conversion(key, value, self.header, self._once)
        self.refused: list[Refused] = []
        self.problems: list[tuple[int, TransformError]] = []

    @staticmethod
    async def _once(call: Callable[[], Awaitable[None]]) -> None:
        await call()

    async def convert(self, records: Sequence[SourceRecord]) -> list[Delivered]:
        """Records as the general path delivers them; those that are refused are in ``refused`` or ``problems``."""
        delivered: list[Delivered] = []
        results, self.problems = self.pipeline.apply_many(records)
        records = [record for record in results if record is not None]
        for run in runs_of(records) if records else ():
            converted = await self._conversion.convert(run, self.refused)
            if converted is None:
                continue
            count = len(converted.values)
            delivered += [
                Delivered(converted.topic, key, value, headers, record.source_offset, timestamp)
                for record, key, value, headers, timestamp in zip(
                    converted.records,
                    converted.keys or [None] * count,
                    converted.values,
                    converted.headers or [[]] * count,
                    converted.timestamps or [None] * count,
                    strict=True,
                )
            ]
        return delivered

    def encoded(self, part: EncodedBatch, *, positions: bool = True) -> list[Delivered]:
        """Encoded records as they are delivered, with the positions that ``records`` tells."""
        records = part.records() if positions else None
        nulls: list[None] = [None] * len(part.values)
        return [
            Delivered(
                part.writer.topic,
                key,
                value,
                headers_of(part),
                records[index].source_offset if records else None,
                timestamp,
            )
            for index, (key, value, timestamp) in enumerate(
                zip(part.keys or nulls, part.values, part.timestamps or nulls, strict=True)
            )
        ]

    async def deliver(self, batch: Batch) -> list[Delivered]:
        """All of a batch, in order."""
        delivered: list[Delivered] = []
        for part in parts_of(batch):
            delivered += await self.convert(part) if isinstance(part, list | tuple) else self.encoded(part)  # type: ignore[arg-type]
        return delivered


def by_topic(delivered: Sequence[Delivered]) -> dict[str, list[Delivered]]:
    """Records of each topic in order: Kafka has none between topics."""
    topics: dict[str, list[Delivered]] = {}
    for record in delivered:
        topics.setdefault(record.topic, []).append(record)
    return topics
