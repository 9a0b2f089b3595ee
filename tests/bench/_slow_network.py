"""A relay to a server for ``millrace bench sinks --round-trip-ms``: ``python -m tests.bench._slow_network PORT MS``.

Every byte arrives half the time later in each direction; how many are under way does not matter, as on a long line. Its first
line of output is its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)

    async def deliver() -> None:
        while True:
            due, data = await waiting.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    delivery = asyncio.create_task(deliver())
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 18):
            await waiting.put((loop.time() + delay_s, data))
    await waiting.put((loop.time() + delay_s, b""))
    with contextlib.suppress(OSError):
        await delivery


async def serve(port: int, delay_s: float) -> None:
    """Relay until the process ends.

    Args:
        port: of the server on the loopback address.
        delay_s: in one direction.
    """

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_carry(reader, back, delay_s), _carry(there, writer, delay_s))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]) / 2000))
