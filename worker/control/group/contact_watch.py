"""The watches of the control process: over its contact with Kafka's group coordinator, and over its event loop."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import MillraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.control.group.membership import Contact
    from worker.control.node import WorkerNode

_log = logging.getLogger(__name__)
_WATCH_S: Final = 0.25
#: After this share what has not stopped is killed: the group gives its units away at the whole.
_KILL_SHARE: Final = 0.9
#: A worker that reaches Kafka but can't join the group gives up after this many session timeouts. A supervisor restarts it.
_STALLED_SESSIONS: Final = 20
#: A thread that sleeps one second and wakes this much later was frozen with its process.
_FROZEN_S: Final = 4.0
#: Exit code of a control process whose loop was stuck.
STUCK_EXIT: Final = 70


class ContactWatch:
    """Stops this worker's units when others may start them, and ends a worker that is stuck.

    Args:
        contact: with the group's coordinator.
        node: this worker.
        session_s: ``session.timeout.ms`` in seconds.
        fail: called with the reason when the worker has to end.
    """

    def __init__(self, contact: Contact, node: WorkerNode, session_s: float, fail: Callable[[str], None]) -> None:
        self._contact = contact
        self._node = node
        self._session_s = session_s
        self._fail = fail
        self._watching: asyncio.Task[None] | None = None
        self._loop_seen = time.monotonic()
        self._over = threading.Event()

    def start(self, app: Any) -> None:
        """Begin to watch the contact; a crash of ``app`` ends the worker, too. Does not block."""
        self._watching = asyncio.create_task(self._watch(app), name="contact-watch")

    def start_thread(self) -> None:
        """Begin to watch the event loop from a thread."""
        threading.Thread(target=self._watch_loop, name="loop-watch", daemon=True).start()

    async def stop(self) -> None:
        """End both watches."""
        self._over.set()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self, app: Any) -> None:
        """Stop the units when Kafka may have counted this worker out, and let them run again when it has not."""
        contact, node = self._contact, self._node
        killed = False
        outside_since = time.monotonic()
        while True:
            self._loop_seen = now = time.monotonic()
            age = contact.age()
            trusted = contact.is_trusted()
            if contact.joined or trusted:
                outside_since = now
            if node.view is not None and not node.fenced and not trusted:
                _log.error(
                    "Nothing heard of Kafka's group coordinator for %.1f s: this worker stops its connectors and tasks, "
                    "for others may start them. It continues when Kafka answers again",
                    age,
                )
                node.fenced, killed = True, False
                node.status.hold()
                node.reconciler.wake()
            # Who was counted out before the session's end has no time left.
            if node.fenced and not killed and (contact.counted_out or age > self._session_s * _KILL_SHARE):
                killed = True
                for host in node.pool.hosts:
                    if host.units:
                        _log.error(
                            "Task host %d still runs %s: it is killed", host.number, ", ".join(map(str, host.units))
                        )
                        node.pool.kill(host.number)
            elif node.fenced and node.view is not None and contact.joined and trusted:
                await self._lift_fence()
            if node.view is not None and now - outside_since > self._session_s * _STALLED_SESSIONS:
                self._fail(
                    "the group's membership does not change though Kafka answers; the worker ends so that it can be "
                    "started again"
                )
            if app.crashed:
                self._fail(f"Faust has crashed: {app.crash_reason!r}")
            await asyncio.sleep(_WATCH_S)

    async def _lift_fence(self) -> None:
        """Run again, but only by what is written now: others may have got the units meanwhile."""
        node = self._node
        try:
            # The leader may be about to give this worker's units away. It commits that only if no rebalance has started since
            # it wrote it: it is in the topic by the time at which this worker has joined, perhaps in an open transaction.
            await asyncio.gather(
                node.placement.log.read_to_end(2, open_transactions=True),
                *(store.log.read_to_end(2) for store in (node.config, node.status)),
            )
        except MillraceError:
            return  # looked at again at once
        _log.info("Connected to the group: connectors and tasks run by what is placed here")
        node.fenced = False
        node.status.release()
        node.reconciler.wake()

    def _watch_loop(self) -> None:
        """In a thread: a control process whose loop is stuck must not keep its place in the group by heartbeats alone."""
        limit = max(self._session_s, 5.0)
        looked = time.monotonic()
        while not self._over.wait(1):
            before, looked = looked, time.monotonic()
            if looked - before > _FROZEN_S:
                # The whole process was frozen (SIGSTOP, a suspended machine): the loop gets its chance first.
                self._loop_seen = looked
                continue
            stuck = looked - self._loop_seen
            if stuck > limit and not self._over.is_set():
                sys.stderr.write(
                    f"The control process's event loop has been stuck for {stuck:.1f} s; it ends. All stacks:\n"
                )
                faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
                sys.stderr.flush()
                os._exit(STUCK_EXIT)
