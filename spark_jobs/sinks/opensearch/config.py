"""Options of the OpenSearch sink, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, Password, at_least
from spark_jobs.sinks.jdbc.config import INSERT, SOFT
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
from spark_jobs.sinks.shared.templates import TABLE_PARTS, Template, template_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.sinks.shared.options import RowSettings
    from spark_jobs.steps.lookup.model import LookupAccess

PREFIX: Final = "sink.opensearch."
NAME: Final = "OpenSearch"
_HOUR_MS: Final = 3_600_000
_S, _L = ConfigType.STRING, ConfigType.LONG


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
            example="https://node-1.example:9200,https://node-2.example:9200",
            doc="Where OpenSearch or Elasticsearch is: its nodes, or a load balancer. A task writes to the first one that "
            "answers.",
        ),
        *access_keys(PREFIX),
        ConfigKey(
            name=f"{PREFIX}api.key",
            type=ConfigType.PASSWORD,
            default=Password(""),
            group=WHERE,
            doc="A key of Elasticsearch's API (`id:key` in base64) in place of a login.",
        ),
        ConfigKey(
            name=f"{PREFIX}index",
            type=_S,
            default="${namespace}",
            importance=Importance.HIGH,
            group=CONTENT,
            validator=template_validator(),
            example="shop-${table}",
            doc="The index (or alias) of a table's rows, by template: `${namespace}`, `${database}` and `${table}` are parts "
            "of the table's name. Capital letters become small, and characters that no index may have become `_`.",
        ),
        ConfigKey(
            name=f"{PREFIX}id",
            type=_S,
            default=None,
            importance=Importance.HIGH,
            group=CONTENT,
            validator=template_validator(rows=("key",), columns=True, empty=True),
            example="${namespace}:${key}",
            doc="The document's `_id`, by template: `${key}` is the row's key (several columns joined by `:`), "
            "`${column:<name>}` the value of a column of the key. Default: `${key}`; `${namespace}:${key}` where all tables "
            "have one index.",
        ),
        key_columns_key(PREFIX),
        mode_key(PREFIX),
        delete_mode_key(PREFIX, note="With sink.opensearch.mode=insert a delete is a document like others."),
        ConfigKey(
            name=f"{PREFIX}delete.retention.ms",
            type=_L,
            default=_HOUR_MS,
            unit="ms",
            group=CONTENT,
            validator=at_least(60_000),
            doc="How long an index that the sink creates remembers deleted documents (`index.gc_deletes`), in the memory of "
            "its nodes. An older change that comes later than that brings the document back, until its delete comes again, "
            "too.",
        ),
        *batch_keys(PREFIX, rows=5000, size=8 << 20),
        *retry_keys(PREFIX),
    ]
)


@dataclass(frozen=True, slots=True)
class OpenSearchSettings:
    """The options, parsed; picklable, its text holds no secret. Names as in ``CONFIG_DEF``."""

    nodes: tuple[str, ...]
    access: LookupAccess = field(repr=False)
    api_key: str = field(repr=False)
    index: Template
    id: Template
    retention_ms: int
    append: bool
    soft: bool
    rows: RowSettings

    def requests(self) -> HttpRequests:
        """A connection to the server."""
        headers = {"Accept": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"ApiKey {self.api_key}"
        return HttpRequests(NAME, self.nodes, self.access, headers)


def parse_settings(config: Mapping[str, Any]) -> OpenSearchSettings:
    """The parsed options. Pure."""

    def get(name: str) -> Any:
        return config[f"{PREFIX}{name}"]

    index = Template(get("index"))
    alone = any(f"${{{part}}}" in index.text for part in TABLE_PARTS)
    return OpenSearchSettings(
        nodes=tuple(get("url")),
        access=access_of(config, PREFIX, ", ".join(get("url"))),
        api_key=get("api.key").value,
        index=index,
        id=Template(get("id") or ("${key}" if alone else "${namespace}:${key}")),
        retention_ms=get("delete.retention.ms"),
        append=get("mode") == INSERT,
        soft=get("delete.mode") == SOFT,
        rows=row_settings(config, PREFIX),
    )


def check_options(config: Mapping[str, Any]) -> list[str]:
    """Options that don't go together, as ``<option>: <text>``. Pure."""
    problems = access_problems(config, PREFIX)
    chosen = parse_settings(config)
    if chosen.api_key and chosen.access.user:
        problems.append(f"{PREFIX}api.key: a request has one login, and {PREFIX}user is set, too")
    if not chosen.append and not (chosen.id.columns or chosen.id.row_parts):
        problems.append(
            f"{PREFIX}id: all rows of a table would be one document; it needs ${{key}} or ${{column:<name>}}"
        )
    return problems
