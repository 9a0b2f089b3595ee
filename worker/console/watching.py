"""``/console/audit`` and ``/console/metrics``: what all workers remember. Not in Kafka Connect."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from worker.console.trail import MOST_CHANGES, SAMPLE_S, Samples, together
from worker.rest.call import answer
from worker.rest.facade import RestError
from worker.rest.operations import Operation, Reply, Tag
from worker.rest.routing import Access, Route
from worker.rest.schemas import Change, OwnChange, Sample, WorkerSamples
from worker.rest.signing import UNSIGNED

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call
    from worker.rest.facade import Herder

_CHANGES: Final = "/console/changes"
_SAMPLES: Final = "/console/samples"
_log = logging.getLogger("worker.console")


async def sample(herder: Herder, samples: Samples) -> None:
    """Take samples until cancelled."""
    while True:
        now = time.time()
        await asyncio.sleep(SAMPLE_S - now % SAMPLE_S)
        try:
            samples.add(time.time(), *herder.numbers())
        except Exception:  # noqa: BLE001 - charts have a gap
            _log.exception("The console's numbers can't be taken; this is retried")


async def audit(call: Call) -> web.Response:
    """``GET /console/audit``."""
    worker_id = call.herder.me()
    others = await call.herder.from_workers(_CHANGES)
    return answer(together([(worker_id, call.console.trail.changes()), *others.items()], MOST_CHANGES))


async def metrics(call: Call) -> web.Response:
    """``GET /console/metrics``."""
    others = await call.herder.from_workers(_SAMPLES)
    samples_by_worker = {call.herder.me(): call.console.samples.all(), **others}
    return answer([{"worker_id": name, "samples": samples} for name, samples in sorted(samples_by_worker.items())])


async def own_changes(call: Call) -> web.Response:
    """``GET /console/changes``, for other workers."""
    _signed(call)
    return answer(call.console.trail.changes())


async def own_samples(call: Call) -> web.Response:
    """``GET /console/samples``, for other workers."""
    _signed(call)
    return answer(call.console.samples.all())


def _signed(call: Call) -> None:
    if call.principal.method != "worker":
        raise RestError(400, UNSIGNED)


_UNSIGNED: Final = {400: "The request has no signature."}
ROUTES = (
    Route(
        "GET",
        "/console/audit",
        audit,
        Access.ADMIN,
        operation=Operation(
            "listChanges",
            "Who changed what, or was refused, since the workers started: the last 1,000 changes of each.",
            Tag.CONSOLE,
            {200: Reply("The newest first.", list[Change])},
            kafka=False,
        ),
    ),
    Route(
        "GET",
        "/console/metrics",
        metrics,
        operation=Operation(
            "listSamples",
            "Numbers of all workers over the last half hour, one sample every five seconds.",
            Tag.CONSOLE,
            {200: Reply("By worker; the oldest sample first.", list[WorkerSamples])},
            kafka=False,
        ),
    ),
    Route(
        "GET",
        _CHANGES,
        own_changes,
        Access.INTERNAL,
        operation=Operation(
            "getOwnChanges",
            "Between workers: the changes that were asked of this worker.",
            Tag.INTERNAL,
            {200: Reply("The newest first.", list[OwnChange])},
            _UNSIGNED,
            kafka=False,
        ),
    ),
    Route(
        "GET",
        _SAMPLES,
        own_samples,
        Access.INTERNAL,
        operation=Operation(
            "getOwnSamples",
            "Between workers: this worker's numbers.",
            Tag.INTERNAL,
            {200: Reply("The oldest first.", list[Sample])},
            _UNSIGNED,
            kafka=False,
        ),
    ),
)
