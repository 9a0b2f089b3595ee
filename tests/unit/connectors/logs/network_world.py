"""A connector that listens on loopback, and small clients for it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from compose.local.ports import LOOPBACK, free_port
from connectors.logs.connector import LogsConnector
from connectors.testing import Run
from tests.support.eventually import eventually_async

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from connectors.api import SourceRecord

#: Each line is a row with all that is known of it.
RULES = """
tables:
  - name: lines
    groups:
      - name: all
        steps:
          - saveAs:
              columns:
                - {name: line}
                - {name: host, field: '@host'}
                - {name: file, field: '@file'}
                - {name: position, field: '@position', type: long}
                - {name: priority, field: '@priority', type: int, optional: true}
                - {name: facility, field: '@facility', optional: true}
                - {name: severity, field: '@severity', optional: true}
                - {name: app, field: '@app', optional: true}
                - {name: procid, field: '@procid', optional: true}
                - {name: msgid, field: '@msgid', optional: true}
                - {name: data, field: '@data', optional: true}
"""


class Listener:
    """A running connector with one address.

    Args:
        run: the connector.
        port: where it listens.
    """

    def __init__(self, run: Run, port: int) -> None:
        self.run = run
        self.port = port

    async def rows(self, count: int) -> list[dict[str, Any]]:
        """The next rows."""
        return [record.value for record in await self.records(count)]

    async def records(self, count: int) -> list[SourceRecord]:
        """The next records."""
        return await self.run.read(count)

    async def restart(self) -> None:
        """Close the address and all connections, and listen once more."""
        await self.run.stop_tasks()
        await self.run.start_tasks()

    def keep_receipts(self) -> list[Any]:
        """The receipts from now on: nothing is confirmed unless the test does it."""
        receipts: list[Any] = []
        task: Any = self.run.tasks[0]
        task.delivered = receipts.append
        return receipts

    async def wait_until_it_listens(self) -> None:
        """Take the batches of the start."""
        await self.run.take(1.5)


@asynccontextmanager
async def listening(source: str, scheme: str, **options: str) -> AsyncIterator[Listener]:
    """A connector with ``input=source``; underscores in names of options stand for dots."""
    port = free_port()
    config = {
        "input": source,
        "listen": f"{scheme}://{LOOPBACK}:{port}",
        "topic.prefix": "logs",
        "rules": RULES,
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    async with Run(LogsConnector, config) as run:
        listener = Listener(run, port)
        await run.take(0.01)
        yield listener


@asynccontextmanager
async def connected(
    port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to the address; tried until the connector listens."""
    reader, writer = await eventually_async(
        lambda: asyncio.open_connection(LOOPBACK, port, ssl=context),
        "the connector listens",
        20,
        ignore=(ConnectionRefusedError,),
    )
    try:
        yield reader, writer
    finally:
        writer.close()
