"""The conformance kit on the console sink: what it prints, read back as JSON lines."""

from __future__ import annotations

import contextlib
import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.testing import SinkTarget, Supports, cases, check_sink
from tests.integration.spark_jobs.spark_json import from_json, in_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Column, TableSchema


class ConsoleTarget(SinkTarget):
    """Standard output, caught."""

    sink_type = "console"
    supports = Supports(upsert=False, ordering=False, remembers_deletes=False)

    def start(self) -> None:
        self._caught = contextlib.ExitStack()
        self._text = self._caught.enter_context(contextlib.redirect_stdout(io.StringIO()))

    def stop(self) -> None:
        self._caught.close()

    def options(self) -> Mapping[str, str]:
        return {"sink.console.format": "json", "sink.console.rows": "10000"}

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        text = self._text.getvalue().splitlines()
        lines = [json.loads(line, parse_float=Decimal) for line in text if line.startswith('{"table_"')]
        return [from_json(schema, line) for line in lines if line["table_"] == schema.namespace]

    def stored(self, column: Column, value: Any) -> Any:
        """Nulls are left out, in structs, too."""
        if column.type.typeName() == "struct":
            return {name: member for name, member in value.items() if member is not None}
        return in_json(column, value)


@pytest.mark.parametrize("case", cases())
def test_conformance(case: str, spark: SparkSession, bootstrap: str) -> None:
    check_sink(ConsoleTarget(), spark=spark, bootstrap=bootstrap, only=case)
