"""Options of the Iceberg sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from spark_jobs.namespaces import render_template
from spark_jobs.sinks.lake.options import WHERE, check_name_template, shared_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "sink.iceberg."
#: Properties of the catalog and of its file system go to pyiceberg as they are.
CATALOG: Final = "sink.iceberg.catalog."
NAMESPACE: Final = "sink.iceberg.namespace"
TABLE: Final = "sink.iceberg.table"
TYPE: Final = f"{CATALOG}type"

CONFIG: Final = ConfigDef(
    [
        ConfigKey(
            name=NAMESPACE,
            type=ConfigType.STRING,
            default="${database}",
            validator=check_name_template,
            group=WHERE,
            example="shop",
            doc="The namespace of the tables, with points between its levels; it is created where it is missing. The parts of "
            "sink.iceberg.table may be named. The catalog is given as sink.iceberg.catalog.<property>, with the names of "
            "pyiceberg: type (sql, rest, hive, glue), uri, warehouse, s3.region ..., "
            "and name (default millrace).",
        ),
        ConfigKey(
            name=TABLE,
            type=ConfigType.STRING,
            default="${table}",
            importance=Importance.HIGH,
            validator=non_empty,
            group=WHERE,
            example="${database}_${table}",
            doc="The table's name. ${table}, ${database}, ${instance} and ${type} are parts of the source's namespace, "
            "${namespace} is all of it (of UMS the first four parts) with _ for dots.",
        ),
        *shared_keys(PREFIX),
    ]
)


def table_name(config: Mapping[str, Any], namespace: str) -> tuple[str, ...]:
    """The identifier of a source table's table: the levels of its namespace, and its name. Pure."""
    levels = [level for level in render_template(config[NAMESPACE], namespace).split(".") if level]
    return (*(levels or ["default"]), render_template(config[TABLE], namespace))


def check_catalog(properties: Mapping[str, str]) -> list[str]:
    """Properties of the catalog that are missing, as ``<option>: <text>``. Pure."""
    if not properties.get("type") and not properties.get("py-catalog-impl"):
        return [f"{NAMESPACE}: there is no catalog; set {TYPE} to sql, rest, hive or glue, and {CATALOG}uri"]
    return []
