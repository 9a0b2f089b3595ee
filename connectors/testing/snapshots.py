"""The requirements on a connector with snapshots on request, one function for one promise. Each gets a fresh source."""

# ruff: noqa: S101 - asserting is what a test kit does
from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from connectors.testing.contexts import position_key
from connectors.testing.driver import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceConnector
    from connectors.testing.contexts import SavedOffsets
    from connectors.testing.harness import Harness

    Source = type[SourceConnector]

_ROWS: Final = 40
#: How long to wait for a batch before the condition is looked at again, seconds.
_LOOK_S: Final = 0.2


class _Bench:
    """A connector that runs, and what it has read of the table for snapshots."""

    def __init__(self, connector: Source, harness: Harness, run: Run, before: _Bench | None = None) -> None:
        self._connector = connector
        self._harness = harness
        self.requests: dict[str, dict[str, Any]] = {} if before is None else before.requests
        self.run = run
        self.rows: Counter[str] = Counter() if before is None else before.rows
        run.instruct(list(self.requests.values()))

    def ask(self, name: str, state: str = "running", priority: int = 0) -> None:
        """Ask for a snapshot of the table, or for another state of one."""
        checked = self._connector.check_snapshot(
            self.run.context.config, {"tables": [self._harness.table_pattern()], "priority": priority}
        )
        request = {**checked, "id": name, "origin": "rest", "created_ms": int(time.time() * 1000)}
        self.requests[name] = {**self.requests.get(name, request), "state": state}
        self.run.instruct(list(self.requests.values()))

    def delete(self, name: str) -> None:
        """Delete a request."""
        del self.requests[name]
        self.run.instruct(list(self.requests.values()))

    def view(self, name: str) -> dict[str, Any]:
        """A snapshot as REST shows it."""
        views = self._connector.snapshots(
            self.run.context.config, list(self.requests.values()), self.run.offsets.items()
        )
        return next(view for view in views if view["id"] == name)

    async def until(self, condition: Callable[[], bool], reason: str) -> None:
        """Take batches until a condition holds."""
        end = asyncio.get_running_loop().time() + self._harness.timeout
        while not condition():
            assert asyncio.get_running_loop().time() < end, (
                f"not within {self._harness.timeout:g} s: {reason}; log:\n{self.run.log.text()}"
            )
            result = await self.run.take(_LOOK_S)
            for record in result[1].records if result is not None else ():
                if (row := self._harness.snapshot_row(record)) is not None:
                    self.rows[row] += 1

    async def completed(self, name: str) -> None:
        """Wait for the end of a snapshot."""
        await self.until(lambda: self.view(name)["state"] == "completed", f"snapshot {name} is completed")

    def assert_read(self, times: int, rows: int = _ROWS) -> None:
        """Each row was read that often."""
        assert len(self.rows) == rows, f"{len(self.rows)} of {rows} rows were read"
        others = {row: count for row, count in self.rows.items() if count != times}
        assert not others, f"rows that were not read {times} times: {others}"


def _make_run(connector: Source, harness: Harness, offsets: SavedOffsets | None = None) -> Run:
    return Run(connector, harness.config(), offsets=offsets, max_tasks=harness.max_tasks)


async def reads_a_table_on_request(connector: Source, harness: Harness) -> None:
    """A running task takes a request, reads each row of the table once, and shows that it is done."""
    await harness.add(_ROWS)
    async with _make_run(connector, harness) as run:
        bench = _Bench(connector, harness, run)
        bench.ask("one")
        assert bench.view("one")["state"] in ("waiting", "running"), "a request is listed at once"
        await bench.completed("one")
        bench.assert_read(1)
        view = bench.view("one")
    assert (view["origin"], view["percent"], view["rows_done"]) == ("rest", 100.0, _ROWS)
    assert [table["state"] for table in view["tables"]] == ["completed"], view
    assert 0 < view["started_ms"] <= view["finished_ms"], view


async def a_paused_snapshot_waits(connector: Source, harness: Harness) -> None:
    """A paused request reads nothing, though it comes first, and holds no other up; resumed it reads everything."""
    await harness.add(_ROWS)
    async with _make_run(connector, harness) as run:
        bench = _Bench(connector, harness, run)
        bench.ask("first", "paused", priority=5)
        bench.ask("second")
        await bench.completed("second")
        bench.assert_read(1)
        assert bench.view("first")["state"] == "paused"
        bench.ask("first", "running")
        await bench.completed("first")
        bench.assert_read(2)


async def a_cancelled_snapshot_stays_so(connector: Source, harness: Harness) -> None:
    """A cancelled request reads nothing, also after a restart."""
    await harness.add(_ROWS)
    async with _make_run(connector, harness) as run:
        bench = _Bench(connector, harness, run)
        bench.ask("first", "cancelled", priority=5)
        bench.ask("second")
        await bench.completed("second")
    async with _make_run(connector, harness, run.offsets) as run:
        bench = _Bench(connector, harness, run, bench)
        bench.ask("third")
        await bench.completed("third")
        bench.assert_read(2)
        assert [bench.view(name)["state"] for name in ("first", "second")] == ["cancelled", "completed"]


async def a_snapshot_resumes_after_a_restart(connector: Source, harness: Harness) -> None:
    """A restart amid a snapshot repeats no row that was delivered and loses none."""
    await harness.add(_ROWS)
    async with _make_run(connector, harness) as run:
        bench = _Bench(connector, harness, run)
        bench.ask("one")
        await bench.until(lambda: bool(bench.rows), "the first rows")
    async with _make_run(connector, harness, run.offsets) as run:
        bench = _Bench(connector, harness, run, bench)
        await bench.completed("one")
        bench.assert_read(1)


async def a_deleted_request_leaves_nothing(connector: Source, harness: Harness) -> None:
    """The saved state of a request is deleted with it."""
    await harness.add(_ROWS)
    async with _make_run(connector, harness) as run:
        bench = _Bench(connector, harness, run)
        bench.ask("short-lived")
        await bench.completed("short-lived")

        def kept() -> bool:
            return any("short-lived" in position_key(partition) for partition, _ in run.offsets.items())

        assert kept(), "the source partitions of a request name it"
        bench.delete("short-lived")
        await bench.until(lambda: not kept(), "nothing is saved of a deleted request")


async def refuses_what_it_can_not_read(connector: Source, harness: Harness) -> None:
    """A request without tables, with an invalid expression, or with an unknown member is refused."""
    config = connector.config_def.parse(harness.config())
    table = harness.table_pattern()
    refused: tuple[dict[str, Any], ...] = ({}, {"tables": []}, {"tables": ["("]}, {"tables": [table], "colour": "blue"})
    for request in refused:
        try:
            connector.check_snapshot(config, request)
        except ConfigInvalid:
            continue
        raise AssertionError(f"it takes {request}")


async def tells_its_lag_and_tables(connector: Source, harness: Harness) -> None:
    """``lag`` names each table, and ``tables`` its version."""
    await harness.add(_ROWS)
    async with _make_run(connector, harness) as run:
        bench = _Bench(connector, harness, run)
        bench.ask("one")
        await bench.completed("one")
        config = run.context.config

        async def tables() -> list[dict[str, Any]]:
            answer = connector.tables(config, run.offsets.items())
            return await answer if inspect.isawaitable(answer) else answer

        await harness.add(1)
        while not (versions := await tables()):
            assert await run.take(harness.timeout) is not None, f"no table is known; log:\n{run.log.text()}"
        lag = await connector.lag(config, run.offsets.items())
    assert {"time_behind_s", "bytes_behind", "tables", "heartbeat", "position", "source_position"} <= lag.keys(), lag
    assert len(versions) == 1, versions
    assert versions[0]["version"], versions
    assert [row["table"] for row in lag["tables"]] in ([], [versions[0]["table"]]), lag


SNAPSHOT_CHECKS: Final = {
    check.__name__: check
    for check in (
        reads_a_table_on_request,
        a_paused_snapshot_waits,
        a_cancelled_snapshot_stays_so,
        a_snapshot_resumes_after_a_restart,
        a_deleted_request_leaves_nothing,
        refuses_what_it_can_not_read,
        tells_its_lag_and_tables,
    )
}
