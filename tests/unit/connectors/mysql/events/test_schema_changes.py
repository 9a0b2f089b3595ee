"""Records of statements that change structures, against those of Debezium."""

from __future__ import annotations

from typing import Any

from connectors.api import Header
from connectors.mysql.events.schema_changes import SchemaChanges, TableChange
from connectors.mysql.model import MySqlColumn, TableName
from connectors.mysql.schema import type_codes as codes
from tests.unit.connectors.mysql.events.making import (
    BASE,
    NOW_NS,
    PARTITION,
    SOURCE,
    UTF8MB4,
    number,
    plain,
    recorded,
    settings,
    source_of,
    table,
    written,
)

_EVOLVING = table(
    "evolving",
    MySqlColumn(
        name="first_column", type=codes.LONGLONG, unsigned=True, declared="bigint(20) unsigned", default="NULL"
    ),
    number("id", nullable=False),
    MySqlColumn(
        name="e",
        type=codes.ENUM,
        meta=1,
        members=("a", "b"),
        collation=UTF8MB4,
        declared="enum('a','b')",
        default="'b'",
    ),
    MySqlColumn(
        name="amount",
        type=codes.DECIMAL,
        meta=6 << 8 | 1,
        declared="decimal(6,1)",
        nullable=False,
        default="1.5",
        comment="how much",
    ),
    key=("amount", "id"),
)


def without_unknown(value: Any) -> Any:
    """Without what only Debezium's own parsing of statements tells: the table's charset, display widths of integers."""
    for change in value["tableChanges"]:
        if change["table"] is not None:
            change["table"].pop("defaultCharsetName")
            for column in change["table"]["columns"]:
                if column["jdbcType"] in {4, -5}:
                    column.pop("length")
    return plain(value)


def test_an_alter_is_reported_as_debezium_does() -> None:
    theirs = next(record for record in recorded("default", "server") if "ADD PRIMARY KEY" in record.value["ddl"])
    # Debezium for MariaDB takes include.schema.comments the other way round: comments are there by default.
    changes = SchemaChanges(settings(comments=True), PARTITION, (Header("h", "v"),), lambda: NOW_NS)
    table_changes = [TableChange("ALTER", _EVOLVING.name, _EVOLVING)]
    ours = changes.record(source_of(theirs.value), "world", theirs.value["ddl"], table_changes, BASE)
    key, value = written(ours.key_schema, ours.key), written(ours.value_schema, ours.value)
    assert (ours.topic, key["schema"], key["payload"]) == (theirs.topic, theirs.key_schema, theirs.key)
    assert value["schema"] == theirs.value_schema
    assert without_unknown(value["payload"]) == without_unknown(theirs.value)
    assert (ours.partition, ours.source_offset, ours.headers) == (0, BASE, (Header("h", "v"),))
    assert ours.value["ts_ms"] == NOW_NS // 1_000_000


def test_a_drop_has_no_table_and_an_index_no_change() -> None:
    changes = SchemaChanges(settings(), PARTITION)
    for word, table_changes, table_name in (
        ("DROP TABLE", [TableChange("DROP", TableName("world", "fresh_too"))], None),
        ("CREATE INDEX", [], ""),
    ):
        theirs = next(record for record in recorded("default", "server") if record.value["ddl"].startswith(word))
        ours = changes.record(
            source_of(theirs.value), "world", theirs.value["ddl"], table_changes, BASE, table=table_name
        )
        assert plain(written(ours.value_schema, ours.value)["payload"]) == plain(theirs.value)


def test_comments_and_quotes() -> None:
    quoted = table(
        'a"b',
        MySqlColumn(
            name="s",
            type=codes.SET,
            meta=1,
            members=("it's",),
            collation=UTF8MB4,
            comment="c",
            declared="set('it''s')",
            extra="STORED GENERATED",
        ),
    )
    value = (
        SchemaChanges(settings(comments=True), PARTITION)
        .record(SOURCE, "world", "CREATE ...", [TableChange("CREATE", quoted.name, quoted)], BASE, snapshot="true")
        .value
    )
    (change,) = value["tableChanges"]
    assert change["id"] == '"world"."a""b"'
    (column,) = change["table"]["columns"]
    assert (column["comment"], column["enumValues"], column["generated"], column["jdbcType"], column["length"]) == (
        "c",
        ["'it''s'"],
        True,
        1,
        1,
    )
    assert value["source"]["snapshot"] == "true"
    assert value["source"]["table"] == 'a"b'
