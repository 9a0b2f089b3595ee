from __future__ import annotations

from spark_jobs.sinks.console.sink import cut, table, text


def test_a_table_of_cells() -> None:
    assert table(["id", "name"], [[1, "a\nb"], [None, b"\x01\xff"]], 6) == [
        "id    name",
        "----  ------",
        "1     a\\nb",
        "null  0x01ff",
    ]


def test_long_cells_are_cut() -> None:
    assert cut("abcdef", 3) == "ab…"
    assert cut("abcdef", 0) == "abcdef"
    assert text("a\tb\r") == "a\\tb\\r"
