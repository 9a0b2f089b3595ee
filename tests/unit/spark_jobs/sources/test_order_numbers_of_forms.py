"""The same MySQL change has one order number, in whatever form it is sent and by whatever part it is read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.mysql.source import event_types as types
from spark_jobs.materializer.contract import InputRecord
from spark_jobs.materializer.decoding.rows import RowEventReader
from spark_jobs.materializer.engine.model import MergeOptions
from tests.unit.connectors.mysql.synthetic import FILE, Log, payload, query, reader, rows_body, table_map
from tests.unit.spark_jobs.sources.support import Table
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from connectors.api import SourceRecord

KEYS = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=3)
TRANSACTIONS = st.lists(st.tuples(st.booleans(), st.integers(1, 400), KEYS), min_size=1, max_size=4)


def written(log: Log, number: int, times: int, groups: list[list[int]], *, compressed: bool) -> None:
    """One transaction that changes rows ``times`` times."""
    if not compressed:
        log.transaction(number, *groups)
        return
    log.gtid(number)
    inner = [(types.QUERY, query("BEGIN", ""))]
    for group in groups * times:
        inner += [
            (types.TABLE_MAP, table_map("t", 90)),
            (types.WRITE_ROWS, rows_body([(key, 1, b"") for key in group], 90)),
        ]
    log.event(types.TRANSACTION_PAYLOAD, payload(*inner, (types.XID, bytes(8)), compressed=True))


async def both_forms(log: Log) -> tuple[list[SourceRecord], list[SourceRecord]]:
    begin = {"file": FILE, "pos": log.events[0][0]}
    raws = log.since(log.events[0][0])
    return await reader(begin).feed(raws), await reader(begin, ums=True, max_rows=7).feed(raws)


def encoded(records: list[SourceRecord], *, schemas: bool) -> list[tuple[bytes | None, bytes | None]]:
    converters = [JsonConverter({"schemas.enable": str(schemas).lower()}, is_key=is_key) for is_key in (True, False)]
    return [
        (
            converters[0].encoder("t", record.key_schema)(record.key),
            converters[1].encoder("t", record.value_schema)(record.value),
        )
        for record in records
    ]


def materialized(form: Any, pairs: list[tuple[bytes | None, bytes | None]]) -> list[int]:
    """The positions by which a materializer orders the rows of these messages."""
    options = MergeOptions(topic="t", name="n", input_format=form, input_encoding="json", key_columns=("id",))

    def no_registry() -> Any:
        raise AssertionError("JSON needs no registry")

    of = RowEventReader(options, no_registry)
    return [
        change.position
        for offset, (key, value) in enumerate(pairs)
        for change in of.changes(InputRecord(key, value, offset, 0))
    ]


def check(transactions: list[tuple[bool, int, list[list[int]]]]) -> list[int]:
    log = Log()
    for number, (compressed, times, groups) in enumerate(transactions, 5):
        written(log, number, times, groups, compressed=compressed)
    debezium, ums = asyncio.run(both_forms(log))
    from_ums = [int(row["tuple"][0]) for record in ums for row in record.value["payload"]]
    pairs = encoded(debezium, schemas=True)
    values = [value for _, value in pairs if value is not None]
    table = Table(values[0])
    from_json = [row["ums_id_"] for row in table.rows(values, [key for key, _ in pairs])]
    assert table.reported == []
    assert from_json == from_ums
    assert materialized("debezium", pairs) == from_ums
    assert materialized("ums", encoded(ums, schemas=False)) == from_ums
    numbers: dict[int, list[int]] = {}
    for record, number in zip(debezium, from_ums, strict=True):
        numbers.setdefault(record.value["source"]["pos"], []).append(number)
    sizes = {at: len(raw) for at, raw in log.events}
    last = 0
    for pos, of_event in sorted(numbers.items()):
        assert of_event == sorted(of_event)
        assert last < of_event[0] == 7 * 10**12 + pos
        assert len(set(of_event)) == min(len(of_event), sizes[pos]), "rows are unique up to the event's bytes"
        last = of_event[-1]
        assert last < 7 * 10**12 + pos + sizes[pos]
    uids = [row["tuple"][3] for record in ums for row in record.value["payload"]]
    assert len(set(uids)) == len(uids)
    return from_ums


@settings(deadline=None, max_examples=25)
@given(TRANSACTIONS)
def test_all_forms_and_readers_agree(transactions: list[tuple[bool, int, list[list[int]]]]) -> None:
    check(transactions)


def test_a_compressed_event_with_more_rows_than_bytes() -> None:
    numbers = check([(True, 400, [[1, 2], [1]]), (False, 1, [[1]]), (True, 400, [[3]])])
    assert len(set(numbers)) < len(numbers)


@pytest.mark.parametrize("form", ["debezium", "ums"])
def test_the_last_of_changes_with_one_number_stands(form: str) -> None:
    """By the newest row of a batch that is written to a database."""
    import pyarrow as pa

    from spark_jobs.sinks.jdbc.rows import select_newest

    rows = pa.table(
        {
            "id": [1, 1, 1],
            "v": ["a", "b", "c"],
            "ums_id_": [7, 7, 7],
            "kafka_topic_": ["t"] * 3,
            "kafka_partition_": [0] * 3,
            "kafka_offset_": [4, 5, 6] if form == "debezium" else [4, 4, 4],
        }
    )
    assert select_newest(rows, ["id"]).column("v").to_pylist() == ["c"]
