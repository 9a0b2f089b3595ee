"""Cases for Debezium's CloudEventsConverter: events in the form of our connectors."""

from __future__ import annotations

import json
from typing import Any

from connectors.mysql.events.envelope import SNAPSHOT, SOURCES, TRANSACTION
from tests.conformance.converters.cases import Spec, decimal_schema
from tests.conformance.converters.spelling import spec_of

CONFIGS: tuple[dict[str, str], ...] = (
    {},
    {"json.schemas.enable": "false"},
    {"json.schemas.enable": "false", "json.decimal.format": "NUMERIC"},
    {"extension.attributes.enable": "false", "json.schemas.enable": "false"},
    {"schema.cloudevents.name": "my.Event", "schema.name.adjustment.mode": "none"},
)
HEADER_CONFIGS: tuple[dict[str, str], ...] = (
    {"metadata.source": "value,id:header,type:header", "json.schemas.enable": "false"},
    {"opentelemetry.tracing.attributes.enable": "true", "json.schemas.enable": "false"},
    {"opentelemetry.tracing.attributes.enable": "true"},
    {
        "metadata.source": "value,id:generate,type:generate,dataSchemaName:header",
        "schema.data.name.source.header.enable": "true",
    },
    {"metadata.source": "header", "json.schemas.enable": "false"},
    {"metadata.source": "header,id:generate,type:generate", "schema.data.name.source.header.enable": "true"},
)


def _row() -> Spec:
    return {
        "type": "struct",
        "name": "shop.db.orders.Value",
        "optional": True,
        "fields": [
            ["id", {"type": "int64"}],
            ["note", {"type": "string", "optional": True}],
            ["price", decimal_schema(2)],
        ],
    }


def _source(connector: str, **more: Any) -> dict[str, Any]:
    return {
        "version": "0.1.0",
        "connector": connector,
        "name": "shop",
        "ts_ms": 1700000000123,
        "snapshot": "false",
        "db": "db",
        "table": "orders",
        "server_id": 1,
        "file": "binlog.000001",
        "pos": 4711,
        "row": 0,
        **more,
    }


def _envelope(connector: str) -> Spec:
    return {
        "type": "struct",
        "name": "shop.db.orders.Envelope",
        "version": 2,
        "fields": [
            ["before", _row()],
            ["after", _row()],
            ["source", spec_of(SOURCES[connector])],
            ["transaction", spec_of(TRANSACTION)],
            ["op", {"type": "string"}],
            ["ts_ms", {"type": "int64", "optional": True}],
            ["ts_us", {"type": "int64", "optional": True}],
            ["ts_ns", {"type": "int64", "optional": True}],
        ],
    }


def _events(connector: str) -> list[dict[str, Any]]:
    row = {"id": 7, "note": "ü😀\x1f", "price": ["1250", 2]}
    return [
        {"after": row, "source": _source(connector), "op": "c", "ts_ms": 1700000000200},
        {
            "before": row,
            "after": {**row, "note": None},
            "op": "u",
            "source": _source(
                connector,
                gtid="uuid:1-5",
                thread=9,
                query="UPDATE x",
                ts_ms=1700000000000,
                ts_us=1700000000000123,
                snapshot=None,
            ),
            "transaction": {"id": "tx-1", "total_order": 3, "data_collection_order": 1},
        },
        {"before": row, "source": _source(connector, ts_ms=-1, snapshot="last"), "op": "d", "ts_ms": 5},
        {"after": row, "source": _source(connector, db="", table=None), "op": "r"},
    ]


def _headers(connector: str, *, complete: bool) -> list[list[str]]:
    text = {"type": "string", "optional": False}
    source = {
        "type": "struct",
        "optional": False,
        "name": "Source",
        "fields": [
            {**text, "field": "connector"},
            {**text, "field": "name"},
            {"type": "int64", "optional": False, "field": "ts_ms"},
            {**text, "field": "db"},
            {**text, "field": "file"},
            {"type": "int64", "optional": False, "field": "pos"},
        ],
    }
    block = {"connector": connector, "name": "other", "ts_ms": 1600000000001, "db": "x", "file": "f", "pos": 1}
    listed: list[tuple[str, Any, Any]] = [
        ("id", text, "own-id"),
        ("type", text, "own.type"),
        ("op", text, "c"),
        ("dataSchemaName", text, "own.Name"),
    ]
    if complete:
        listed += [
            ("source", source, block),
            ("traceparent", text, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("id", text, "last-id"),
        ]
    return [[name, json.dumps({"schema": schema, "payload": value})] for name, schema, value in listed]


def cloudevents_cases() -> list[Spec]:
    """Requests for CloudEventsConverter.fromConnectData: JSON in JSON; with Avro, Java needs a registry."""
    cases: list[Spec] = []

    def add(config: dict[str, str], schema: Spec | None, value: Any, headers: list[list[str]]) -> None:
        cases.append({"op": "cloudevents", "config": config, "schema": schema, "value": value, "headers": headers})

    for connector in ("mysql", "mariadb"):
        for config in CONFIGS:
            for value in _events(connector):
                add(config, _envelope(connector), value, [])
        for config in HEADER_CONFIGS:
            for complete in (True, False):
                for value in _events(connector)[:2]:
                    add(config, _envelope(connector), value, _headers(connector, complete=complete))
    plain: Spec = {
        "type": "struct",
        "name": "io.debezium.connector.common.Heartbeat",
        "fields": [["ts_ms", {"type": "int64"}]],
    }
    for config in (CONFIGS[0], HEADER_CONFIGS[4]):
        add(config, plain, {"ts_ms": 5}, [])
        add(config, plain, {"ts_ms": 5}, _headers("mysql", complete=True))
        add(config, None, None, [])
    add({}, _envelope("mysql"), {**_events("mysql")[0], "source": _source("other")}, [])
    assert SNAPSHOT.default == "false"
    return cases
