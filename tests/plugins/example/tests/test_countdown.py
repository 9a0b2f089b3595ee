"""The connector against Millrace's conformance kit."""

from collections.abc import Mapping

from millrace_example.connector import CountdownConnector

from connectors.testing import Harness, connector_conformance


class Rocket(Harness):
    """A source with all its numbers from the beginning."""

    flood = 20_000

    def config(self) -> Mapping[str, str]:
        """A configuration as a user would write it."""
        return {"topic": "launch", "start": "100000"}

    async def add(self, count: int) -> None:
        """All numbers are there."""


TestCountdown = connector_conformance(
    CountdownConnector,
    harness=Rocket,
    waivers={
        "reports_bad_input": "numbers are never bad",
        "survives_a_schema_change": "a number stays a number",
        "survives_an_outage_of_its_source": "there is no source",
    },
)
