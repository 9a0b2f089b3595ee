"""The process of the Scylla emulation: it runs a dressed Cassandra and, in front of it, the CQL proxy.

`python -m compose.local.scylla.server HOST PORT CASSANDRA-PORT COMMAND...`; started by
`emulation.ScyllaEmulation`. Cassandra is a child in the same process group, so that both are paused and killed together.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Sequence

from compose.local.cassandra import speaks_cql
from compose.local.scylla.client import Emulation
from compose.local.scylla.proxy import serve_proxy
from worker.terminal import say

_POLL = 0.05  # seconds
_AGE_MS = 600_000  # of the first generation: tests write with timestamps of some minutes ago


def first_generation(address: str) -> None:
    """Give a cluster that never ran the generation of streams that Scylla makes when its first node starts. Blocks."""
    client = Emulation(address)
    if not client.generations():
        client.new_generation(start_ms=time.time_ns() // 1_000_000 - _AGE_MS)
    client.close()


async def run_server(host: str, port: int, inner: int, command: Sequence[str]) -> int:
    """Run until a signal (SIGTERM, SIGINT) or the end of Cassandra; the exit code is Cassandra's, 0 after a signal."""
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    say("Scylla emulation: starting its Cassandra")
    cassandra = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    ended = asyncio.ensure_future(cassandra.wait())
    stop = asyncio.ensure_future(stop_requested.wait())
    while not ended.done() and not stop.done():
        if await asyncio.to_thread(speaks_cql, inner, host):
            break
        await asyncio.sleep(_POLL)
    if not ended.done() and not stop.done():
        await asyncio.to_thread(first_generation, f"{host}:{inner}")
        server = await serve_proxy(host, port, (host, inner))
        say(
            f"Scylla emulation (a dressed Cassandra, not Scylla) at {host}:{port}; the Cassandra itself at {host}:{inner}"
        )
        await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
        server.close()
    if ended.done():
        say(f"Scylla emulation: its Cassandra ended with code {ended.result()}")
        return ended.result() or 1
    if cassandra.returncode is None:
        cassandra.terminate()
    await ended
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(run_server(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])))
