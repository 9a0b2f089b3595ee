"""The conformance kit on the datagen connector: rows of one partition, change events of three in two tasks."""

from collections.abc import Mapping

from connectors.datagen.connector import DatagenConnector
from connectors.testing import WAIVERS, Harness, connector_conformance


class Rows(Harness):
    def config(self) -> Mapping[str, str]:
        return {"topic": "rows", "batch.size": "5", "transaction.size": "10", "fault.bad.every": "7"}

    async def add(self, count: int) -> None:
        """There is always more."""

    async def poison(self) -> None:
        """Every seventh is bad."""


class Changes(Rows):
    max_tasks = 2

    def config(self) -> Mapping[str, str]:
        return {
            "topic": "a,b",
            "partitions": "3",
            "schema": "users",
            "envelope": "debezium",
            "keys": "4",
            "batch.size": "3",
            "record.size": "400",
            "fault.bad.every": "7",
        }


TestRows = connector_conformance(DatagenConnector, harness=Rows, waivers=WAIVERS["datagen"])
TestChanges = connector_conformance(DatagenConnector, harness=Changes, waivers=WAIVERS["datagen"])
