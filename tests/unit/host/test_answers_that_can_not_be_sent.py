"""Each request over the pipe is answered, also where the answer or the refusal holds what is no UTF-8."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from connectors.errors import ConfigInvalid
from worker.pipe import Peer
from worker.protocol import Ping, RemoteError, ToHost

NAME = os.fsdecode(b"/logs/caf" + bytes([0xE9]))


@pytest.mark.parametrize(
    ("answer", "shown"),
    [(ConfigInvalid(f"{NAME} can't be read"), r"/logs/caf\\udce9 can't be read"), ([NAME], "surrogates not allowed")],
)
async def test_a_request_is_answered(answer: object, shown: str) -> None:
    async def handle(message: object) -> object:
        assert message == Ping()
        if isinstance(answer, Exception):
            raise answer
        return answer

    ours, theirs = socket.socketpair()
    asking = Peer(*await asyncio.open_connection(sock=ours), handle, ToHost)
    asked = Peer(*await asyncio.open_connection(sock=theirs), handle, ToHost)
    asking.start()
    asked.start()
    try:
        with pytest.raises(RemoteError, match=shown):
            await asking.request(Ping(), 10)
    finally:
        await asking.close()
        await asked.close()
