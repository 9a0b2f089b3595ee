"""Definitions that a run looks up for its log, while the nodes learn of a change one after the other."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from connectors.cassandra.config.settings import CONFIG
from connectors.cassandra.connector import CassandraConnector
from connectors.cassandra.run.definitions import RunDefinitions
from connectors.cassandra.schema.catalog import id_bytes
from connectors.cassandra.stream import Missing
from connectors.testing.contexts import LogCapture, RecordedMetrics, make_logger
from tests.unit.connectors.cassandra.catalog_world import Schema

TABLE_ID = str(uuid.UUID(int=(7 << 64) + 7, version=1))
TIME_NS = time.time_ns
COLUMNS = {"pk": "int", "v": "text"}


class SpreadingSchema(Schema):
    """The node that answers is behind: it knows that others have a newer schema, and gets it after some looks."""

    def __init__(self) -> None:
        super().__init__()
        #: Looks at versions until the change is known here; None: there is no change.
        self.looks_left: int | None = None
        self.cdc = False

    def spread(self, looks: int) -> None:
        """A change of cdc of the table is known to the other nodes from now on, and here after some looks."""
        self.peers, self.looks_left = ["v2", "v2"], looks

    async def query(self, text: str, parameters: Any = (), **more: Any) -> list[dict[str, Any]]:
        if text.endswith("system.local") and self.looks_left is not None:
            self.looks_left -= 1
            if self.looks_left < 0:
                self.version("v2")
                self.add("ks", "t", TABLE_ID, COLUMNS, cdc=True)
        return await super().query(text, parameters, **more)


class Stream:
    """As much of a stream as definitions know."""

    def __init__(self) -> None:
        self.sure = False
        self.lost: list[Missing] = []

    def changed(self, ids: set[str]) -> None:
        del ids

    def give_up(self, missing: Missing, *, old: bool = False, by_table: bool = False) -> None:
        del old, by_table
        self.lost.append(missing)


@pytest.fixture
def schema(monkeypatch: pytest.MonkeyPatch) -> SpreadingSchema:
    monkeypatch.setattr("connectors.cassandra.run.definitions._PAUSE_S", 0)
    return SpreadingSchema()


async def definitions_of(schema: SpreadingSchema) -> RunDefinitions:
    raw = {"topic.prefix": "p", "cassandra.hosts": "here", "cdc.raw.directories": "/there"}
    definitions = RunDefinitions(
        CONFIG.parse(raw), "local", RecordedMetrics(CassandraConnector.metrics), make_logger("c", LogCapture())
    )
    definitions.session = definitions.catalog.session = schema  # type: ignore[assignment]
    await definitions.refresh()
    return definitions


async def test_a_table_without_cdc_is_not_sure_while_nodes_learn_of_a_change(schema: SpreadingSchema) -> None:
    """The log has changes that were written with cdc, and the node that is asked does not know of cdc yet."""
    schema.add("ks", "t", TABLE_ID, COLUMNS, cdc=False)
    definitions, stream = await definitions_of(schema), Stream()
    before_ms = definitions.sure_ms
    schema.spread(9)
    await definitions.follow()
    assert definitions.sure_ms == before_ms
    await definitions.make_sure(stream)  # type: ignore[arg-type]
    table = definitions.catalog.by_id(id_bytes(TABLE_ID))
    assert stream.sure
    assert table is not None
    assert definitions.catalog.captured(table)


async def test_a_table_that_is_not_known_is_not_given_up_while_nodes_learn_of_a_change(schema: SpreadingSchema) -> None:
    definitions, stream = await definitions_of(schema), Stream()
    schema.spread(30)
    await definitions.find(stream, Missing(id_bytes(TABLE_ID), None, None), None, 0)  # type: ignore[arg-type]
    assert not stream.lost
    assert definitions.catalog.by_id(id_bytes(TABLE_ID)) is not None


async def test_nodes_that_disagree_for_long_are_not_waited_for(
    schema: SpreadingSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is down has an old schema as long as it is down."""
    schema.add("ks", "t", TABLE_ID, COLUMNS, cdc=False)
    definitions, stream = await definitions_of(schema), Stream()
    schema.peers = ["v2", "v2"]
    await definitions.follow()
    monkeypatch.setattr("connectors.cassandra.schema.catalog._SPREAD_MS", 0)
    await definitions.make_sure(stream)  # type: ignore[arg-type]
    assert stream.sure


async def test_a_clock_that_was_ahead_makes_no_later_change_sure(
    schema: SpreadingSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    definitions = await definitions_of(schema)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: TIME_NS() + 3_600 * 10**9)
        await definitions.follow()
    await definitions.follow()
    assert definitions.sure_ms <= TIME_NS() // 1_000_000


async def test_a_new_table_whose_entry_seems_old_is_looked_for(schema: SpreadingSchema) -> None:
    """The clock of the machine with the log is behind: the directory is mounted."""
    definitions, stream = await definitions_of(schema), Stream()
    schema.version("v2")
    schema.add("ks", "t", TABLE_ID, COLUMNS)
    missing, written_ms = Missing(id_bytes(TABLE_ID), None, None), TIME_NS() // 1_000_000 - 60_000
    await definitions.find(stream, missing, None, written_ms)  # type: ignore[arg-type]
    assert not stream.lost
    schema.drop("ks", "t")
    asked = schema.asked
    gone = Missing(uuid.uuid1().bytes, None, None)
    await definitions.find(stream, gone, None, written_ms)  # type: ignore[arg-type]
    assert stream.lost == [gone]
    assert schema.asked == asked, "the schema has not changed since"
