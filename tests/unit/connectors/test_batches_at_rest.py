"""Batches that were delivered are not kept in memory while the next ones are waited for."""

from __future__ import annotations

import ast
import asyncio
import logging
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import connectors
from connectors.api import Batch, SourceTask
from connectors.file.connector import FileStreamSourceConnector
from connectors.text_files.options import read_settings
from connectors.text_files.reader import read_files
from tests.support.eventually import eventually_async
from tests.support.local_session import local_session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator


class Records(list[Any]):
    """Records whose end can be seen."""


class OneBatch(SourceTask):
    """Gives one batch, and nothing after it."""

    def __init__(self) -> None:
        super().__init__(cast("Any", None))
        self.records: weakref.ref[Records] | None = None

    async def batches(self) -> AsyncGenerator[Batch, None]:
        records = Records()
        self.records = weakref.ref(records)
        batch = Batch(records, offsets=(({"file": "a"}, {"at": 1}),))
        del records
        yield batch
        del batch
        await asyncio.Event().wait()


async def test_a_session_keeps_no_batch_while_its_task_is_quiet() -> None:
    task = OneBatch()
    running = asyncio.create_task(local_session(task).run())
    try:
        await eventually_async(lambda: task.records is not None and task.records() is None, "the batch is gone")
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_reader_of_files_keeps_no_batch_while_they_do_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"line\n")

    references: list[weakref.ref[Records]] = []

    def make_records(*_: object) -> Records:
        records = Records()
        references.append(weakref.ref(records))
        return records

    settings = read_settings(FileStreamSourceConnector.config_def.parse({"file": str(path), "topic": "lines"}))
    context: Any = SimpleNamespace(
        log=logging.getLogger(__name__), offsets=SimpleNamespace(get=lambda _partition: None)
    )
    batches = read_files(context, settings, make_records, "lines")
    await anext(batches)
    (records,) = references
    following = asyncio.ensure_future(anext(batches))
    try:
        await eventually_async(lambda: records() is None, "the records are gone")
        assert not following.done()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await batches.aclose()


def _relays() -> Iterator[tuple[str, ast.AsyncFor]]:
    """The loops of connectors that yield what another generator gives."""
    folder = Path(next(iter(connectors.__path__)))
    for path in sorted(folder.rglob("*.py")):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AsyncFor) and isinstance(node.target, ast.Name):
                name = node.target.id
                yields = (
                    inner.value.id
                    for statement in node.body
                    for inner in ast.walk(statement)
                    if isinstance(inner, ast.Yield) and isinstance(inner.value, ast.Name)
                )
                if name in yields:
                    yield f"{path.relative_to(folder)}:{node.lineno}", node


def test_a_generator_that_passes_batches_on_keeps_none() -> None:
    relays = dict(_relays())
    assert relays
    keeping = [
        location
        for location, loop in relays.items()
        if not any(
            isinstance(statement, ast.Delete)
            and any(
                isinstance(name, ast.Name) and name.id == cast("ast.Name", loop.target).id for name in statement.targets
            )
            for statement in loop.body
        )
    ]
    assert not keeping, "delete the loop variable after the yield: it is kept while the next batch is waited for"
