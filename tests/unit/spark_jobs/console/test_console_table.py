from __future__ import annotations

from spark_jobs.sinks.console.sink import cut_cell, format_cell, format_table


def test_a_table_of_cells() -> None:
    assert format_table(["id", "name"], [[1, "a\nb"], [None, b"\x01\xff"]], 6) == [
        "id    name",
        "----  ------",
        "1     a\\nb",
        "null  0x01ff",
    ]


def test_long_cells_are_cut() -> None:
    assert cut_cell("abcdef", 3) == "ab…"
    assert cut_cell("abcdef", 0) == "abcdef"
    assert format_cell("a\tb\r") == "a\\tb\\r"
