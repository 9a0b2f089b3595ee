"""Traces of batches in a real worker, taken by a receiver of OpenTelemetry's protocol, and named in the records' headers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer

from tests.support.eventually import eventually, patience
from tests.support.otlp_receiver import OtlpReceiver

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.worker import MillraceWorker


async def traceparents(bootstrap: str, topic: str, count: int) -> list[str]:
    """The header of each record of a topic; empty for none."""
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        parents: list[str] = []
        async with patience(30):
            while len(parents) < count:
                record = await anext(consumer)
                headers = dict(record.headers)
                assert list(headers) in ([], ["traceparent"])
                parents.append(headers.get("traceparent", b"").decode())
        return parents


def test_batches_are_traced_from_the_source_to_kafka(
    millrace: Callable[..., MillraceWorker], bootstrap: str, unique: Callable[[str], str]
) -> None:
    name = unique("traced")
    with OtlpReceiver() as receiver:
        worker = millrace(
            properties={
                "otel.traces.endpoint": receiver.endpoint,
                "otel.traces.sample.ratio": "1",
                "otel.service.name": "shop-cdc",
                "offset.flush.interval.ms": "300",
            }
        )
        worker.create(
            name,
            {
                "connector.class": "datagen",
                "topic": name,
                "records": 300,
                "rate": "1000000",
                "batch.size": 100,
                "transforms": "t",
                "transforms.t.type": "org.apache.kafka.connect.transforms.InsertField$Value",
                "transforms.t.static.field": "x",
                "transforms.t.static.value": "y",
            },
        )
        headers = asyncio.run(traceparents(bootstrap, name, 300))
        produced = {
            (trace, span) for _, trace, span, sampled in (header.split("-") for header in headers) if sampled == "01"
        }
        assert len(produced) >= 2
        eventually(
            lambda: {(span.trace, span.span) for span in receiver.spans if span.name == "produce"} >= produced,
            "every record has its span",
            30,
            every=0.1,
        )
        eventually(
            lambda: sum(span.name == "batch" for span in receiver.spans) >= len(produced),
            "every batch has its span",
            30,
            every=0.1,
        )
    spans = {span.span: span for span in receiver.spans}
    for trace, span in produced:
        produce = spans[span]
        batch = spans[produce.parent]
        children = {span.name: span for span in receiver.spans if span.parent == batch.span}
        assert children.keys() == {"poll", "transform", "convert", "produce"}
        assert all(
            child.trace == trace and batch.begin <= child.begin <= child.end <= batch.end for child in children.values()
        )
        assert (
            children["poll"].end <= children["transform"].begin < children["transform"].end <= children["convert"].begin
        )
        assert batch.attributes["millrace.connector"] == name
        assert produce.attributes["messaging.destination.name"] == name
        assert (batch.resource["service.name"], batch.parent, batch.failed) == ("shop-cdc", "", False)
    batches = [span for span in spans.values() if span.name == "batch"]
    assert sum(int(str(span.attributes["messaging.batch.message_count"])) for span in batches) == 300
