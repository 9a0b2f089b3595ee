"""Options of the Delta sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from spark_jobs.namespaces import render_template
from spark_jobs.sinks.lake.options import WHERE, check_name_template, shared_keys

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PREFIX: Final = "sink.delta."
PATH: Final = "sink.delta.path"
TABLE: Final = "sink.delta.table"
#: Properties of the object store go to its client as they are.
STORAGE: Final = "sink.delta.storage."

CONFIG: Final = ConfigDef(
    [
        ConfigKey(
            name=PATH,
            type=ConfigType.STRING,
            importance=Importance.HIGH,
            validator=non_empty,
            group=WHERE,
            example="s3://lake/shop",
            doc="The folder of the tables: a path on a file system that the driver and all tasks share, or an address of "
            "s3://, gs://, abfss:// or hdfs://. Properties of the store are given as sink.delta.storage.<name>, with the "
            "names of the object_store library (sink.delta.storage.aws_region).",
        ),
        ConfigKey(
            name=TABLE,
            type=ConfigType.STRING,
            default="${database}/${table}",
            importance=Importance.HIGH,
            validator=check_name_template,
            group=WHERE,
            example="${database}_${table}",
            doc="The table's folder below sink.delta.path. ${table}, ${database}, ${instance} and ${type} are parts of the "
            "source's namespace, ${namespace} is all of it (of UMS the first four parts) with _ for dots.",
        ),
        *shared_keys(PREFIX),
    ]
)


def find_root(config: Mapping[str, Any]) -> str:
    """The folder of all tables, as delta-rs takes it. Pure."""
    root = str(config[PATH]).rstrip("/")
    return root.removeprefix("file://") if root.startswith("file:///") else root


def table_name(config: Mapping[str, Any], namespace: str) -> str:
    """The folder of a source table's table, below the path. Pure."""
    return "/".join(part for part in render_template(config[TABLE], namespace).split("/") if part)


def name_problem(config: Mapping[str, Any], namespace: str) -> str:
    """Why a table can't have the folder that its name gives, and what to do; empty where it can. Pure."""
    parts = table_name(config, namespace).split("/")
    if all(part and part not in (".", "..") and not part.startswith("_") for part in parts):
        return ""
    return (
        f"table {namespace} can't be written to the folder '{'/'.join(parts)}': no part of it may be empty, . or .., or begin "
        f"with _; choose another name by {TABLE}"
    )
