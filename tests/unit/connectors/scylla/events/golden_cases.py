"""Recorded cases of the Java connector: tables, log rows and the records it made of them."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.cql.types import CqlType, parse_type, udt_resolver
from connectors.scylla.model import CdcOptions, LogRow, ScyllaColumn, TableId, TableVersion
from connectors.scylla.schema.log_table import META_COLUMNS
from tests.support.settings import scylla_events
from tests.unit.connectors.scylla.events.cql_literals import Literals

if TYPE_CHECKING:
    from connectors.scylla.events.contract import ScyllaEventSettings

CASES = Path(__file__).parent / "golden"
_PLACEMENT = "cdc.include.primary-key.placement"


def load(name: str) -> dict[str, Any]:
    """One case by its name."""
    case: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text())
    return case


def names() -> list[str]:
    """All cases."""
    return sorted(path.stem for path in CASES.glob("*.json"))


def runs() -> list[tuple[str, str]]:
    """All runs of all cases."""
    return [(name, run) for name in names() for run in load(name)["runs"]]


def settings_of(config: dict[str, str]) -> ScyllaEventSettings:
    """The settings of a run."""
    options: dict[str, Any] = {"output_format": config["cdc.output.format"]}
    if _PLACEMENT in config:
        options["key_placement"] = frozenset(config[_PLACEMENT].split(","))
    for name, option in (
        ("cdc.include.before", "include_before"),
        ("cdc.include.after", "include_after"),
        ("cdc.include.primary-key.payload-key-name", "payload_key_name"),
    ):
        if name in config:
            options[option] = config[name]
    return scylla_events(
        topic_prefix="PREFIX", preimages=config.get("experimental.preimages.enabled") == "true", **options
    )


def table_of(case: dict[str, Any]) -> TableVersion:
    """The table of a case, from its DDL."""
    match = re.match(r"CREATE TABLE (\w+)\.(\w+) \((.*), PRIMARY KEY \((.*)\)\)", case["ddl"]["base"])
    assert match is not None
    keyspace, table, columns, key = match.groups()
    resolve = udt_resolver(
        keyspace,
        {name: ([field for field, _ in fields], [kind for _, kind in fields]) for name, fields in case["udts"].items()},
    )
    partition, clustering = _key(key)
    parsed_columns: list[ScyllaColumn] = []
    for text in _split(columns):
        name, _, kind = text.strip().partition(" ")
        name = name.strip('"')
        static = kind.endswith(" static")
        cql = parse_type(kind.removesuffix(" static"), resolve, keyspace=keyspace)
        if name in partition:
            parsed_columns.append(ScyllaColumn(name, cql, "partition_key", partition.index(name)))
        elif name in clustering:
            parsed_columns.append(ScyllaColumn(name, cql, "clustering", clustering.index(name)))
        else:
            parsed_columns.append(ScyllaColumn(name, cql, "static" if static else "regular"))
    order = {"partition_key": 0, "clustering": 1, "static": 2, "regular": 3}
    parsed_columns.sort(key=lambda column: (order[column.kind], column.position, column.name.encode()))
    return TableVersion(TableId(keyspace, table), tuple(parsed_columns), CdcOptions(), "v1")


def rows_of(case: dict[str, Any], version: TableVersion) -> list[LogRow]:
    """The log rows of a case."""
    lists = {
        column.name: column.type
        for column in version.columns
        if column.type.name == "list" and column.type.is_multicell
    }
    timed = {f"cdc$deleted_elements_{name}" for name in lists}
    meta = {"cdc$batch_seq_no": "int", "cdc$operation": "tinyint", "cdc$ttl": "bigint", "cdc$end_of_batch": "boolean"}

    def cell(row: dict[str, str], name: str, kind: CqlType) -> Any:
        if name not in row:
            return None
        if name in lists:
            return Literals(row[name]).whole(lists[name], pairs=True)
        value = Literals(row[name]).whole(kind)
        return [uuid.UUID(item).bytes for item in value] if name in timed else value

    result: list[LogRow] = []
    for row in case["log_rows"]:
        head = [bytes.fromhex(row["cdc$stream_id"][2:]), uuid.UUID(row["cdc$time"]).bytes]
        head += [cell(row, name, CqlType(meta[name])) for name in META_COLUMNS[2:]]
        result.append((*head, *(cell(row, name, kind) for name, kind in version.log_columns)))
    return result


def _split(text: str) -> list[str]:
    """At the commas that stand in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _key(text: str) -> tuple[list[str], list[str]]:
    first, *rest = (part.strip() for part in _split(text))
    partition = first[1:-1].split(",") if first.startswith("(") else [first]
    return [name.strip().strip('"') for name in partition], [name.strip('"') for name in rest]
