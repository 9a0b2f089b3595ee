"""A source that refuses a login: the task fails, unless config providers have given new secrets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from connectors.api import Batch, SourceTask
from connectors.errors import ConfigInvalid
from tests.support.local_session import LocalSession, local_session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Refused(SourceTask):
    """Its first login is refused; ``let_in`` says that the second was not."""

    def __init__(self) -> None:
        super().__init__(cast("Any", None))
        self.session: LocalSession | None = None
        self.logins = 0
        self.let_in = asyncio.Event()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        self.logins += 1
        if self.logins == 1:
            if self.session is not None:
                self.session.secrets_changed(["database.password"])
            raise ConfigInvalid("wrong password")
        self.let_in.set()
        await asyncio.Event().wait()
        yield Batch([])


async def no_news() -> bool:
    return False


async def test_secrets_that_came_while_the_login_was_under_way_are_tried() -> None:
    task = Refused()
    task.session = local_session(task, no_news)
    running = asyncio.create_task(task.session.run())
    await asyncio.wait_for(task.let_in.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert task.logins == 2


async def test_without_new_secrets_the_first_login_decides() -> None:
    task = Refused()
    with pytest.raises(ConfigInvalid, match="wrong password"):
        await asyncio.wait_for(local_session(task, no_news).run(), 10)
    assert task.logins == 1
