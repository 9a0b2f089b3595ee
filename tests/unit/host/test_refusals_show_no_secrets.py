"""A task host's refusals are shown to callers of REST: their messages hold no secrets."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from connectors.options import MASK
from worker.host.main import serve_host
from worker.pipe import Peer
from worker.protocol import ConnectorView, Init, RemoteError, ToControl

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_refusal_quotes_no_value_of_a_config_provider(tmp_path: Path) -> None:
    (tmp_path / "s.properties").write_text("db=t0ps3cret\n")
    ours, theirs = socket.socketpair()
    serving = asyncio.create_task(serve_host(theirs))

    async def handle(message: object) -> None:
        del message

    reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 24)
    peer = Peer(reader, writer, handle, ToControl)
    peer.start()
    try:
        properties = {"config.providers": "file", "config.providers.file.class": "FileConfigProvider"}
        await peer.request(Init("127.0.0.1:8083", 0, properties, {}, "cluster"), 30)
        with pytest.raises(RemoteError, match="no connector") as refused:
            await peer.request(
                ConnectorView(
                    {"connector.class": f"no connector ${{file:{tmp_path}/s.properties:db}}"}, "lag", b"[]", b"[]"
                ),
                30,
            )
    finally:
        await peer.close()
        await asyncio.wait_for(serving, 10)
    assert MASK in str(refused.value)
    assert "t0ps3cret" not in str(refused.value)
