"""The process of a verification: lines in, lines out."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid
from connectors.verify.differences import MOST_COLUMNS, MOST_LETTERS, MOST_ROWS, RowDifference
from connectors.verify.rows import TableReport
from worker.control.herder.verify import _LINE
from worker.verify import process as verify_process
from worker.verify.command import table_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def run(monkeypatch: pytest.MonkeyPatch, *lines: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and what the process sends."""
    sent = io.BytesIO()
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps(line) + "\n" for line in lines)))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(sent))
    code = verify_process.main()
    return code, [json.loads(line) for line in sent.getvalue().splitlines()]


def request(**connector: str) -> dict[str, Any]:
    """A request for all tables of a connector."""
    worker = {"bootstrap.servers": "127.0.0.1:9"}
    return {"connector": connector, "worker": worker, "tables": "", "examples": 5, "timeout_s": 1}


def test_names_of_tables_are_matched_as_a_whole() -> None:
    matches = verify_process.table_filter(r"shop\.orders|stock\..*")
    assert [matches(table) for table in ("shop.orders", "SHOP.orders", "shop.orders2", "stock.items")] == [
        True,
        True,
        False,
        True,
    ]
    assert verify_process.table_filter("")("any.table")
    with pytest.raises(ConfigInvalid, match="no regular expression"):
        verify_process.table_filter("(")


def test_a_note_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class ManyNotes:
        """Notes something of each table."""

        def __init__(self) -> None:
            self.notes = [f"there is no topic t{number}" for number in range(10)]

        async def names(self) -> list[str]:
            return [f"t{number}" for number in range(10)]

        async def reports(self) -> AsyncIterator[TableReport]:
            for number in range(10):
                self.notes.append(f"t{number}: a row can't be read")
                yield TableReport(f"t{number}")

    monkeypatch.setattr(verify_process, "build_verification", lambda *_: ManyNotes())
    code, sent = run(monkeypatch, request())
    notes = [note for message in sent for note in message.get("notes", ())]
    assert (code, len(notes), len(set(notes))) == (0, 20, 20)


def test_a_refusal_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    code, sent = run(monkeypatch, request(**{"connector.class": "datagen"}))
    assert (code, sent) == (
        0,
        [{"error": "connector.class=datagen: only MySQL, MariaDB, Scylla and Cassandra connectors can be verified"}],
    )


def test_a_defect_is_an_answer_and_is_described_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def compare(connector: dict[str, str], *_: Any) -> None:
        raise LookupError(connector["database.password"])

    monkeypatch.setattr(verify_process, "compare_tables", compare)
    code, sent = run(monkeypatch, request(**{"connector.class": "mysql", "database.password": "s3cret-word"}))
    (answer,) = sent
    assert code == 0
    assert "The process that compared met a defect: LookupError" in answer["error"]
    described = capsys.readouterr().err
    assert "in compare" in described
    assert "s3cret-word" not in described + answer["error"]


def test_nothing_is_said_to_a_worker_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch) == (1, [])


def test_the_largest_result_of_a_table_fits_into_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    letter = "\N{GRINNING FACE}"
    key, values = letter * 200, {f"{letter * 60}{number}": letter * MOST_LETTERS for number in range(MOST_COLUMNS)}
    report = TableReport(
        "t", condition=" OR ".join(["(`id` = _utf8mb4 X'" + letter.encode().hex() * 190 + "')"] * 2_000)
    )
    for kind in ("missing", "extra", "different", "unsettled"):
        report.examples[kind] = [key] * 1_000
        report.differences += [RowDifference(kind, key, values, values)] * MOST_ROWS
    sent = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(sent))
    verify_process.send_message({"table": table_body(report), "notes": []})
    assert len(sent.getvalue()) < _LINE
