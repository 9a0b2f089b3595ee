"""Snapshots on request, lag and versions of tables: what REST asks of source connectors beyond Kafka Connect's API.

A request becomes an instruction in the placement topic (``worker.control.state.instructions``); the workers that run the
connector's tasks hand it to them. The progress of a snapshot is in the connector's saved offsets, so any worker can report it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from connectors.api import SNAPSHOT_ENDED
from connectors.errors import ConfigInvalid, Retriable
from connectors.source_options.start_times import start_ms
from worker.control.herder.base import ask_host, lock_of
from worker.control.herder.offsets import read_positions
from worker.control.state.instructions import KEPT, MOST_BYTES, instructions_record, prune_rows, with_state
from worker.control.state.rule_sets import with_earlier_rules
from worker.protocol import CheckSnapshot, ConnectorView
from worker.rest.facade import RestError
from worker.schedule import START_MS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from worker.control.herder.base import HerderContext
    from worker.protocol import ToHost

_log = logging.getLogger(__name__)
_CATCH_UP_S: Final = 2.0
#: Ended as somebody wanted it: these make room for others. Why one failed stays to be seen until it is deleted.
_FORGOTTEN: Final = SNAPSHOT_ENDED - {"failed"}
_STATES: Final = {"pause": "paused", "resume": "running", "cancel": "cancelled"}


class SnapshotOperations:
    """``/connectors/NAME/snapshots``, ``/lag`` and ``/tables``."""

    def __init__(self, ctx: HerderContext) -> None:
        self.ctx = ctx

    async def create_snapshot(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for a snapshot; the request as it is kept."""
        await self._lead_known(name)
        fields = {key: value for key, value in request.items() if key not in {"id", "start_at", "time_zone"}}
        timing = _read_timing(request)
        config = self.ctx.snapshot.connectors[name]
        try:
            whole = with_earlier_rules(self.ctx.node.placement.rules, config, fields)
        except ConfigInvalid as error:
            raise RestError(400, f"Connector {name}: {error}") from None
        try:
            encoded = orjson.dumps(whole)
        except TypeError as error:  # half of a surrogate pair, a number beyond 64 bits
            raise RestError(400, f"Connector {name}: the request can't be kept: {error}") from None
        checked: dict[str, Any] = await self._ask_class(name, CheckSnapshot(config, encoded))
        async with self._change_lock(name):
            ended = await self._ended_ids(name) if len(self.instructions(name)) >= KEPT else frozenset()
            rows = self.instructions(name)
            snapshot_id = request.get("id") or _new_id()
            if any(row["id"] == snapshot_id for row in rows):
                raise RestError(409, f"Snapshot {snapshot_id} of connector {name} already exists")
            instruction = {
                **checked,
                "id": snapshot_id,
                "state": "running",
                "origin": "rest",
                "created_ms": _now_ms(),
                **timing,
            }
            if len(rows) >= KEPT:
                rows = prune_rows(rows, ended, KEPT - 1)
            await self._write_instructions(name, [*rows, instruction])
        is_early = instruction.get(START_MS, 0) > instruction["created_ms"]
        return {**instruction, "state": "scheduled"} if is_early else instruction

    async def list_snapshots(self, name: str) -> list[dict[str, Any]]:
        """All snapshots of a connector with their progress."""
        await self.ctx.require_connector(name)
        return await self._read_rows(name)

    async def snapshot(self, name: str, snapshot: str) -> dict[str, Any]:
        """One of them."""
        await self.ctx.require_connector(name)
        return await self._find_row(name, snapshot)

    async def steer_snapshot(self, name: str, snapshot: str, action: Literal["pause", "resume", "cancel"]) -> None:
        """Pause, resume or cancel one, whoever started it."""
        await self._lead_known(name)
        row = await self._find_row(name, snapshot)
        state = _STATES[action]
        async with self._change_lock(name):
            rows = self.instructions(name)
            asked = next((candidate for candidate in rows if candidate["id"] == snapshot), None)
            if asked is None and row.get("origin") == "rest":
                raise RestError(404, f"Snapshot {snapshot} of connector {name} not found")  # deleted meanwhile
            # What was asked last counts: its effect may not be saved yet.
            now = row["state"] if asked is None else asked["state"]
            if now in SNAPSHOT_ENDED or row["state"] in SNAPSHOT_ENDED:
                now = now if now in SNAPSHOT_ENDED else row["state"]
                if now == state:
                    return
                raise RestError(
                    400,
                    f"Snapshot {snapshot} of connector {name} is {now}: it can't be {state} any more. "
                    f"POST /connectors/{name}/snapshots asks for a new one",
                )
            if now != state:
                await self._write_instructions(name, with_state(rows, row, state, _now_ms()))

    async def delete_snapshot(self, name: str, snapshot: str) -> None:
        """Forget a request, and end it if it runs."""
        await self._lead_known(name)
        async with self._change_lock(name):
            rows = self.instructions(name)
            kept = [row for row in rows if row["id"] != snapshot or row.get("origin") != "rest"]
            if len(kept) < len(rows):
                await self._write_instructions(name, kept)
                return
        await self._find_row(name, snapshot)
        raise RestError(
            400,
            f"Snapshot {snapshot} of connector {name} was not asked for over REST and can't be deleted; PUT "
            f"/connectors/{name}/snapshots/{snapshot}/cancel ends it",
        )

    async def connector_lag(self, name: str) -> dict[str, Any]:
        """How far a connector is behind its source."""
        await self.ctx.require_connector(name)
        lag: dict[str, Any] = await self._read_view(name, "lag")
        return {"connector": name, **lag}

    async def connector_tables(self, name: str) -> list[dict[str, Any]]:
        """A connector's tables with their versions."""
        await self.ctx.require_connector(name)
        tables: list[dict[str, Any]] = await self._read_view(name, "tables")
        return tables

    # For other parts of the herder.

    def instructions(self, name: str) -> list[dict[str, Any]]:
        """Return the instructions for a connector."""
        return self.ctx.node.placement.instructions.get(name)

    async def ended_snapshots(self, name: str) -> frozenset[str]:
        """Requests that have come to their end, as far as the connector can tell now."""
        if not self.instructions(name):
            return frozenset()
        try:
            return await self._ended_ids(name)
        except RestError as error:
            _log.warning("Connector %s does not tell which of its snapshots have ended: %s", name, error)
            return frozenset()

    async def forget_snapshots(self, name: str, ids: frozenset[str]) -> None:
        """Delete these requests."""
        if ids:
            async with self._change_lock(name):
                await self._write_instructions(name, prune_rows(self.instructions(name), ids, 0))

    # Parts.

    async def _ended_ids(self, name: str) -> frozenset[str]:
        return frozenset(row["id"] for row in await self._read_view(name, "snapshots") if row["state"] in _FORGOTTEN)

    async def _lead_known(self, name: str) -> None:
        await self.ctx.lead()
        await self.ctx.require_connector(name)

    def _change_lock(self, name: str) -> asyncio.Lock:
        """Held from reading a connector's list until its successor is written; it is not deleted meanwhile."""
        return lock_of(self.ctx.config_locks, name)

    async def _write_instructions(self, name: str, rows: list[dict[str, Any]]) -> None:
        key, value = instructions_record(name, rows)
        if value is not None and len(value) > MOST_BYTES:
            raise RestError(
                400,
                f"The requests of connector {name} for snapshots take {len(value)} bytes, more than "
                f"{MOST_BYTES}: delete some of them, or name tables by patterns",
            )
        if name not in self.ctx.snapshot.connectors:
            raise RestError(404, f"Connector {name} not found")
        await self.ctx.node.leader.write(placement=[(key, value)])

    async def _find_row(self, name: str, snapshot: str) -> dict[str, Any]:
        match = next((row for row in await self._read_rows(name) if row["id"] == snapshot), None)
        if match is None:
            raise RestError(404, f"Snapshot {snapshot} of connector {name} not found")
        return match

    async def _read_rows(self, name: str) -> list[dict[str, Any]]:
        if not self.ctx.node.leader.active:
            with contextlib.suppress(Retriable):  # Kafka is unavailable: answer with the last known state
                await self.ctx.node.placement.log.read_to_end(_CATCH_UP_S)
        rows: list[dict[str, Any]] = await self._read_view(name, "snapshots")
        return rows

    async def _read_view(self, name: str, view_name: Literal["snapshots", "lag", "tables"]) -> Any:
        if self.ctx.connector_type(self.ctx.snapshot.connectors[name]) == "sink":
            raise RestError(400, f"Connector {name} is a sink: GET /connectors/{name}/progress says how far it is")
        offsets = _to_json([[partition, offset] for partition, offset in await read_positions(self.ctx, name)])
        return await self._ask_class(
            name,
            ConnectorView(
                self.ctx.snapshot.connectors[name],
                view_name,
                offsets,
                self.ctx.node.placement.instructions.encoded(name),
            ),
        )

    async def _ask_class(self, name: str, message: ToHost) -> Any:
        """Return the answer of the connector's class."""
        return orjson.loads(await ask_host(self.ctx, message, f"Connector {name}: "))


def _read_timing(request: Mapping[str, Any]) -> dict[str, Any]:
    """When the snapshot begins, as far as the request says so."""
    at, zone = str(request.get("start_at") or ""), str(request.get("time_zone") or "")
    if not at and not zone:
        return {}
    if not at:
        raise RestError(
            400, "time_zone is about start_at, which is missing: name the time at which the snapshot begins"
        )
    try:
        return {START_MS: start_ms(at, zone, _now_ms())}
    except ConfigInvalid as error:
        raise RestError(400, str(error)) from error


def _new_id() -> str:
    """An id that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def _now_ms() -> int:
    return int(time.time() * 1000)


def _to_json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # whole numbers beyond 64 bits
        return json.dumps(value).encode()
