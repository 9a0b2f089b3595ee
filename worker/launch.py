"""``millrace worker FILE.properties [CONNECTOR.properties|.json ...] [--processes N]``: from files to a running worker.

Exit codes: 0 after a signal, 1 when the worker could not start, 2 for a mistake in the properties, 75 when it can't
continue and a supervisor should restart it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop
from aiokafka.errors import KafkaError

from connectors.errors import ConfigInvalid, MillraceError, Retriable
from offsets.admin import TopicAdmin
from offsets.refusal import BrokerLoginRefused
from worker import __version__, logs
from worker.config.worker_config import parse_worker
from worker.metrics.process import settle_heap
from worker.metrics.traffic import MeteredLoop
from worker.plugins.providers import provider_finder
from worker.properties import load_properties
from worker.rest.checks import check_no_nulls
from worker.rest.facade import NotLeader, RestError
from worker.rest.shapes import bodies
from worker.secrets.masking import SecretFilter, SecretMasker
from worker.secrets.providers import ConfigTransformer, build_providers
from worker.secrets.rotation import build_keeper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.options import Config
    from worker.control.app import ControlProcess
    from worker.secrets.rotation import SecretKeeper

_log = logging.getLogger(__name__)
OK, FAILED, MISTAKE, RESTART_ME = 0, 1, 2, 75
_READY_DEADLINE_S: Final = 120.0
_CREATE_DEADLINE_S: Final = 60.0
_RETRY_S: Final = 1.0
#: A third-party logger speaks up only when it matters: what they report at lower levels, the worker reports in its own words.
_QUIET: Final = {
    "aiokafka": "FATAL",
    "faust": "ERROR",
    "mode": "ERROR",
    "aiohttp.access": "WARN",
    "worker.rest.access": "WARN",
    "asyncio": "ERROR",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker until it gets a signal to stop; returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="millrace worker", description="Runs a worker of a distributed cluster.")
    parser.add_argument("properties", type=Path)
    parser.add_argument("connectors", type=Path, nargs="*")
    parser.add_argument("--processes", type=int)
    options = parser.parse_args(argv)
    try:
        properties = load_properties(options.properties)
        connectors = [read_connector(path) for path in options.connectors]
    except ConfigInvalid as error:
        sys.stderr.write(f"{error}\n")
        return MISTAKE
    return uvloop.run(run_worker(properties, connectors, options.processes), loop_factory=MeteredLoop)


def read_connector(path: Path) -> dict[str, str]:
    """A connector's configuration from a file: properties, or JSON as ``POST /connectors`` or as a plain object of properties.

    Raises:
        ConfigInvalid: it can't be read, or has no name.
    """
    if path.suffix == ".json":
        try:
            config = _read_body(path.read_bytes())
        except OSError as error:
            raise ConfigInvalid(f"{path}: {error.strerror}") from error
        except RestError as error:
            raise ConfigInvalid(f"{path}: {error}") from error
    else:
        config = load_properties(path)
    if not config.get("name"):
        raise ConfigInvalid(f"{path}: the property 'name' is missing: every connector needs one")
    return config


def _read_body(data: bytes) -> dict[str, str]:
    """The configuration in a JSON file, read as REST reads bodies.

    Raises:
        RestError: it is not understood, or asks for what holds for ``POST /connectors`` alone.
    """
    body = bodies.read_json(data, bodies.FILE, numbers_as_text=True)
    if not isinstance(body, dict) or not isinstance(body.get("config"), dict):
        return check_no_nulls(bodies.read_config(data, bodies.FILE))
    request = bodies.read_create(data, bodies.FILE)
    if request.initial_state not in (None, "RUNNING"):
        raise RestError(
            400,
            f"The connector would run at once, not be {request.initial_state} (initial_state): create it by POST /connectors",
        )
    config = check_no_nulls(request.config)
    return {**config, "name": request.name} if request.name else config


async def run_worker(
    properties: Mapping[str, str], connectors: Sequence[Mapping[str, str]], processes: int | None = None
) -> int:
    """Run a worker until SIGTERM or SIGINT; returns the exit code.

    Args:
        properties: the worker's, as in its file.
        connectors: configurations to create or update once the worker is ready.
        processes: number of task hosts, over what the properties say.
    """
    from worker.control.app import ControlProcess

    signals = _Signals(asyncio.get_running_loop())
    try:
        loggers = logs.configure_logging(properties.get("log.format", "text"), properties.get("log.level", "INFO"))
        loggers.apply(_QUIET)
        resolved, config, secrets = await _resolve_config(properties)
    except ConfigInvalid as error:
        sys.stderr.write(f"The worker's properties can't work:\n{error}\n")
        return MISTAKE
    try:
        _log.info("Millrace %s starts a worker of cluster %r", __version__, config["group.id"])
        process = ControlProcess(properties, resolved, config, loggers, secrets, processes)
    except ConfigInvalid as error:
        sys.stderr.write(f"The worker's properties can't work:\n{error}\n")
        return MISTAKE
    running = asyncio.create_task(_run_until_stopped(process, config, connectors, signals))
    try:
        return await running
    finally:
        signals.close()


async def _resolve_config(properties: Mapping[str, str]) -> tuple[dict[str, str], Config, SecretKeeper]:
    masker = SecretMasker()
    providers = await asyncio.to_thread(build_providers, properties, provider_finder(properties))
    resolved, _ = await ConfigTransformer(providers, masker.add).transform_async(properties)
    masker.learn(resolved)
    for handler in logging.getLogger().handlers:
        handler.addFilter(SecretFilter(masker))
    config, warnings = parse_worker(resolved)
    for warning in warnings:
        _log.warning("%s", warning)
    return resolved, config, build_keeper(providers, masker.add, resolved)


async def _run_until_stopped(
    process: ControlProcess, config: Config, connectors: Sequence[Mapping[str, str]], signals: _Signals
) -> int:
    started = time.monotonic()
    starting = asyncio.create_task(_start_process(process, config, connectors, started))
    asked = asyncio.create_task(signals.first.wait())
    try:
        events: set[asyncio.Future[Any]] = {starting, asked, process.failed}
        await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await asyncio.wait(events - {starting}, return_when=asyncio.FIRST_COMPLETED)
    except (MillraceError, KafkaError, OSError) as error:
        sys.stderr.write(f"The worker could not start: {error}\n")
        starting.cancel()
        await process.stop()
        return MISTAKE if isinstance(error, ConfigInvalid) else FAILED
    finally:
        asked.cancel()
    if process.failed.done() and not signals.first.is_set():
        await process.stop()
        return RESTART_ME
    if starting.done():
        await _drain_process(process, config, signals)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await process.stop()
    _log.info("The worker has stopped")
    return OK


async def _start_process(
    process: ControlProcess, config: Config, connectors: Sequence[Mapping[str, str]], started: float
) -> None:
    await _reach_kafka(process, config)
    await process.start()
    await process.wait_ready(_READY_DEADLINE_S)
    node = process.node
    leader = node.view.leader.worker_id if node.view is not None else "?"
    _log.info(
        "Worker %s is ready after %.1f s: %d workers, %s leads, %d connectors",
        node.worker_id,
        time.monotonic() - started,
        node.stats.members,
        leader,
        len(node.config.snapshot.connectors),
    )
    settle_heap()
    for connector in connectors:
        await _create_connector(process, connector)


async def _reach_kafka(process: ControlProcess, config: Config) -> None:
    """Wait for a broker that answers, and say what one waits for.

    Raises:
        BrokerLoginRefused: one answers, and does not let this worker in.
        Retriable: none within ``kafka.start.timeout.ms``.
    """
    servers = ",".join(config["bootstrap.servers"])
    deadline_s = config["kafka.start.timeout.ms"] / 1000
    until = time.monotonic() + deadline_s
    reported = False
    while True:
        try:
            async with TopicAdmin(process.client, min(10.0, max(1.0, deadline_s))):
                _log.info("Kafka answers at %s", servers)
                return
        except Retriable as error:
            if isinstance(error, BrokerLoginRefused) and not error.passing:
                raise
            if time.monotonic() + _RETRY_S >= until:
                raise Retriable(
                    f"no Kafka broker answered at {servers} (bootstrap.servers) within {deadline_s:g} s "
                    f"(kafka.start.timeout.ms). Start Kafka, or correct bootstrap.servers and the security "
                    f"settings. The last try: {error}"
                ) from error
            if not reported:
                _log.warning("Waiting up to %g s for Kafka at %s: %s", deadline_s, servers, error)
                reported = True
            await asyncio.sleep(_RETRY_S)


async def _create_connector(process: ControlProcess, connector: Mapping[str, str]) -> None:
    """Create or update a connector from the command line, through whichever worker leads."""
    name = connector["name"]
    until = time.monotonic() + _CREATE_DEADLINE_S
    while True:
        try:
            created = await process.put_connector(name, connector)
        except NotLeader:
            problem = "there is no leader yet"
        except RestError as error:
            if error.status not in (409, 500, 503):
                _log.error("Connector %s from the command line was refused: %s", name, error)
                return
            problem = str(error)
        else:
            _log.info("Connector %s from the command line was %s", name, "created" if created else "updated")
            return
        if time.monotonic() > until:
            _log.error(
                "Connector %s from the command line could not be created within %g s: %s",
                name,
                _CREATE_DEADLINE_S,
                problem,
            )
            return
        await asyncio.sleep(_RETRY_S)


async def _drain_process(process: ControlProcess, config: Config, signals: _Signals) -> None:
    """Hand the work over; a second signal cuts it short."""
    draining = asyncio.create_task(process.drain(config["drain.timeout.ms"] / 1000))
    hurried = asyncio.create_task(signals.second.wait())
    waiting: set[asyncio.Future[Any]] = {draining, hurried, process.failed}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if hurried.done():
        _log.warning("A second signal: the worker stops without waiting for others to take over")
    for task in (draining, hurried):
        task.cancel()
    await asyncio.gather(draining, hurried, return_exceptions=True)


class _Signals:
    """SIGTERM and SIGINT as events; the third one ends the process at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._count_signal, number)

    def close(self) -> None:
        """Give the signals back."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.remove_signal_handler(number)

    def _count_signal(self, number: int) -> None:
        self._count += 1
        _log.info("Received %s", signal.Signals(number).name)
        if self._count == 1:
            self.first.set()
        elif self._count == 2:
            self.second.set()
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
