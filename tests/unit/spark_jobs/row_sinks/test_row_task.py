"""The task of sinks of rows: a chunk is written while the next one is prepared, in order, up to the first fault."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.jdbc.config import UPSERT
from spark_jobs.sinks.redis.config import CONFIG_DEF, parse_settings
from spark_jobs.sinks.shared.model import RowTable, WriteCounts
from spark_jobs.sinks.shared.task import SYSTEM, RowTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spark_jobs.sinks.shared.model import Refuse, SinkRow

TABLE = RowTable("shop.orders", ("id",), ("id",))
DEADLINE_S = 60.0


class Client:
    """Keeps what it gets; `before` is called with the number of each write."""

    def __init__(self, before: Callable[[int], None]) -> None:
        self.before = before
        self.written: list[list[int]] = []
        self.threads: set[int] = set()
        self.closed = 0

    def write(self, rows: Sequence[SinkRow], refuse: Refuse) -> WriteCounts:
        del refuse
        self.threads.add(threading.get_ident())
        self.before(len(self.written))
        self.written.append([row.values["id"] for row in rows])
        return WriteCounts(rows=len(rows), requests=1)

    def close(self) -> None:
        self.closed += 1


def batch(number: int) -> pa.RecordBatch:
    values: dict[str, Any] = {
        "id": pa.array([number], pa.int64()),
        "ums_id_": pa.array([number], pa.int64()),
        "ums_ts_": pa.array([0], pa.timestamp("us", "UTC")),
        "ums_op_": pa.array(["u"]),
        "ums_uid_": pa.array([""]),
        "kafka_topic_": pa.array(["t"]),
        "kafka_partition_": pa.array([0], pa.int32()),
        "kafka_offset_": pa.array([number], pa.int64()),
    }
    return pa.RecordBatch.from_pydict({name: values[name] for name in ("id", *SYSTEM)})


def run(client: Client, batches: Iterator[pa.RecordBatch]) -> dict[str, Any]:
    config = CONFIG_DEF.parse({"sink.redis.url": "redis://a", "sink.redis.batch.rows": "1", "sink.redis.retries": "0"})
    assert parse_settings(config).rows.mode == UPSERT
    (report,) = RowTask(TABLE, parse_settings(config).rows, lambda _: client)(batches)
    (row,) = report.to_pylist()
    return dict(row)


def test_the_next_rows_are_prepared_while_rows_are_written() -> None:
    asked = [threading.Event() for _ in range(4)]

    def batches() -> Iterator[pa.RecordBatch]:
        for number, event in enumerate(asked):
            event.set()
            yield batch(number)

    def wait_for_the_next(number: int) -> None:
        assert asked[min(number + 1, 3)].wait(DEADLINE_S)

    client = Client(wait_for_the_next)
    outcome = run(client, batches())
    assert client.written == [[0], [1], [2], [3]]
    assert len(client.threads) == 1
    assert (outcome["rows"], outcome["written"], outcome["error"], client.closed) == (4, 4, None, 1)


@pytest.mark.parametrize("kind", [Retriable, Fatal])
@pytest.mark.parametrize("fault_at", [0, 2, 4])
def test_nothing_is_written_after_a_fault(kind: type[Exception], fault_at: int) -> None:
    def fail(number: int) -> None:
        if number == fault_at:
            raise kind("the server is away")

    client = Client(fail)
    outcome = run(client, map(batch, range(5)))
    assert client.written == [[number] for number in range(fault_at)]
    assert (outcome["written"], outcome["error"]) == (fault_at, "the server is away")
    assert outcome["passing"] is (kind is Retriable)


def test_a_fault_of_the_source_is_raised_after_the_write() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        raise ValueError("no more rows")

    client = Client(lambda _: None)
    with pytest.raises(ValueError, match="no more rows"):
        run(client, batches())
    assert client.written == [[0]]
