"""The HBase sink's pure parts: row keys, versions, cells, bytes of requests, names, tables that do not fit."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException
from thriftpy2.transport.memory import TCyMemoryBuffer

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.hbase.client import HbaseMisfit, HbaseRows, explain_error, form_of, row_fault
from spark_jobs.sinks.hbase.config import CONFIG_DEF, HbaseSettings, check_options, parse_settings
from spark_jobs.sinks.hbase.protocol import load_interface
from spark_jobs.sinks.hbase.tables import name_of, table_problem
from spark_jobs.sinks.hbase.types import make_cell_encoder
from spark_jobs.sinks.shared.model import RowTable, SinkRow
from spark_jobs.sinks.shared.values import NoText

TABLE = RowTable("shop.orders", ("id", "name"), ("id",))
KINDS = {"id": "long", "name": "string"}
OFFSET = 10_000_000_000
FOREVER = (1 << 31) - 1


def chosen(**options: str) -> HbaseSettings:
    named = {f"sink.hbase.{name.replace('_', '.')}": value for name, value in options.items()}
    return parse_settings(CONFIG_DEF.parse({"sink.hbase.address": "hbase:9090", **named}))


def row(op: str = "u", order: int = 7, **values: Any) -> SinkRow:
    fields = {"id": 1, "name": None} | values
    return SinkRow(fields, order, datetime(2026, 1, 2, tzinfo=UTC), op, "", "t", 2, 9, 0)


def changes(change: SinkRow, table: RowTable = TABLE, **options: str) -> tuple[bytes, bytes]:
    return HbaseRows(chosen(**options), KINDS, table).changes(change)


def read(put: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """The row key and the cells of a put, as another writer of the protocol reads them."""
    stored = load_interface().Row()
    TCyBinaryProtocol(TCyMemoryBuffer(put)).read_struct(stored)
    return stored.row, {cell.family + b":" + cell.qualifier: cell.value for cell in stored.cells}


def test_a_row_is_a_put_of_one_version() -> None:
    put, hidden = changes(row(name="é"), column_families="name=text")
    key, cells = read(put)
    assert key == b"1"
    assert cells[b"text:name"] == "é".encode()
    assert (cells[b"cf:id"], cells[b"cf:ums_id_"], cells[b"cf:ums_op_"]) == (b"1", b"7", b"u")
    assert put.endswith(b"\x0a\x00\x03" + (OFFSET + 7).to_bytes(8, "big") + b"\x00")
    assert hidden == b""


def test_nulls_and_deletes_hide_what_is_not_newer() -> None:
    put, hidden = changes(row())
    assert b"cf:name" not in read(put)[1]
    assert (OFFSET + 7).to_bytes(8, "big") in hidden
    assert changes(row("d"))[0] == b""
    soft_put, soft_hidden = changes(row("d"), delete_mode="soft")
    assert read(soft_put)[1][b"cf:ums_active_"] == b"0"
    assert soft_hidden == b""


def test_with_insert_each_change_has_a_key_of_its_own() -> None:
    assert read(changes(row("d"), mode="insert")[0])[0] == b"1:0000000010000000007:d:t-2 offset 9"
    keyless = RowTable("shop.orders", ("id", "name"), ())
    assert read(changes(row(), keyless, mode="insert")[0])[0] == b"0000000010000000007:u:t-2 offset 9"


@pytest.mark.parametrize(("order", "fits"), [(-OFFSET, True), (-OFFSET - 1, False), ((1 << 63) - 1, False)])
def test_versions_are_not_negative(order: int, fits: bool) -> None:
    if fits:
        assert changes(row(order=order))[0]
    else:
        with pytest.raises(HbaseMisfit, match="version"):
            changes(row(order=order))


def test_row_keys_that_are_refused() -> None:
    for values, text in (({"id": None}, "is null"), ({"id": "x" * 32_768}, "32768 bytes"), ({"id": ""}, "0 bytes")):
        with pytest.raises(HbaseMisfit, match=text):
            changes(row(**values))


@pytest.mark.parametrize(("form", "key"), [("joined", b"12:eu"), ("reversed", b"ue:21"), ("hashed", b"9f5ce665_12:eu")])
def test_forms_of_row_keys(form: str, key: bytes) -> None:
    assert form_of("12:eu", form) == key


@pytest.mark.parametrize(
    ("kind", "value", "text", "binary"),
    [
        ("integer", -2, b"-2", b"\xff\xff\xff\xfe"),
        ("long", 1, b"1", b"\0\0\0\0\0\0\0\x01"),
        ("boolean", True, b"true", b"\xff"),
        ("double", 1.5, b"1.5", b"\x3f\xf8\0\0\0\0\0\0"),
        ("decimal", Decimal("-1.28"), b"-1.28", b"\0\0\0\x02\x80"),
        ("decimal", Decimal("1.28"), b"1.28", b"\0\0\0\x02\x00\x80"),
        ("string", "é", "é".encode(), "é".encode()),
        ("binary", b"\xff", b"\xff", b"\xff"),
        ("array", [1, None], b"[1,null]", b"[1,null]"),
    ],
)
def test_types(kind: str, value: Any, text: bytes, binary: bytes) -> None:
    assert make_cell_encoder(kind, binary=False)(value) == text
    assert make_cell_encoder(kind, binary=True)(value) == binary


def test_a_string_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(NoText):
        make_cell_encoder("string", binary=False)("\ud800")


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("${namespace}", "shop.orders"),
        ("dws:${table}", "dws:orders"),
        ("${table} 1", "orders_1_cd9c4a7a"),
        (".${table}", "_orders_a74fe63c"),
    ],
)
def test_names_of_tables(template: str, name: str) -> None:
    assert name_of(chosen(table=template), "shop.orders") == name


def test_tables_that_do_not_fit() -> None:
    assert table_problem("t", {"cf": FOREVER}, ["cf"], chosen()) == ""
    assert table_problem("t", {"old": 60}, ["cf"], chosen()) == ""
    assert "lacks the column family cf" in table_problem("t", {"old": 60}, ["cf"], chosen(auto_create="false"))
    assert "has a TTL on the family cf" in table_problem("t", {"cf": 60}, ["cf"], chosen())


def test_errors_say_who_must_do_something() -> None:
    server_error = load_interface().ServerError
    kinds = {
        "org.apache.hadoop.hbase.security.AccessDeniedException: no\n\tat x": Fatal,
        "org.apache.hadoop.hbase.NamespaceNotFoundException: n": Fatal,
        "Failed 3 actions: NotServingRegionException": Retriable,
    }
    for text, kind in kinds.items():
        error = explain_error(server_error(message=text), chosen())
        assert isinstance(error, kind)
        assert "\n" not in str(error)
    unknown = TApplicationException(TApplicationException.UNKNOWN_METHOD, "Invalid method name: 'x'")
    assert isinstance(explain_error(unknown, chosen()), Fatal)
    assert row_fault(server_error(message="Cell with size 9 exceeds limit of 8 bytes"))
    assert not row_fault(OSError("gone"))


def test_options_that_do_not_go_together() -> None:
    config = CONFIG_DEF.parse(
        {"sink.hbase.address": "h:1", "sink.hbase.mode": "insert", "sink.hbase.delete.mode": "soft"}
    )
    assert [text.partition(":")[0] for text in check_options(config)] == ["sink.hbase.delete.mode"]
    family = CONFIG_DEF.parse({"sink.hbase.address": "h:1", "sink.hbase.family": "a:b"})
    assert [text.partition(":")[0] for text in check_options(family)] == ["sink.hbase.family"]
    wrong = CONFIG_DEF.values({"sink.hbase.address": "h", "sink.hbase.column.families": "city"})
    for name in ("address", "column.families"):
        assert wrong[f"sink.hbase.{name}"].errors
