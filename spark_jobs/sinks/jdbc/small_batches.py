"""Writes the rows of small batches from the driver: that costs less than a Spark job."""

from __future__ import annotations

import contextvars
import queue
import threading
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from connectors.errors import Retriable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_LOOK_S: Final = 0.5


class SmallBatches:
    """Runs what a Spark task would do, in threads of the driver. May be used by several threads."""

    def __init__(self) -> None:
        self._given_up = threading.Event()

    def give_up(self) -> None:
        """Have ``write`` wait no longer; from any thread."""
        self._given_up.set()

    def write(self, rows: Sequence[bytes], task: Task) -> list[dict[str, Any]]:
        """The rows that ``task`` gives for these values of a frame's only column. Blocks, as long as the database does.

        A call into a database can't be interrupted, so a thread of its own makes it, and is left alone when the batch is given
        up. Whatever that thread still commits is written again by the next run, as after the death of a driver.

        Raises:
            Retriable: the batch was given up.
        """
        results: queue.SimpleQueue[list[dict[str, Any]] | BaseException] = queue.SimpleQueue()

        def run() -> None:
            batch = pa.RecordBatch.from_arrays([pa.array(rows, pa.binary())], ["data"])
            try:
                results.put([row for outcome in task(iter([batch])) for row in outcome.to_pylist()])
            except BaseException as error:  # noqa: BLE001 - raised again below
                results.put(error)

        # Log lines find their flow by a variable of the context.
        thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="small-batch", daemon=True)
        thread.start()
        while not self._given_up.is_set():
            try:
                result = results.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if isinstance(result, BaseException):
                raise result
            return result
        raise Retriable("the batch is given up while the database works on it")
