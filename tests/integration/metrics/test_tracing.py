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
        found: list[str] = []
        async with patience(30):
            while len(found) < count:
                record = await anext(consumer)
                headers = dict(record.headers)
                assert list(headers) in ([], ["traceparent"])
                found.append(headers.get("traceparent", b"").decode())
        return found


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
            (trace, span) for _, trace, span, sampled in (each.split("-") for each in headers) if sampled == "01"
        }
        assert len(produced) >= 2
        eventually(
            lambda: {(each.trace, each.span) for each in receiver.spans if each.name == "produce"} >= produced,
            "every record has its span",
            30,
            every=0.1,
        )
        eventually(
            lambda: sum(each.name == "batch" for each in receiver.spans) >= len(produced),
            "every batch has its span",
            30,
            every=0.1,
        )
    spans = {each.span: each for each in receiver.spans}
    for trace, span in produced:
        produce = spans[span]
        batch = spans[produce.parent]
        children = {each.name: each for each in receiver.spans if each.parent == batch.span}
        assert children.keys() == {"poll", "transform", "convert", "produce"}
        assert all(
            each.trace == trace and batch.begin <= each.begin <= each.end <= batch.end for each in children.values()
        )
        assert (
            children["poll"].end <= children["transform"].begin < children["transform"].end <= children["convert"].begin
        )
        assert batch.attributes["millrace.connector"] == name
        assert produce.attributes["messaging.destination.name"] == name
        assert (batch.resource["service.name"], batch.parent, batch.failed) == ("shop-cdc", "", False)
    batches = [each for each in spans.values() if each.name == "batch"]
    assert sum(int(str(each.attributes["messaging.batch.message_count"])) for each in batches) == 300
