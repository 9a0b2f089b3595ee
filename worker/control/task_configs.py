"""Task configurations of the connectors that run here, on their way to the leader."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import orjson

from connectors.backoff import Backoff
from connectors.errors import MillraceError
from worker.control.placement.desired_runs import need_new_configs
from worker.control.placement.planning import INSTANCE, Unit
from worker.rest.facade import NotLeader, RestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from worker.control.node import WorkerNode

_log = logging.getLogger(__name__)
_FIRST_RETRY_S: Final = 0.25
_LAST_RETRY_S: Final = 10.0
#: The status of the leader's refusal of a key or a time.
_STALE: Final = 503


class TaskConfigSubmission:
    """Submits what connectors' instances say their tasks are, until the leader has written it.

    Args:
        node: this worker.
        put: writes them where this worker leads.
    """

    def __init__(self, node: WorkerNode, put: Callable[[str, list[dict[str, str]]], Awaitable[None]]) -> None:
        self._node = node
        self._put = put
        self._noted_configs: dict[str, list[dict[str, str]]] = {}
        self._submitting: dict[str, asyncio.Task[None]] = {}
        #: Since when a connector's do not get to the leader, and why.
        self._refusals: dict[str, tuple[float, str]] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._submitting

    def find_refusal(self, longer_than_s: float) -> str | None:
        """Why task configurations have not got to the leader for the given number of seconds; None if all have.

        It is shown to everybody: it names no connector and no address.
        """
        began_before = time.monotonic() - longer_than_s
        reasons = [reason for since, reason in self._refusals.values() if since < began_before]
        if not reasons:
            return None
        connectors = "a connector" if len(reasons) == 1 else f"{len(reasons)} connectors"
        return f"The task configurations of {connectors} here do not get to the leader: {reasons[0]}"

    def note(self, name: str, configs: list[dict[str, str]]) -> None:
        """An instance says what its connector's tasks are."""
        self._noted_configs[name] = configs
        self.submit(name)

    def forget(self, name: str) -> None:
        """An instance has stopped: its successor says what the tasks are."""
        self._noted_configs.pop(name, None)

    async def stop(self) -> None:
        """Give up what is on its way."""
        tasks = list(self._submitting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def submit(self, name: str) -> None:
        """Begin to submit a connector's task configurations, if some have to be written; does not block."""
        if name in self._submitting or self._find_unwritten(name) is None:
            return
        self._submitting[name] = asyncio.create_task(self._submit_until_done(name), name=f"task-configs-{name}")

    def _find_unwritten(self, name: str) -> list[dict[str, str]] | None:
        """Task configurations of a connector that have to be written.

        None if there are none, or if its instance still runs by an older configuration: its successor says what the tasks are.
        """
        new_configs, snapshot = self._noted_configs.get(name), self._node.config.snapshot
        instance = self._node.reconciler.local_runs.get(Unit(name, INSTANCE))
        if (
            new_configs is None
            or instance is None
            or instance.desired.connector_config != snapshot.connectors.get(name)
        ):
            return None
        return new_configs if need_new_configs(new_configs, snapshot, name) else None

    async def _submit_until_done(self, name: str) -> None:
        try:
            pauses = Backoff(_FIRST_RETRY_S, _LAST_RETRY_S)
            # Between the last look and the end nothing may come in: it would find this still at work, and be left lying.
            while (new_configs := self._find_unwritten(name)) is not None:
                try:
                    await self._send(name, new_configs)
                    # The leader has written them; they arrive here by the topic.
                    pauses.reset()
                    self._refusals.pop(name, None)
                except NotLeader:
                    pass  # there is no leader yet, or it changes
                except (MillraceError, OSError) as error:
                    since, _ = self._refusals.get(name, (time.monotonic(), ""))
                    is_stale = isinstance(error, RestError) and error.status == _STALE
                    self._refusals[name] = since, str(error) if is_stale else "the worker's log says why"
                    _log.warning(
                        "Connector %s: its task configurations did not get to the leader, retrying: %s", name, error
                    )
                await asyncio.sleep(pauses.next_s())
        finally:
            del self._submitting[name]
            self._refusals.pop(name, None)

    async def _send(self, name: str, new_configs: list[dict[str, str]]) -> None:
        if self._node.leader.chosen:
            await self._put(name, new_configs)
            return
        url, key = self._node.leader.url, self._node.session_key()
        if url is None or key is None:
            raise NotLeader(url)
        await self._node.client.send_signed(
            "POST", url, f"/connectors/{quote(name, safe='')}/tasks", orjson.dumps(new_configs), key
        )
