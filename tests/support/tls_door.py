"""A port with TLS before a server that has none."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from typing import TYPE_CHECKING

from compose.local.security.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def tls_door(target: int, folder: Path) -> Iterator[tuple[int, Path]]:
    """Passes on what comes by TLS to the port `target` of this machine; gives its port and the file with its authority."""
    authority = Authority.make()
    trusted = authority.write_pem(folder / "authority.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("localhost").write_pem(folder / "server.pem"))

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(carry(reader, behind[1]), carry(behind[0], writer))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(connected, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1], trusted
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()
