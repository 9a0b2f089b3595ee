"""All rows of a bucket's state: as events that show them once more, and as a list of those that live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.materializer.engine.model import EventOrigin
from spark_jobs.materializer.engine.rowstate import lapse_row, newest_time, unpack_row
from spark_jobs.materializer.events.images import is_living, live_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_jobs.materializer.contract import LiveRow, OutputRecord, StateStore
    from spark_jobs.materializer.engine.bucket_table import BucketTable
    from spark_jobs.materializer.engine.event_writer import EventWriter

#: How many events of a replay go into one transaction.
_REPLAYED: Final = 1000


def replay_rows(
    table: BucketTable, events: EventWriter, store: StateStore, emit: list[OutputRecord], start: bytes
) -> bytes | None:
    """See ``Engine.replay``; ``table`` is attached to ``store``."""
    if table.catalog.newest is None:
        return None
    first = len(emit)
    for key, blob, static, values in table.iter_rows(store, start):
        if len(emit) - first >= _REPLAYED:
            return key
        state = unpack_row(blob)
        if not state.shown or state.era != table.era:
            continue
        table.fit_state(state)
        image = table.view.image(state)
        keys = (*values, *state.clustering)
        origin = EventOrigin(newest_time(state), True, None, "replay")
        events.show_change(state, None, image, keys, static, static, origin, emit)
    return None


def list_living_rows(
    table: BucketTable, store: StateStore, start: bytes, now_s: int, grace_s: int
) -> Iterator[LiveRow]:
    """See ``Engine.rows``; ``table`` is attached to ``store``.

    Args:
        table: of the bucket.
        store: its state.
        start: the key to begin at.
        now_s: the time.
        grace_s: how long deletions are remembered.
    """
    if table.catalog.newest is None:
        return
    make = live_rows(table.shape)
    for _, blob, static, values in table.iter_rows(store, start):
        state = unpack_row(blob)
        if state.era != table.era:
            continue
        table.fit_state(state)
        lapse_row(state, now_s, grace_s)
        image = table.view.image(state)
        if is_living(state, image):
            yield make([*values, *state.clustering, *static, *image], newest_time(state))
