"""A task's source, and at the same time: new versions of its rules between two batches, and replays."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from connectors.logs.metrics import RULES_VERSION
from connectors.logs.standing import prepare_rules

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from connectors.api import Batch, TaskContext
    from connectors.logs.replays.replay import Replays
    from connectors.logs.rows import RowMaker
    from connectors.logs.standing import InstructionList, StoredRules


async def merge_batches(
    source: AsyncGenerator[Batch, None],
    context: TaskContext,
    standing: InstructionList,
    rows: RowMaker,
    used: StoredRules | None,
    replays: Replays,
) -> AsyncGenerator[Batch, None]:
    """Yield the batches of the source and of replays until cancelled; each of them reads at most one batch ahead.

    One version of the rules makes a whole batch: the source makes its rows without an await, so rules change only between two.

    Args:
        source: the input; its caller closes it.
        context: of the task.
        standing: the instructions of the task.
        rows: gets new rules.
        used: the stored rules that it has now.
        replays: makes the batches of replays.
    """
    _show_version(context, used)
    current = asyncio.current_task()
    # By this name the worker reports which task blocks its event loop.
    name = None if current is None else current.get_name()
    news = asyncio.create_task(standing.changed.wait())
    steps: dict[AsyncGenerator[Batch, None], asyncio.Task[Batch | None]] = {}
    live = [source]
    standing.changed.set()
    try:
        while True:
            steps.update(
                {
                    generator: asyncio.create_task(_next_batch(generator), name=name)
                    for generator in live
                    if generator not in steps
                }
            )
            await asyncio.wait({news, *steps.values()}, return_when=asyncio.FIRST_COMPLETED)
            prepared = None
            noticed = news.done()
            if noticed:
                standing.changed.clear()
                news = asyncio.create_task(standing.changed.wait())
                if used is not None and standing.rules is not None and standing.rules != used:
                    prepared, used = await prepare_rules(context.config, standing)
            while ready := [generator for generator, step in steps.items() if step.done()]:
                for generator in ready:
                    batch = steps.pop(generator).result()
                    if batch is None:
                        live.remove(generator)
                        continue
                    if generator is source:
                        replays.passed(batch)
                    yield batch
                    del batch  # not kept while the next one is waited for
            # Nothing is awaited from here to the next step: no batch that the earlier rules made is still waiting.
            if prepared is not None:
                rows.use(prepared)
                _show_version(context, used)
            if noticed:
                replays.take(standing.replays)
            if replays.pending and not any(generator is not source for generator in live):
                live.append(replays.run())
    finally:
        waiting = [news, *steps.values()]
        for waiting_step in waiting:
            waiting_step.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for generator in live:
            if generator is not source:
                await generator.aclose()


async def _next_batch(generator: AsyncGenerator[Batch, None]) -> Batch | None:
    return await anext(generator, None)


def _show_version(context: TaskContext, used: StoredRules | None) -> None:
    if used is None:
        return
    context.metrics.set(RULES_VERSION, used.version, {"rules": used.name})
    context.log.info("runs version %d of the rule set %s", used.version, used.name)
