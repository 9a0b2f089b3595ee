"""The records of the progress topic: the words of REST, at most as often as asked, and none where nothing has changed."""

from __future__ import annotations

from typing import Any

from connectors.snapshot.progress import ProgressRecords

INTERVAL_S = 5.0


def progress(topic: str = "progress") -> ProgressRecords:
    return ProgressRecords(
        topic,
        INTERVAL_S,
        name="io.millrace.test",
        shard="0/1",
        position=lambda name: ({"snapshot": name}, {"state": "running"}),
    )


def request(*tables: tuple[str, str, int]) -> dict[str, Any]:
    return {"id": "one", "tables": [{"table": name, "state": state, "rows_done": rows} for name, state, rows in tables]}


def states(records: list[Any]) -> list[tuple[str, str, int]]:
    return [(record.value["table"], record.value["state"], record.value["rows_done"]) for record in records]


def test_only_tables_that_have_changed_have_a_record() -> None:
    sender = progress()
    first = sender.records([request(("a", "done", 3), ("b", "running", 1))], 0.0, 1_000)
    second = sender.records([request(("a", "done", 3), ("b", "running", 2))], 5.0, 6_000)
    third = sender.records([request(("a", "done", 3), ("b", "done", 2))], 10.0, 11_000)
    assert states(first) == [("a", "completed", 3), ("b", "running", 1)]
    assert states(second) == [("b", "running", 2)]
    assert states(third) == [("b", "completed", 2)]
    assert third[0].value["ts_ms"] == 11_000
    assert third[0].key == {"snapshot": "one", "table": "b"}
    # Once all of them are over there is nothing more to say.
    assert sender.records([request(("a", "done", 3), ("b", "done", 2))], 15.0, 16_000) == []


def test_the_words_are_those_of_rest_and_tables_of_other_tasks_are_left_out() -> None:
    records = progress().records([request(("a", "vanished", 0), ("b", "elsewhere", 0), ("c", "failed", 0))], 0.0, 0)
    assert states(records) == [("a", "completed", 0), ("c", "failed", 0)]


def test_the_interval_is_kept() -> None:
    sender = progress()
    assert sender.due(0.0)
    sender.records([request(("a", "running", 1))], 100.0, 0)
    assert [sender.due(now) for now in (100.0, 104.9, 105.0)] == [False, False, True]
    assert sender.due(100.0, last=True), "before a run ends all is said"
    assert not progress("").due(0.0), "without a topic there are none"
