"""Keeps the garbage collector of Spark's Python workers away from objects that stay. Runs in Python workers; no Spark calls.

After each task, PySpark's daemon runs a full collection, which looks at every object of the process: modules, classes, compiled
schemas. In a job with many small batches that costs more than the tasks. Objects that are frozen are not looked at again.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


class _Frozen:
    """The kinds of tasks that this process has run to their end; lives as long as the process."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()


_FROZEN: Final = _Frozen()


def freeze_once(kind: str) -> bool:
    """Freeze what lives in this process, at the end of the first task of a kind; whether it did.

    A kind imports its modules in its first task, so a process freezes once for each kind. Garbage is collected first, since
    frozen cycles are never freed.
    """
    if kind in _FROZEN.kinds:
        return False
    _FROZEN.kinds.add(kind)
    gc.collect()
    gc.freeze()
    return True


def frozen_after(kind: str, task: Callable[[Iterator[T]], Iterator[T]]) -> Callable[[Iterator[T]], Iterator[T]]:
    """``task`` (a function for ``mapInArrow``), which freezes its process at its end; see ``freeze_once``."""

    def run(batches: Iterator[T]) -> Iterator[T]:
        yield from task(batches)
        freeze_once(kind)

    return run
