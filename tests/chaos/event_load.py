"""Change events of a seeded load in a topic, and what they make of the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.update_load import Model, changes

if TYPE_CHECKING:
    from tests.support.update_load import Change

_CHANGES: Final = 6_000
PARTITIONS: Final = 2
#: The table's columns, as ``source.table.columns`` has them.
COLUMNS: Final = "pk bigint, ck int, at bigint, flag boolean, n bigint, note string, price double, v string"


def write_events(bootstrap: str, topic: str) -> Model:
    """Write the load's events in Debezium's form, JSON without schemas; returns the table that they make."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    model = Model()
    for number, change in enumerate(changes(_CHANGES, partitions=400), 1):
        event = model.apply(change)
        if event is None:
            continue
        key = {"pk": change.pk, "ck": change.ck}
        value = {
            **event._asdict(),
            "ts_ms": change.write_time // 1000,
            "source": {"db": "shop", "table": "events", "ts_ms": change.write_time // 1000, "ums_id": number},
        }
        producer.produce(topic, json.dumps(value), json.dumps(key), partition=change.pk % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0
    return model


def effective_changes() -> list[tuple[int, Change]]:
    """The changes that cause an event, each with its order number."""
    model = Model()
    return [
        (number, change)
        for number, change in enumerate(changes(_CHANGES, partitions=400), 1)
        if model.apply(change) is not None
    ]
