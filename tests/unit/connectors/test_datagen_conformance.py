"""The conformance kit on the datagen connector: rows of one partition, change events of three in two tasks."""
from collections.abc import Mapping

from connectors.datagen.connector import DatagenConnector
from connectors.testing import Harness, connector_conformance

NO_SOURCE = {
    "survives_a_schema_change": "the schema is the configuration's and does not change while a task runs",
    "survives_an_outage_of_its_source": "there is no source that could be away",
}


class Rows(Harness):
    def config(self) -> Mapping[str, str]:
        return {"topic": "rows", "batch.size": "5", "transaction.size": "10"}

    async def add(self, count: int) -> None:
        """There is always more."""


class BadRows(Rows):
    def config(self) -> Mapping[str, str]:
        return {**super().config(), "fault.bad.every": "7"}

    async def poison(self) -> None:
        """Every seventh is bad."""


class Changes(Rows):
    max_tasks = 2

    def config(self) -> Mapping[str, str]:
        return {"topic": "a,b", "partitions": "3", "schema": "users", "envelope": "debezium", "keys": "4", "batch.size": "3",
                "record.size": "400"}


TestRows = connector_conformance(DatagenConnector, harness=BadRows, waivers=NO_SOURCE)
TestChanges = connector_conformance(DatagenConnector, harness=Changes, waivers={
    **NO_SOURCE, "reports_bad_input": "bad records are made only with fault.bad.every"})
