"""The reference of types names every type, and those that targets have keep their own type."""

from __future__ import annotations

import pytest

from connectors.cql.types import NATIVE
from worker.development.reference_types import types_page


@pytest.fixture(scope="module")
def sections() -> dict[str, dict[str, list[str]]]:
    """By heading, the cells of a type's first row."""
    result: dict[str, dict[str, list[str]]] = {}
    for part in types_page("").split("\n## ")[1:]:
        heading, _, body = part.partition("\n")
        rows = [
            [cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines() if line[:2] == "| "
        ]
        result[heading] = {name: cells for name, *cells in reversed(rows)}
    return result


def test_every_type_of_cql_is_there(sections: dict[str, dict[str, list[str]]]) -> None:
    written_otherwise = {"counter", "empty", "varchar"}  # refused, of no column, and another name of text
    cql = [rows for heading, rows in sections.items() if "Cassandra" in heading or "Scylla" in heading]
    assert len(cql) == 3
    for rows in cql:
        assert NATIVE - written_otherwise <= rows.keys()


def test_types_that_targets_have_arrive_as_such(sections: dict[str, dict[str, list[str]]]) -> None:
    updates = sections["Cassandra and Scylla: partition updates and the materializer's events"]
    postgresql = {name: cells[3] for name, cells in updates.items()}
    assert {name: postgresql[name] for name in ("decimal", "varint", "uuid", "timeuuid", "time", "date")} == {
        "decimal": "numeric",
        "varint": "numeric",
        "uuid": "uuid",
        "timeuuid": "uuid",
        "time": "time without time zone",
        "date": "date",
    }
    assert sections["MySQL and MariaDB"]["DECIMAL(20,4)"] == [
        "BYTES C.Decimal",
        "bytes, decimal(20, 4)",
        "decimal(38,4)",
        "numeric(38,4)",
        "decimal(38,4)",
    ]
