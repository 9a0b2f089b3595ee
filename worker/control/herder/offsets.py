"""Offsets of connectors, read and changed by REST (KIP-875)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import MillraceError
from offsets.positions import to_canonical
from offsets.store import OffsetStore
from worker.control.clients import OFFSETS_TOPIC
from worker.control.herder.base import ask_host, lock_of
from worker.protocol import AlterOffsets, JobOffsets
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offsets.positions import Position
    from worker.control.herder.base import HerderContext
    from worker.control.herder.snapshots import SnapshotOperations

_READ_DEADLINE_S: Final = 60.0
_STOP_DEADLINE_S: Final = 15.0
_EXTERNALLY: Final = (
    "The Connect framework-managed offsets for this connector have been {0} successfully. However, if this "
    "connector manages offsets externally, they will need to be manually {0} in the system that the "
    "connector uses."
)
_CHECKED: Final = "The offsets for this connector have been {0} successfully"


class OffsetOperations:
    """``/connectors/NAME/offsets``."""

    def __init__(self, ctx: HerderContext, snapshots: SnapshotOperations) -> None:
        self.ctx = ctx
        self._snapshots = snapshots

    async def connector_offsets(self, name: str) -> list[dict[str, Any]]:
        """All saved positions of a connector."""
        await self.ctx.require_connector(name)
        return [{"partition": partition, "offset": offset} for partition, offset in await self._read_offsets(name)]

    async def alter_connector_offsets(
        self, name: str, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> str:
        """Overwrite positions; None resets one."""
        async with lock_of(self.ctx.config_locks, name):  # it stays stopped, and as it is, until they are written
            await self._check_stopped(name)
            if not offsets:
                raise RestError(400, "Partitions / offsets need to be provided for an alter offsets request")
            changes = [(dict(partition), None if offset is None else dict(offset)) for partition, offset in offsets]
            checked = await self._ask_connector(name, changes)
            if not self._is_sink(name):
                await self._write_offsets(name, changes)
        return (_CHECKED if checked else _EXTERNALLY).format("altered")

    async def reset_connector_offsets(self, name: str) -> str:
        """Forget all positions; requests for snapshots that have ended go too, for nothing else says that they have."""
        await self.ctx.lead()
        await self.ctx.require_connector(name)
        ended = await self._snapshots.ended_snapshots(name)
        message = await self._reset_offsets(name)
        await self._snapshots.forget_snapshots(name, ended)
        return message

    async def _reset_offsets(self, name: str) -> str:
        async with lock_of(self.ctx.config_locks, name):
            await self._check_stopped(name)
            changes: list[tuple[Position, Position | None]] = [
                (partition, None) for partition, _ in await self._read_offsets(name)
            ]
            checked = await self._ask_connector(name, changes)
            if not self._is_sink(name):
                await self._write_offsets(name, changes)
        return (_CHECKED if checked else _EXTERNALLY).format("reset")

    def _is_sink(self, name: str) -> bool:
        """Whether the connector keeps its offsets itself."""
        return self.ctx.connector_type(self.ctx.snapshot.connectors[name]) == "sink"

    async def _check_stopped(self, name: str) -> None:
        await self.ctx.lead()
        await self.ctx.require_connector(name)
        self._require_stopped(name)
        await self.ctx.wait_stopped(name, _STOP_DEADLINE_S)
        fenced = self.ctx.snapshot.fenced_counts.get(name, 0)
        if self.ctx.exactly_once and fenced and not self._is_sink(name):
            await self.ctx.node.leader.fencing.fence_ids(name, fenced)

    def _require_stopped(self, name: str) -> None:
        self.ctx.node.leader.check()
        if self.ctx.snapshot.target_state(name) != "STOPPED" or self.ctx.snapshot.task_counts.get(name, 0):
            raise RestError(
                400,
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be "
                "done for the specified connector by issuing a 'PUT' request to the "
                f"'/connectors/{name}/stop' endpoint",
            )

    async def _ask_connector(self, name: str, changes: Sequence[tuple[Position, Position | None]]) -> bool:
        """Let the connector's class check the change; False if it can't tell."""
        try:
            message = AlterOffsets(self.ctx.snapshot.connectors[name], orjson.dumps(changes))
        except orjson.JSONEncodeError as error:
            raise RestError(400, f"The offsets of connector {name} can't be saved: {error}") from error
        return bool(await ask_host(self.ctx, message, f"Failed to alter connector offsets for connector {name}: "))

    async def _read_offsets(self, name: str) -> list[tuple[Position, Position]]:
        """Positions in the cluster's topic, and over them those in the connector's own; a sink's are where it says."""
        return await (self._read_sink(name) if self._is_sink(name) else read_positions(self.ctx, name))

    async def _read_sink(self, name: str) -> list[tuple[Position, Position]]:
        message = JobOffsets(self.ctx.snapshot.connectors[name])
        subject = f"Failed to retrieve consumer group offsets for connector {name}: "
        return [(partition, offset) for partition, offset in orjson.loads(await ask_host(self.ctx, message, subject))]

    async def _write_offsets(self, name: str, changes: Sequence[tuple[Position, Position | None]]) -> None:
        # Another worker may have led since the first look, and resumed the connector.
        self._require_stopped(name)
        for store in await _open_stores(self.ctx, name):
            try:
                await store.write(name, changes, _READ_DEADLINE_S)
            except MillraceError as error:
                raise RestError(500, f"The offsets of connector {name} were not changed: {error}") from error
            finally:
                if store is not self.ctx.node.offsets:
                    await store.stop()


async def read_positions(ctx: HerderContext, name: str) -> list[tuple[Position, Position]]:
    """A source's saved positions: those in the cluster's topic, and over them those in the connector's own.

    Raises:
        RestError: 500: they can't be read now.
    """
    positions: dict[bytes, tuple[Position, Position]] = {}
    for store in await _open_stores(ctx, name):
        try:
            await store.read_to_end(_READ_DEADLINE_S)
            for partition, offset in await store.positions(name):
                positions[to_canonical(partition)] = (partition, offset)
        except MillraceError as error:
            raise RestError(500, f"The offsets of connector {name} can't be read now: {error}") from error
        finally:
            if store is not ctx.node.offsets:
                await store.stop()
    return list(positions.values())


async def _open_stores(ctx: HerderContext, name: str) -> list[OffsetStore]:
    """The cluster's store, and the connector's own (started here) if it has one."""
    try:
        own_topic = await ctx.own_offsets(ctx.snapshot.connectors[name])
    except MillraceError as error:
        raise RestError(500, f"The client for the offsets of connector {name} can't be set up: {error}") from error
    if own_topic is None:
        return [ctx.node.offsets]
    topic, client = own_topic
    own_store = OffsetStore(topic, client)
    try:
        await own_store.start(_READ_DEADLINE_S)
    except MillraceError as error:
        raise RestError(
            500, f"The topic {topic} ({OFFSETS_TOPIC} of connector {name}) can't be read: {error}"
        ) from error
    return [ctx.node.offsets, own_store]
