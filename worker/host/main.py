"""The process around a task host: ``python -m worker.host.main --fd N``, started by the control process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING, Final

import uvloop

from connectors.errors import ConfigInvalid
from worker import logs
from worker.host import watch
from worker.host.host import TaskHost
from worker.metrics.process import GcWatch, settle_heap
from worker.metrics.traffic import MeteredLoop, client_traffic
from worker.pipe import Peer
from worker.protocol import ClientStats, ProcessStats, ToHost
from worker.secrets.masking import SecretFilter

if TYPE_CHECKING:
    from worker.protocol import Init

log = logging.getLogger(__name__)

_DEFAULT_STUCK_S: Final = 10.0
_READ_LIMIT: Final = 1 << 24
#: Seconds that tasks get to stop when a host that is part of its control process loses its pipe.
_CLOSE_S: Final = 5.0


async def serve_host(sock: socket.socket, *, own_process: bool = False) -> None:
    """Run a host on one end of a socket pair until the other end closes.

    Args:
        sock: owned from now on.
        own_process: whether this process is the host's alone: it then ends with the pipe, and sets its logging up.
    """
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    writer = watch.SharedWriter(sock.dup(), loop)
    orphaned = watch.hung_up(sock.dup(), watch.maker_of(sock)) if own_process else None
    loop_watch = watch.LoopWatch(
        loop, _DEFAULT_STUCK_S, lambda frame: writer.write_from_thread(frame, 2.0), orphaned, telling=False
    )
    reader, other_writer = await asyncio.open_connection(sock=sock, limit=_READ_LIMIT)

    def initialized(init: Init) -> None:
        if own_process:
            _own_logging(init, host)
            settle_heap()
        loop_watch.set_stuck(int(init.properties.get("task.host.stuck.ms", _DEFAULT_STUCK_S * 1000)) / 1000)

    def numbers() -> tuple[list[ClientStats], ProcessStats]:
        # A host within its control process has no numbers of its own: the control process counts them.
        return (client_traffic(), garbage.stats()) if own_process else ([], ProcessStats())

    # The host comes after it.
    peer = Peer(reader, writer, lambda message: host.handle(message), ToHost, lambda text: host.masker.scrub(text))  # noqa: PLW0108
    garbage = GcWatch()
    host = TaskHost(peer, loop_watch.take_lag, initialized, numbers)
    if own_process:
        garbage.start()
    loop_watch.start()
    peer.start()
    try:
        await peer.closed.wait()
    finally:
        if own_process:
            # The control process has gone or wants this one gone; whatever a task does must not delay that.
            logging.shutdown()
            os._exit(0)
        loop_watch.stop()
        await host.close(_CLOSE_S)
        await peer.close()
        other_writer.close()


def _own_logging(init: Init, host: TaskHost) -> None:
    properties = init.properties
    try:
        registry = logs.configure_logging(properties.get("log.format", "text"), properties.get("log.level", "INFO"))
    except ConfigInvalid:
        registry = logs.configure_logging()
    registry.apply(init.log_levels)
    for handler in logging.getLogger().handlers:
        handler.addFilter(SecretFilter(host.masker))


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the process; does not return."""
    parser = argparse.ArgumentParser(
        description="A task host of a Millrace worker. Started by the worker, not by hand."
    )
    parser.add_argument("--fd", type=int, required=True, help="inherited end of a socket pair to the control process")
    options = parser.parse_args(arguments)
    watch.die_with_parent()
    logs.configure_logging()
    uvloop.run(serve_host(socket.socket(fileno=options.fd), own_process=True), loop_factory=MeteredLoop)


if __name__ == "__main__":
    main(sys.argv[1:])
