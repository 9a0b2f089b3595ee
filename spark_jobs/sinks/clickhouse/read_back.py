"""Reads the tables of the ClickHouse sink back, for ``millrace verify``. Blocks: call it in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from connectors.errors import Retriable
from connectors.verify.values import NullsAsEmpty
from spark_jobs.sinks.clickhouse.answers import code_of, error_of
from spark_jobs.sinks.clickhouse.columns import quote_name
from spark_jobs.sinks.clickhouse.config import CONFIG_DEF, parse_settings
from spark_jobs.sinks.shared.http_requests import HttpAnswer
from spark_jobs.sinks.shared.read_back import demand_row_settings, list_present, parse_own_options, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from http.client import HTTPResponse

_UNKNOWN_TABLE: Final = 60
#: What is read of an error.
_SHOWN: Final = 65_536
#: A String may hold any bytes.
_AS_BYTES: Final = "SETTINGS output_format_arrow_string_as_string = 0"


class ClickHouseRows:
    """The tables of one job.

    Args:
        properties: of the job, references resolved.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._settings = parse_settings(parse_own_options(CONFIG_DEF, properties))
        demand_row_settings(self._settings.rows)

    def name(self, namespace: str) -> str:
        """The table that a source table is written to, with its database."""
        return f"{self._settings.database}.{self._settings.table.of_table(namespace)}"

    def rows(self, namespace: str) -> Iterator[list[dict[str, Any]]]:
        """The newest row of each key of that table, some at a time as the server sends them, without those that are deleted.

        Raises:
            Retriable: the server is unavailable.
            Fatal: it refuses.
        """
        table = self._settings.table.of_table(namespace)
        target = f"{quote_name(self._settings.database)}.{quote_name(table)}"
        query = f"SELECT * FROM {target} FINAL {_AS_BYTES} FORMAT ArrowStream"  # noqa: S608 - quoted
        requests = self._settings.requests()
        with requests.stream("POST", "/", query.encode()) as response:
            answer = _describe_answer(response)
            if code_of(answer) == _UNKNOWN_TABLE:
                return
            if code_of(answer):
                raise error_of(answer, requests.where)
            try:
                for rows in list_present(pa.ipc.open_stream(pa.PythonFile(response, "r"))):
                    yield [NullsAsEmpty(read_text(row)) for row in rows]
            except pa.ArrowInvalid as error:
                # An error that comes after the first rows is put among them.
                raise Retriable(
                    f"{requests.where}: the rows of {target} can't be read to their end: {error}"
                ) from error
            if response.length:
                raise Retriable(f"{requests.where}: the rows of {target} end {response.length} bytes too early")


def _describe_answer(response: HTTPResponse) -> HttpAnswer:
    """The answer; its content only where it reports an error."""
    headers = {name.lower(): value for name, value in response.getheaders()}
    failed = response.status != 200 or "x-clickhouse-exception-code" in headers
    return HttpAnswer(response.status, response.read(_SHOWN) if failed else b"", 0.0, headers)
