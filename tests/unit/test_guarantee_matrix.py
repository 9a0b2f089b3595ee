"""The page of guarantees holds what marks of tests show, and no more."""

from pathlib import Path

import pytest

from connectors.errors import ConfigInvalid
from worker.development.guarantee_matrix import (
    MatrixEnd,
    Proof,
    build_ends,
    check_offers,
    find_proofs,
    format_cell,
    render_page,
)

_MARKED = """
import pytest


@pytest.mark.proves("from mysql stream", "at-least-once", killed=["worker"])
@pytest.mark.proves("into jdbc", "exactly-once", killed=["driver", "server"])
def test_rows():
    assert True


async def test_others():
    assert True
"""


def test_marks_are_read_without_an_import_of_the_test(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "chaos"
    folder.mkdir(parents=True)
    (folder / "test_a.py").write_text(_MARKED)
    (folder / "notes.py").write_text(_MARKED)
    name = "tests/chaos/test_a.py::test_rows"
    assert find_proofs(tmp_path) == [
        Proof("from", "mysql stream", "at-least-once", name, ("worker",)),
        Proof("into", "jdbc", "exactly-once", name, ("driver", "server")),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        '"jdbc", "exactly-once", killed=["driver"]',
        '"into jdbc", "twice", killed=["driver"]',
        '"into jdbc", "exactly-once", killed=[]',
        '"into jdbc", "exactly-once", killed=["reader"]',
        '"into jdbc", LEVEL, killed=["driver"]',
        '"into jdbc", "exactly-once"',
    ],
)
def test_a_mark_with_other_arguments_is_refused_with_the_name_of_its_test(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(
        f"@pytest.mark.proves({arguments})\ndef test_rows():\n    assert True\n"
    )
    with pytest.raises(ConfigInvalid, match=r"tests/test_a\.py::test_rows: proves takes"):
        find_proofs(tmp_path)


def test_the_weaker_end_counts_and_an_end_without_a_test_promises_nothing() -> None:
    proofs = [
        Proof("from", "mysql stream", "at-least-once", "a", ("worker",)),
        Proof("from", "mysql stream", "exactly-once", "b", ("worker",)),
        Proof("from", "mysql snapshot", "at-least-once", "c", ("worker",)),
    ]
    rows, numbered = build_ends(["mysql", "scylla"], proofs, "S")
    stream, snapshot, scylla = rows
    assert (stream, snapshot, scylla) == (
        MatrixEnd("mysql stream", "exactly-once", ("S2",)),
        MatrixEnd("mysql snapshot", "at-least-once", ("S3",)),
        MatrixEnd("scylla", "at-most-once", ()),
    )
    assert numbered["S3"].test == "c"
    jdbc = MatrixEnd("jdbc", "exactly-once", ("K1", "K2"))
    assert format_cell(stream, jdbc) == "exactly once (S2, K1, K2)"
    assert format_cell(snapshot, jdbc) == "at least once (S3, K1, K2)"
    assert format_cell(scylla, jdbc) == "at most once"
    assert (
        format_cell(MatrixEnd("files", "exactly-once", ("S4",)), MatrixEnd("kafka", "exactly-once", ("K3",)))
        == "at least once (S4, K3)"
    )


def test_a_mark_must_fit_what_its_sink_offers() -> None:
    proof = Proof("into", "http", "exactly-once", "tests/test_a.py::test_rows", ("driver",))
    with pytest.raises(ConfigInvalid, match="http offers at-least-once, none, not exactly-once"):
        check_offers([proof], {"http": ("at-least-once", "none")})
    with pytest.raises(ConfigInvalid, match="there is no http; there are jdbc"):
        check_offers([proof], {"jdbc": ("exactly-once",)})


def test_the_page_names_what_a_sink_offers_and_no_test_shows() -> None:
    proofs = [
        Proof("from", "mysql stream", "exactly-once", "tests/a.py::test_a", ("worker",)),
        Proof("into", "http", "at-least-once", "tests/b.py::test_b", ("driver",)),
    ]
    page = render_page(proofs, ["mysql"], {"http": ("at-least-once", "none"), "redis": ("exactly-once",)}, "")
    assert "| `mysql stream` | at least once (S1, K1) | at most once |" in page
    assert "- `redis` offers exactly once; no test shows more than at most once." in page
    assert "| K1 | into `http` | at least once | driver | `tests/b.py::test_b` |" in page
