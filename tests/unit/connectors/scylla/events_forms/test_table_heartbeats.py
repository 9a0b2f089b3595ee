"""Heartbeats in the topics of tables: each promise once, in every partition, with the task's part."""

from __future__ import annotations

from connectors.api import EVERY_PARTITION, Header
from connectors.cql.types import CqlType
from connectors.formats.table_heartbeats import HEADER
from connectors.schema import STRING
from connectors.scylla.events.table_heartbeats import ScyllaTableHeartbeats
from connectors.scylla.model import CdcOptions, ScyllaColumn, TableId, TableVersion

TABLE = TableId("shop", "orders")
AT = ({"keyspace_name": "shop"}, {"window": 1})


def test_a_promise_is_made_once_and_grows() -> None:
    beats = ScyllaTableHeartbeats("p", {str(TABLE): "0/2"})
    version = TableVersion(TABLE, (ScyllaColumn("pk", CqlType("int"), "partition_key", 0),), CdcOptions(), "v1")
    (record,) = beats.promise(version, 1_700_000_000_123, AT)
    assert (record.topic, record.key, record.value, record.partition) == ("p.shop.orders", None, None, EVERY_PARTITION)
    assert record.headers == (Header(HEADER, "1700000000123000 0/2", STRING),)
    assert (record.source_partition, record.source_offset) == AT
    assert beats.promise(version, 1_700_000_000_123, AT) == []
    assert beats.promise(version, 1_600_000_000_000, AT) == []
    assert len(beats.promise(version, 1_700_000_000_124, AT)) == 1
