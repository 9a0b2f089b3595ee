"""The seeded load's model agrees with the reference merge: two programs that share nothing say the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.partition_merge import Table
from tests.support.update_load import Model, changes, layout, update


@pytest.mark.parametrize("seed", range(3))
def test_the_model_ends_where_the_reference_merge_does(seed: int) -> None:
    form, model = layout(), Model()
    load = list(changes(3000, partitions=200, seed=seed))
    kinds = set()
    for change in load:
        event = model.apply(change)
        if event is not None:
            kinds.add(event.op)
    assert kinds == {"c", "u", "d"}
    fresh = [change.write_time for number, change in enumerate(load) if number == 0 or change is not load[number - 1]]
    assert len(set(fresh)) == len(fresh), "ties are decided by rules that the model does not know"
    table = Table([*form.key, *form.clustering, *form.regular])
    table.apply_all(update(change, form, number) for number, change in enumerate(load))
    merged = {
        (table.partitions[name].key[0], row["ck"]): {"pk": table.partitions[name].key[0], **row}
        for name, (_, rows) in table.contents().items()
        for row in rows
    }
    assert merged == model.rows


def test_every_event_begins_where_the_one_before_it_ended() -> None:
    model = Model()
    shown: dict[tuple[int, int], dict[str, Any]] = {}
    for change in changes(3000, partitions=50):
        event = model.apply(change)
        if event is None:
            continue
        key = change.pk, change.ck
        assert event.before == shown.pop(key, None)
        if event.after is not None:
            shown[key] = event.after
    assert shown == model.rows
