"""Requests for previews: their bounds, and how they travel to an application. Pure, no Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from spark_jobs.flows.address import ApplicationAddress, make_key, runtime_path, spark_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Records to read, or rows to take, at most.
MOST_ROWS: Final = 1000
DEFAULT_ROWS: Final = 20
DEFAULT_TIMEOUT_S: Final = 60.0
#: The operations that a given row may have.
OPERATIONS: Final = ("i", "u", "d", "b")
#: What previews without a running application of their flow run in.
APPLICATION: Final = "preview"
#: Settings of a cluster, which a preview does not use.
_OF_CLUSTERS: Final = (
    "spark.executor.",
    "spark.dynamicAllocation.",
    "spark.kubernetes.",
    "spark.yarn.",
    "spark.cores.",
)
_MASTER: Final = "local[2]"
_FIELD: Final = "preview"


@dataclass(frozen=True, slots=True)
class CallerRow:
    """A change that the caller gives.

    Attributes:
        table: its table, by any of its names.
        row: values by column.
        op: one of ``OPERATIONS``.
    """

    table: str
    row: Mapping[str, Any]
    op: str = "i"


@dataclass(frozen=True, slots=True)
class FlowPreviewRequest:
    """The rows to send through a flow.

    Attributes:
        limit: how many of the newest records to read.
        rows: rows to take instead; None: read records.
        timeout_s: when to end with what there is, in seconds.
    """

    limit: int = DEFAULT_ROWS
    rows: tuple[CallerRow, ...] | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class PreviewMessage:
    """A request on its way to an application.

    Attributes:
        request: what is asked.
        configuration: of the flow.
        settings: Spark's settings that the application must have.
    """

    request: FlowPreviewRequest
    configuration: dict[str, str]
    settings: dict[str, str]


def read_request(body: Mapping[str, Any]) -> FlowPreviewRequest:
    """The request of ``body`` (``limit``, ``rows``, ``timeout_ms``).

    Raises:
        ConfigInvalid: a field is wrong.
    """
    limit, timeout_ms = body.get("limit", DEFAULT_ROWS), body.get("timeout_ms", DEFAULT_TIMEOUT_S * 1000)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_ROWS:
        raise ConfigInvalid(f"limit must be a whole number from 1 to {MOST_ROWS}")
    if not isinstance(timeout_ms, int | float) or isinstance(timeout_ms, bool) or timeout_ms <= 0:
        raise ConfigInvalid("timeout_ms must be a number of milliseconds")
    rows = body.get("rows")
    return FlowPreviewRequest(limit, None if rows is None else read_rows(rows), timeout_ms / 1000)


def read_rows(rows: Any) -> tuple[CallerRow, ...]:
    """Rows as a request or a file has them: a list of objects with ``table``, ``row`` and ``op``.

    Raises:
        ConfigInvalid: it is no such list, or longer than ``MOST_ROWS``.
    """
    if not isinstance(rows, list) or not rows:
        raise ConfigInvalid('rows must be a list of {"table": ..., "op": ..., "row": {...}}, and not empty')
    if len(rows) > MOST_ROWS:
        raise ConfigInvalid(f"rows has {len(rows)} rows; a preview takes {MOST_ROWS} at most")
    result = []
    for number, entry in enumerate(rows, 1):
        fields = entry if isinstance(entry, dict) else {}
        table, row, op = fields.get("table"), fields.get("row"), fields.get("op") or "i"
        if not isinstance(table, str) or not table or not isinstance(row, dict) or set(fields) - {"table", "row", "op"}:
            raise ConfigInvalid(f'row {number} must be {{"table": ..., "op": ..., "row": {{...}}}}')
        if op not in OPERATIONS:
            raise ConfigInvalid(f"row {number}: op must be one of {', '.join(OPERATIONS)}")
        result.append(CallerRow(table, row, op))
    return tuple(result)


def to_message(
    request: FlowPreviewRequest, configuration: Mapping[str, str], settings: Mapping[str, str]
) -> dict[str, Any]:
    """The first line of a connection that asks for a preview, as an object."""
    rows: Sequence[CallerRow] | None = request.rows
    return {
        _FIELD: {
            "limit": request.limit,
            "rows": None if rows is None else [{"table": row.table, "row": row.row, "op": row.op} for row in rows],
            "timeout_ms": request.timeout_s * 1000,
        },
        "configuration": dict(configuration),
        "settings": dict(settings),
    }


def from_message(line: str) -> PreviewMessage | None:
    """The request for a preview that ``line`` is; None for the configuration of a flow, whose values are all strings.

    Raises:
        ConfigInvalid: the request is wrong.
    """
    try:
        document = json.loads(line)
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get(_FIELD), dict):
        return None
    return PreviewMessage(read_request(document[_FIELD]), document["configuration"], document["settings"])


def preview_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings of the application for previews: those of the flow, on two local threads."""
    settings = {name: value for name, value in spark_settings(properties).items() if not name.startswith(_OF_CLUSTERS)}
    return {**settings, "spark.master": _MASTER}


def preview_address() -> ApplicationAddress:
    """The one application for previews of this user and installation: it restarts for other settings."""
    return ApplicationAddress(APPLICATION, runtime_path(), make_key("", "application for previews"))
