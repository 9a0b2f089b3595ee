"""Options of the ClickHouse sink, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from spark_jobs.sinks.jdbc.config import EXACTLY_ONCE, INSERT, SOFT
from spark_jobs.sinks.shared.http_requests import HttpRequests, nodes_problem
from spark_jobs.sinks.shared.options import (
    CONTENT,
    WHERE,
    access_keys,
    access_of,
    access_problems,
    batch_keys,
    delete_mode_key,
    key_columns_key,
    mode_key,
    retry_keys,
    row_settings,
)
from spark_jobs.sinks.shared.templates import Template, template_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.sinks.shared.options import RowSettings
    from spark_jobs.steps.lookup.model import LookupAccess

PREFIX: Final = "sink.clickhouse."
NAME: Final = "ClickHouse"
_S: Final = ConfigType.STRING


def _check_urls(name: str, value: Any) -> str | None:
    return nodes_problem(name, value, PREFIX)


CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey(
            name=f"{PREFIX}url",
            type=ConfigType.LIST,
            importance=Importance.HIGH,
            group=WHERE,
            validator=_check_urls,
            example="https://clickhouse.example:8443",
            doc="Where ClickHouse's HTTP interface is; of several addresses the first one that answers is used.",
        ),
        *access_keys(PREFIX, "The login; empty: ClickHouse's `default`."),
        ConfigKey(
            name=f"{PREFIX}database",
            type=_S,
            default="default",
            importance=Importance.HIGH,
            group=CONTENT,
            validator=non_empty,
            doc="The database, which must exist.",
        ),
        ConfigKey(
            name=f"{PREFIX}table",
            type=_S,
            default="${table}",
            importance=Importance.HIGH,
            group=CONTENT,
            validator=template_validator(),
            example="${database}_${table}",
            doc="The table, by template: `${namespace}`, `${database}` and `${table}` are parts of the source table's name. A "
            "table that is missing is created, and gets the columns that the source adds.",
        ),
        key_columns_key(PREFIX),
        mode_key(PREFIX),
        delete_mode_key(PREFIX, note="A removed row is hidden by `FINAL`, since the engine knows its `ums_deleted_`."),
        *batch_keys(PREFIX, rows=200_000, size=64 << 20, max_rows=1_000_000),
        *retry_keys(PREFIX),
    ]
)


@dataclass(frozen=True, slots=True)
class ClickHouseSettings:
    """The options, parsed; picklable, its text holds no secret. Names as in ``CONFIG_DEF``."""

    nodes: tuple[str, ...]
    access: LookupAccess = field(repr=False)
    database: str
    table: Template
    append: bool
    exactly_once: bool
    soft: bool
    rows: RowSettings

    def requests(self) -> HttpRequests:
        """A connection to the server."""
        return HttpRequests(NAME, self.nodes, self.access)


def parse_settings(config: Mapping[str, Any]) -> ClickHouseSettings:
    """The parsed options. Pure."""

    def get(name: str) -> Any:
        return config[f"{PREFIX}{name}"]

    return ClickHouseSettings(
        nodes=tuple(get("url")),
        access=access_of(config, PREFIX, ", ".join(get("url"))),
        database=get("database"),
        table=Template(get("table")),
        append=get("mode") == INSERT,
        exactly_once=config.get("guarantee") in (None, EXACTLY_ONCE),
        soft=get("delete.mode") == SOFT,
        rows=row_settings(config, PREFIX),
    )


def check_options(config: Mapping[str, Any]) -> list[str]:
    """Options that don't go together, as ``<option>: <text>``. Pure."""
    return access_problems(config, PREFIX)
