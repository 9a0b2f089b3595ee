"""Debezium's transforms over an update of a row of twelve columns: lines of ``tests/bench/transforms.py``."""

from __future__ import annotations

from typing import Any

from tests.conformance.transforms.debezium_events import DEBEZIUM, INT32, INT64, STRING, TIME, Events, case

Json = dict[str, Any]


def lines() -> list[tuple[str, Json, Json, bool, bool]]:
    """Name, configuration, record, whether Java has it, and whether it is also measured over rows that are all different."""
    events = Events(1)
    row: Json = {
        "type": "struct",
        "optional": True,
        "name": "srv.db.users.Value",
        "fields": [
            {**INT32, "field": "id"},
            {**STRING, "optional": True, "field": "name"},
            {**INT64, "field": "total"},
            {"type": "int64", "optional": True, "name": TIME + "MicroTimestamp", "version": 1, "field": "created"},
            *({**STRING, "optional": True, "field": f"c{number}"} for number in range(8)),
        ],
    }
    values = [
        ({**kind}, (value,))
        for kind, value in zip(
            row["fields"],
            (2, "customer name here", 123456789012, 1_732_180_000_123_456, *(f"some text {n}" for n in range(8))),
            strict=True,
        )
    ]
    header = {"key": "tenant", "value": {"schema": STRING, "payload": "eu"}}
    update = events.record(events.event(row, values, "users", "u"), topic="srv.shard1.users", headers=[header])
    update["key"] = {
        "schema": {
            "type": "struct",
            "optional": False,
            "name": "srv.db.users.Key",
            "fields": [{**INT32, "field": "id"}],
        },
        "payload": {"id": 2},
    }
    condition = "value.op == 'u' && value.before.id == 2"
    configured: list[tuple[str, str, Json, bool]] = [
        (
            "ByLogicalTableRouter",
            "ByLogicalTableRouter",
            {"topic.regex": r"srv\.(.*)\.(.*)", "topic.replacement": "all.$2"},
            True,
        ),
        (
            "ContentBasedRouter, Groovy",
            "ContentBasedRouter",
            {"language": "jsr223.groovy", "topic.expression": "value.op == 'u' ? 'updates' : null"},
            True,
        ),
        (
            "ContentBasedRouter, CEL",
            "ContentBasedRouter",
            {"language": "cel", "topic.expression": "value.op == 'u' ? 'updates' : null"},
            False,
        ),
        ("EnforceRecordSize", "EnforceRecordSize", {"max.bytes": "1000000"}, False),
        ("ExtractChangedRecordState", "ExtractChangedRecordState", {"header.changed.name": "Changed"}, True),
        ("ExtractNewRecordState", "ExtractNewRecordState", {"add.fields": "op,source.ts_ms"}, True),
        (f"Filter, Groovy: {condition}", "Filter", {"language": "jsr223.groovy", "condition": condition}, True),
        (f"Filter, CEL: {condition}", "Filter", {"language": "cel", "condition": condition}, False),
        (
            "Filter, CEL with a regular expression",
            "Filter",
            {"language": "cel", "condition": "value.after.name.matches('^[a-z]+ name')"},
            False,
        ),
        (
            "Filter, CEL that touches whole rows",
            "Filter",
            {"language": "cel", "condition": "value.before == value.after"},
            False,
        ),
        ("HeaderToValue", "HeaderToValue", {"headers": "tenant", "fields": "tenant", "operation": "copy"}, True),
        (
            "PartitionRouting, java",
            "partitions.PartitionRouting",
            {"partition.payload.fields": "change.id,change.name", "partition.topic.num": "12"},
            True,
        ),
        (
            "PartitionRouting, murmur",
            "partitions.PartitionRouting",
            {
                "partition.payload.fields": "change.id,change.name",
                "partition.topic.num": "12",
                "partition.hash.function": "murmur",
            },
            True,
        ),
        ("TimezoneConverter", "TimezoneConverter", {"converted.timezone": "Europe/Paris"}, True),
    ]
    return [
        (name, case(DEBEZIUM + kind, options, [])["config"], update, java, kind.startswith("partitions."))
        for name, kind, options, java in configured
    ]


def different(update: Json, count: int) -> list[Json]:
    """Updates of as many rows, each with an id and a name of its own."""
    value = update["value"]
    return [
        {
            **update,
            "value": {
                **value,
                "payload": {
                    **value["payload"],
                    "after": {**value["payload"]["after"], "id": number, "name": f"customer name {number}"},
                },
            },
        }
        for number in range(count)
    ]
