"""Asks an application for a preview: that of the flow if it runs on this machine, else one for previews, which is started."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Fatal, Retriable
from spark_jobs.config.job_files import build_flow
from spark_jobs.config.keys import FILES, HISTORY, SOURCE_TYPE
from spark_jobs.flows.address import address_of, spark_settings
from spark_jobs.flows.client import FlowConnection
from spark_jobs.preview.request import preview_address, preview_settings, read_request, to_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.flows.address import ApplicationAddress
    from spark_jobs.job import Job
    from spark_jobs.preview.request import FlowPreviewRequest

_log: Final = logging.LoggerAdapter(logging.getLogger("spark_jobs.preview"), {})
_KINDS: Final = {"ConfigInvalid": ConfigInvalid, "StepRefused": ConfigInvalid, "Retriable": Retriable}
#: How long an application that ends for other settings may take, and until another try, seconds.
_RESTART_S: Final = 60.0
_PAUSE_S: Final = 0.2
#: What of the time is left for the way of the answer, seconds.
_MARGIN_S: Final = 1.0
#: Kinds of errors with which an application says that it takes no flow with these settings now.
_ELSEWHERE: Final = ("Unfit", "Restarting")


def build_preview_command(address: ApplicationAddress, idle_s: float, *, detached: bool) -> list[str]:
    """The command line of an application for previews; no configuration is on it."""
    return [
        sys.executable, "-m", "spark_jobs.application", str(address.folder), address.key, address.name,
        "--idle-s", str(idle_s), "--previews", *(["--detached"] if detached else []),
    ]  # fmt: skip


async def preview_flow(
    properties: Mapping[str, str], body: Mapping[str, Any], *, deadline_s: float, detached: bool = False
) -> dict[str, Any]:
    """``FlowPreview`` of the REST API, for a request of it.

    Args:
        properties: the configuration of the flow, references resolved.
        body: ``limit``, ``rows`` and ``timeout_ms``.
        deadline_s: how long it may take at most; a little less is left to the preview itself.
        detached: whether an application that is started outlives this process.

    Raises:
        ConfigInvalid: the configuration or the request is wrong; with all complaints.
        Retriable, Fatal: as ``ask_preview``.
    """
    request = read_request(body)
    request = replace(request, timeout_s=min(request.timeout_s, max(deadline_s - _MARGIN_S, deadline_s / 2)))
    # The sinks of a flow have the same source and steps.
    job = (await asyncio.to_thread(build_flow, properties))[0]
    if reason := describe_refusal(job, request):
        raise ConfigInvalid(reason)
    idle_s = job.config["preview.idle.ms"] / 1000
    try:
        async with asyncio.timeout(deadline_s):
            return await ask_preview(properties, request, idle_s=idle_s, detached=detached)
    except TimeoutError:
        raise Retriable(
            f"the preview was not done within {deadline_s:g} s; if an application for previews had to start, the next one is "
            "faster"
        ) from None


def describe_refusal(job: Job, request: FlowPreviewRequest) -> str:
    """Why there is no preview of a job, and what to do; empty: there is one. Pure."""
    if job.materializes:
        return (
            "transform.type=materialize has no steps, and its rows need the whole history: preview the flow that reads its "
            "output"
        )
    if job.config[SOURCE_TYPE] == HISTORY:
        return (
            f"{SOURCE_TYPE}={HISTORY} has no preview, as a history is read as a whole: preview the flow that wrote it, with "
            "these steps"
        )
    if job.config[SOURCE_TYPE] == FILES and request.rows is None:
        return f"a preview of {SOURCE_TYPE}={FILES} reads no files: give rows (--rows FILE, or rows in the request)"
    return ""


async def ask_preview(
    properties: Mapping[str, str], request: FlowPreviewRequest, *, idle_s: float, detached: bool = False
) -> dict[str, Any]:
    """``FlowPreview`` of the REST API.

    Args:
        properties: the configuration of the flow, references resolved.
        request: what to send through it.
        idle_s: how long an application that is started waits for the next preview, in seconds.
        detached: whether that one outlives this process.

    Raises:
        ConfigInvalid: the configuration or the request is wrong.
        Retriable: the application ended, can't be started, or is busy with other settings.
        Fatal: something else fails.
    """
    flow_address = address_of(properties)
    if flow_address is not None and flow_address.socket.exists():
        message = to_message(request, properties, spark_settings(properties))
        answer = await _request_answer(FlowConnection(flow_address, message, _ignore_event, _log), join=True)
        if answer is not None and answer.get("kind") not in _ELSEWHERE:
            return _read_result(answer, flow_address, warm=True)
    address = preview_address()
    message = to_message(request, properties, preview_settings(properties))
    until = asyncio.get_running_loop().time() + _RESTART_S
    while True:
        warm = address.socket.exists()
        connection = FlowConnection(
            address,
            message,
            _ignore_event,
            _log,
            launch=build_preview_command(address, idle_s, detached=detached),
            detached=detached,
        )
        answer = await _request_answer(connection)
        if answer is None:
            raise Retriable(f"the preview {connection.end_text(1)}; its output is in {address.output}")
        if answer.get("kind") not in _ELSEWHERE:
            return _read_result(answer, address, warm=warm)
        if asyncio.get_running_loop().time() > until:
            raise Retriable(
                "the application for previews is busy with a flow that has other settings of Spark (spark.*): ask again later"
            )
        await asyncio.sleep(_PAUSE_S)


async def _request_answer(connection: FlowConnection, *, join: bool = False) -> dict[str, Any] | None:
    """The answer of an application; None if it ended before, or if it does not run and ``join`` forbids to start it.

    Raises:
        Retriable: it can't be started.
    """
    answers: list[dict[str, Any]] = []
    connection.on_event = answers.append
    try:
        if not join:
            await connection.start()
        elif not await connection.join():
            return None
        await connection.wait()
    except OSError as error:
        raise Retriable(f"the application for previews can't be started: {error}") from error
    finally:
        await connection.close()
    return next((event for event in answers if event.get("event") == "previewed"), None)


def _ignore_event(event: dict[str, Any]) -> None:
    del event


def _read_result(answer: Mapping[str, Any], address: ApplicationAddress, *, warm: bool) -> dict[str, Any]:
    if "error" in answer:
        raise _KINDS.get(str(answer.get("kind")), Fatal)(answer["error"])
    result: dict[str, Any] = answer["result"]
    return {**result, "application": address.name, "warm": warm}
