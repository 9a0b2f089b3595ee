"""``/console/audit`` and ``/console/metrics``: what all workers remember. Not in Kafka Connect."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from worker.console.trail import MOST_CHANGES, SAMPLE_S, Samples, merge_changes
from worker.rest.call import json_answer
from worker.rest.facade import RestError
from worker.rest.operations import Reply, Tag
from worker.rest.own.own_routes import OwnRoutes
from worker.rest.routing import RequiredAccess
from worker.rest.security.signing import UNSIGNED
from worker.rest.shapes.console_schemas import Change, OwnChange, Sample, WorkerSamples

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall
    from worker.rest.facade import Herder

_CHANGES: Final = "/console/changes"
_SAMPLES: Final = "/console/samples"
_log = logging.getLogger("worker.console")


async def collect_samples(herder: Herder, samples: Samples) -> None:
    """Take samples until cancelled."""
    while True:
        now = time.time()
        await asyncio.sleep(SAMPLE_S - now % SAMPLE_S)
        try:
            samples.add(time.time(), *herder.console.numbers())
        except Exception:  # noqa: BLE001 - charts have a gap
            _log.exception("The console's numbers can't be taken; this is retried")


async def list_changes(call: RestCall) -> web.Response:
    """``GET /console/audit``."""
    worker_id = call.herder.console.me()
    others = await call.herder.console.from_workers(_CHANGES)
    return json_answer(merge_changes([(worker_id, call.console.trail.changes()), *others.items()], MOST_CHANGES))


async def get_metrics(call: RestCall) -> web.Response:
    """``GET /console/metrics``."""
    others = await call.herder.console.from_workers(_SAMPLES)
    samples_by_worker = {call.herder.console.me(): call.console.samples.all(), **others}
    return json_answer([{"worker_id": name, "samples": samples} for name, samples in sorted(samples_by_worker.items())])


async def own_changes(call: RestCall) -> web.Response:
    """``GET /console/changes``, for other workers."""
    _require_signature(call)
    return json_answer(call.console.trail.changes())


async def own_samples(call: RestCall) -> web.Response:
    """``GET /console/samples``, for other workers."""
    _require_signature(call)
    return json_answer(call.console.samples.all())


def _require_signature(call: RestCall) -> None:
    if call.principal.method != "worker":
        raise RestError(400, UNSIGNED)


_UNSIGNED: Final = {400: "The request has no signature."}
_CONSOLE: Final = OwnRoutes(Tag.CONSOLE)
_INTERNAL: Final = OwnRoutes(Tag.INTERNAL)

ROUTES = (
    _CONSOLE.get(
        "/console/audit",
        list_changes,
        "listChanges",
        "Who changed what, or was refused, since the workers started: the last 1,000 changes of each.",
        Reply("The newest first.", list[Change]),
        access=RequiredAccess.ADMIN,
    ),
    _CONSOLE.get(
        "/console/metrics",
        get_metrics,
        "listSamples",
        "Numbers of all workers over the last half hour, one sample every five seconds.",
        Reply("By worker; the oldest sample first.", list[WorkerSamples]),
    ),
    _INTERNAL.get(
        _CHANGES,
        own_changes,
        "getOwnChanges",
        "Between workers: the changes that were asked of this worker.",
        Reply("The newest first.", list[OwnChange]),
        _UNSIGNED,
        access=RequiredAccess.INTERNAL,
    ),
    _INTERNAL.get(
        _SAMPLES,
        own_samples,
        "getOwnSamples",
        "Between workers: this worker's numbers.",
        Reply("The oldest first.", list[Sample]),
        _UNSIGNED,
        access=RequiredAccess.INTERNAL,
    ),
)
