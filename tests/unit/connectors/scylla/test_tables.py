"""Definitions of tables from rows of system_schema. Hypothesis: any ADD, DROP and ADD again gives what was there each time."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal
from connectors.scylla.model import CdcOptions, TableId
from connectors.scylla.schema.tables import TableRows, build_history, cdc_options

TABLE = TableId("ks", "t")


def extension(**options: str) -> bytes:
    parts = [struct.pack("<I", len(options))]
    for pair in options.items():
        parts += [struct.pack("<I", len(text)) + text.encode() for text in pair]
    return b"".join(parts)


def column(
    name: str, kind: str = "text", part: str = "regular", position: int = -1, order: str = "none", added: int = 1_000
) -> dict[str, Any]:
    return {
        "column_name": name,
        "kind": part,
        "position": position,
        "clustering_order": order,
        "type": kind,
        "added": added,
    }


KEYS = [
    column("zk", "int", "partition_key", 0),
    column("ak", "int", "partition_key", 1),
    column("ck", "timestamp", "clustering", 0, "desc"),
]


def rows(
    *columns: dict[str, Any],
    dropped: list[dict[str, Any]] | None = None,
    types: list[dict[str, Any]] | None = None,
    table_id: str = "id-1",
    cdc: bytes | None = None,
) -> TableRows:
    extensions = [{"key": "cdc", "value": extension(enabled="true") if cdc is None else cdc}]
    return TableRows({"id": table_id, "extensions": extensions}, [*KEYS, *columns], dropped or [], types or [])


def names(version: Any) -> list[str]:
    return [column.name for column in version.columns]


@pytest.mark.parametrize(
    ("given_options", "expected"),
    [
        ({"enabled": "true"}, CdcOptions()),
        ({"enabled": "false"}, CdcOptions(enabled=False)),
        (
            {"enabled": "true", "preimage": "full", "postimage": "true", "ttl": "0", "delta": "keys"},
            CdcOptions(True, "full", True, "keys", 0),
        ),
        ({"enabled": "true", "preimage": "true", "ttl": "60", "new": "x"}, CdcOptions(preimage="true", ttl_s=60)),
    ],
)
def test_cdc_options(given_options: dict[str, str], expected: CdcOptions) -> None:
    assert cdc_options(extension(**given_options)) == expected


def test_without_options_cdc_is_off() -> None:
    assert not cdc_options(None).enabled


@pytest.mark.parametrize(
    "data", [b"", b"\x01", extension(enabled="true")[:-1], b"\x01\x00\x00\x00\x01\x00\x00\x00\xff\x00\x00\x00\x00"]
)
def test_broken_options_are_reported(data: bytes) -> None:
    with pytest.raises(Fatal, match="CDC options"):
        cdc_options(data)


def test_columns_stand_in_the_order_of_select_star() -> None:
    version = build_history(
        TABLE,
        rows(column("b", "map<text, frozen<list<int>>>"), column("a", "int"), column("s", part="static"), column("A")),
    ).newest
    assert names(version) == ["zk", "ak", "ck", "s", "A", "a", "b"]
    assert [column.name for column in version.partition_key] == ["zk", "ak"]
    assert [(column.name, column.reversed) for column in version.clustering_key] == [("ck", True)]
    assert version.columns[-1].type.is_multicell
    assert version.since_us == 0


def test_added_and_dropped_columns_give_versions() -> None:
    history = build_history(
        TABLE,
        rows(
            column("a"),
            column("b", "int", added=5_000_000),
            dropped=[{"column_name": "c", "dropped_time": 3_000, "type": "bigint"}],
        ),
    )
    assert [(version.since_us, names(version)[3:]) for version in history.versions] == [
        (0, ["a", "c"]),
        (3_000_000, ["a"]),
        (5_000_000, ["a", "b"]),
    ]
    assert names(history.version_at(2_999_999))[3:] == ["a", "c"]
    assert names(history.version_at(3_000_000))[3:] == ["a"]
    assert names(history.version_at(10**17))[3:] == ["a", "b"]
    assert names(history.version_at(-5))[3:] == ["a", "c"]
    assert history.created_us == 1_000


def test_a_column_dropped_and_added_again_with_another_type() -> None:
    history = build_history(
        TABLE,
        rows(
            column("a", "int", added=9_000_000),
            column("k"),
            dropped=[{"column_name": "a", "dropped_time": 4_000, "type": "text", "kind": "regular"}],
        ),
    )
    assert [[(column.name, column.type.name) for column in version.columns[3:]] for version in history.versions] == [
        [("a", "text"), ("k", "text")],
        [("k", "text")],
        [("a", "int"), ("k", "text")],
    ]


def test_the_same_definition_is_one_version() -> None:
    first = build_history(TABLE, rows(column("a")))
    assert build_history(TABLE, rows(column("a")), first).versions == first.versions
    assert build_history(TABLE, rows(column("a"))).newest.version == first.newest.version


def test_changed_cdc_options_show_without_a_new_version() -> None:
    first = build_history(TABLE, rows(column("a")))
    second = build_history(TABLE, rows(column("a"), cdc=extension(enabled="true", preimage="true")), first)
    assert len(second.versions) == 1
    assert second.newest.options.preimage == "true"


ADDRESS = {"type_name": "addr", "field_names": ["street"], "field_types": ["text"], "changed": 1_000}
LONGER = {"type_name": "addr", "field_names": ["street", "zip"], "field_types": ["text", "int"], "changed": 7_000_000}


def test_an_altered_type_is_a_new_version_if_the_old_one_was_seen() -> None:
    home = column("home", "frozen<addr>")
    first = build_history(TABLE, rows(home, types=[ADDRESS]))
    second = build_history(TABLE, rows(home, types=[LONGER]), first)
    assert [version.since_us for version in second.versions] == [0, 7_000_000]
    assert [version.columns[-1].type.field_names for version in second.versions] == [("street",), ("street", "zip")]
    assert [
        version.columns[-1].type.field_names for version in build_history(TABLE, rows(home, types=[LONGER])).versions
    ] == [("street", "zip")]


def test_a_table_made_again_begins_a_new_version() -> None:
    first = build_history(TABLE, rows(column("a")))
    recreated = TableRows(
        {"id": "id-2", "extensions": [{"key": "cdc", "value": extension(enabled="true")}]},
        [{**column_row, "added": 8_000_000} for column_row in [*KEYS, column("z", "int")]],
    )
    second = build_history(TABLE, recreated, first)
    assert [(version.since_us, version.table_id, names(version)[3:]) for version in second.versions] == [
        (0, "id-1", ["a"]),
        (8_000_000, "id-2", ["z"]),
    ]
    assert second.table_id == "id-2"


def test_an_alter_seen_while_running_keeps_what_was_known() -> None:
    first = build_history(TABLE, rows(column("a")))
    second = build_history(TABLE, rows(column("a"), column("b", added=6_000_000)), first)
    third = build_history(
        TABLE,
        rows(column("b", added=6_000_000), dropped=[{"column_name": "a", "dropped_time": 9_000, "type": "text"}]),
        second,
    )
    assert [(version.since_us, names(version)[3:]) for version in third.versions] == [
        (0, ["a"]),
        (6_000_000, ["a", "b"]),
        (9_000_000, ["b"]),
    ]


def test_a_node_that_is_behind_takes_no_column_away() -> None:
    """Nodes are asked in turn, and one of them does not know of the new column yet."""
    old, new = rows(column("a")), rows(column("a"), column("b", added=6_000_000))
    newest = build_history(TABLE, new, build_history(TABLE, old))
    behind = build_history(TABLE, replace(old, log_columns=frozenset("a")), newest, now_us=9_000_000)
    assert behind == newest
    later = build_history(TABLE, new, behind, now_us=10_000_000)
    assert [(version.since_us, names(version)[3:]) for version in later.versions] == [
        (0, ["a"]),
        (6_000_000, ["a", "b"]),
    ]


def test_a_node_that_is_behind_takes_no_field_away() -> None:
    home = column("home", "frozen<addr>")
    newest = build_history(TABLE, rows(home, types=[LONGER]), build_history(TABLE, rows(home, types=[ADDRESS])))
    assert build_history(TABLE, rows(home, types=[ADDRESS]), newest, now_us=9_000_000) == newest


def test_a_node_that_is_behind_does_not_bring_a_dropped_table_back() -> None:
    first = rows(column("a"))
    columns = [{**column_row, "added": 8_000_000} for column_row in [*KEYS, column("a")]]
    newest = build_history(TABLE, replace(first, table={**first.table, "id": "id-2"}, columns=columns))
    assert build_history(TABLE, first, newest, now_us=9_000_000) == newest


def test_a_column_added_again_with_a_smaller_type_is_read() -> None:
    newest = build_history(TABLE, rows(column("home", "frozen<addr>"), types=[LONGER]))
    smaller = {**ADDRESS, "type_name": "place"}
    readded = rows(
        column("home", "frozen<place>", added=9_500_000),
        dropped=[{"column_name": "home", "dropped_time": 9_000, "type": "frozen<addr>"}],
        types=[LONGER, smaller],
    )
    assert build_history(TABLE, readded, newest).newest.columns[-1].type.udt_name == "place"


def test_dropped_columns_of_types_that_are_gone_are_left_out() -> None:
    history = build_history(
        TABLE, rows(column("a"), dropped=[{"column_name": "c", "dropped_time": 3_000, "type": "frozen<gone>"}])
    )
    assert names(history.newest)[3:] == ["a"]


def test_an_unknown_type_is_fatal() -> None:
    with pytest.raises(Fatal, match="nothing_known"):
        build_history(TABLE, rows(column("a", "frozen<nothing_known>")))


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 20)), max_size=12), st.booleans())
def test_any_sequence_of_add_and_drop(steps: list[tuple[str, int]], in_steps: bool) -> None:
    """Each step adds the column or drops it; a server keeps the last drop of a name only, so earlier ones are unknown."""
    there: dict[str, dict[str, Any]] = {}
    gone: dict[str, dict[str, Any]] = {}
    now = 10
    truth: list[tuple[int, set[str]]] = [(0, set())]
    history = build_history(TABLE, rows()) if in_steps else None
    twice = False
    for name, gap in steps:
        now += gap
        if name in there:
            twice = twice or name in gone
            del there[name]
            gone[name] = {"column_name": name, "dropped_time": now, "type": "text"}
        else:
            there[name] = column(name, added=now * 1_000)
        truth.append((now * 1_000, set(there)))
        if in_steps:
            history = build_history(TABLE, rows(*there.values(), dropped=list(gone.values())), history)
    if history is None:
        history = build_history(TABLE, rows(*there.values(), dropped=list(gone.values())))
    assert set(names(history.newest)[3:]) == set(there)
    for index, (since, columns) in enumerate(truth):
        at = set(names(history.version_at(since))[3:])
        if in_steps:
            assert at == columns
        elif not twice:
            # When a dropped column had been added is not kept: it counts as there from the beginning.
            extra = {name for name, row in gone.items() if row["dropped_time"] * 1_000 > since and name not in columns}
            assert at == columns | extra, index
