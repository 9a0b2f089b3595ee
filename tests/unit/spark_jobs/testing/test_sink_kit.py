"""The parts of the sinks' conformance kit that need no Spark: what must be there, how it differs, the gate."""

from __future__ import annotations

import socket
import socketserver
import threading
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, StringType

from spark_jobs.contract import Column, TableSchema
from spark_jobs.testing import Gate, Supports, change
from spark_jobs.testing.faults import spread_evenly
from spark_jobs.testing.model import compare_rows, expected_rows, make_comparable

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = TableSchema("d.t", (Column("id", IntegerType(), nullable=False, key=True), Column("name", StringType())))
HISTORY = Supports(upsert=False)


def plain(column: Column, value: Any) -> Any:
    del column
    return value


@given(
    st.lists(st.tuples(st.sampled_from("iud"), st.integers(0, 3), st.text(max_size=2)), max_size=12).flatmap(
        lambda operations: st.tuples(st.just(operations), st.permutations(range(len(operations))))
    )
)
def test_with_ordering_the_order_in_which_changes_come_does_not_matter(drawn: tuple[list[Any], list[int]]) -> None:
    operations, order = drawn
    changes = [change(op, number, id=key, name=name) for number, (op, key, name) in enumerate(operations)]
    in_order = expected_rows(changes, SCHEMA, Supports())
    shuffled = expected_rows([changes[index] for index in order], SCHEMA, Supports())
    assert compare_rows(SCHEMA, Supports(), in_order, shuffled, plain) == ""
    assert len({row["id"] for row in in_order}) == len(in_order)


def test_histories_keep_each_change_and_repeats_count_where_they_are_wrong() -> None:
    changes = [change("i", 1, id=1, name="a"), change("b", 2, id=1, name="a"), change("d", 3, id=1)]
    rows = expected_rows(changes, SCHEMA, HISTORY)
    assert [(row["ums_op_"], row["name"]) for row in rows] == [("i", "a"), ("b", "a"), ("d", None)]
    twice = [*rows, rows[0]]
    assert compare_rows(SCHEMA, HISTORY, rows, twice, plain, repeats=True) == ""
    assert compare_rows(SCHEMA, HISTORY, rows, twice, plain) == (
        "there, and not expected: {id: 1, name: 'a', ums_id_: 1, ums_op_: 'i'}\nexpected 3 rows, the target has 4"
    )


def test_differences_are_shown_by_column_with_both_rows_and_not_at_full_length() -> None:
    text = compare_rows(
        SCHEMA, Supports(), [{"id": 1, "name": "x" * 3000}], [{"id": 1, "name": None, "other": 5}], plain
    )
    lines = text.splitlines()
    assert lines[0].startswith("id=1: column name is None, expected 'xxx")
    assert lines[1].startswith("expected, and not there: {id: 1, name: 'xxx")
    assert lines[2] == "there, and not expected: {id: 1, name: None}"
    assert "(3002 characters)" in text
    assert len(text) < 700


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"ab", bytearray(b"ab")),
        (b"ab", memoryview(b"ab")),
        (Decimal("1.50"), Decimal("1.5")),
        (1, True),
        (float("nan"), float("nan")),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), datetime(2026, 1, 1, tzinfo=UTC)),
        ({"a": 1, "b": [2]}, {"b": (2,), "a": 1}),
    ],
)
def test_values_that_clients_give_back_in_other_forms_are_equal(first: Any, second: Any) -> None:
    assert make_comparable(first) == make_comparable(second)


def test_steps_are_spread_evenly_and_the_last_one_is_among_them() -> None:
    assert spread_evenly(3, 8) == [1, 2, 3]
    assert spread_evenly(40, 4) == [10, 20, 30, 40]
    assert spread_evenly(1, 4) == [1]


class Echo(socketserver.BaseRequestHandler):
    """Sends back what comes."""

    def handle(self) -> None:
        while data := self.request.recv(100):
            self.request.sendall(data)


@pytest.fixture
def gate() -> Iterator[Gate]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Gate(*server.server_address) as opened:
            yield opened
        server.shutdown()


def ask(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(100)


def connect(gate: Gate) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gate.port), timeout=20)


@pytest.mark.parametrize("lose_answer", [False, True])
def test_a_gate_counts_requests_and_breaks_once(gate: Gate, *, lose_answer: bool) -> None:
    seen: list[int] = []
    gate.on_request = seen.append
    with connect(gate) as client:
        assert ask(client, b"one") == b"one"
        gate.break_at(2, lose_answer=lose_answer)
        assert ask(client, b"two") == b"two"
        assert ask(client, b"three") == b""
    assert not gate.keep_whole()
    with connect(gate) as client:
        assert ask(client, b"four") == b"four"
    assert seen == [1, 2, 3, 4]
    assert gate.requests == 4
    gate.break_at(1)
    assert gate.keep_whole()


def test_a_gate_closes_delays_and_is_silent(gate: Gate) -> None:
    with connect(gate) as client:
        assert ask(client, b"x") == b"x"
        with gate.closed():
            assert client.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                connect(gate)
    with connect(gate) as client, gate.delayed(0.001):
        assert ask(client, b"late") == b"late"
    with gate.silent(), connect(gate) as client:
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            ask(client, b"never")
    with connect(gate) as client:
        assert ask(client, b"again") == b"again"
