"""Random change streams as ``millrace verify`` reads them: the newest rows are those of a model in plain Python."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.sources.debezium import DebeziumSource
from spark_jobs.sources.plain import PlainSource
from spark_jobs.sources.ums import UmsSource
from tests.selection import scaled
from tests.support.change_messages import ORDERS, MessageForm, repeat_messages
from tests.support.change_streams import KEYS, KINDS, LOOSE, Shop, newest_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.change_messages import Message

#: Kinds of columns whose values are in messages as they are in the model.
PLAIN = ("int8", "int16", "int32", "int64", "boolean", "string", "code", "uuid")


async def read_newest(form: MessageForm, shop: Shop, messages: Sequence[Message]) -> dict[tuple[str, str], Any]:
    """By table and key the row of the change with the largest order number."""
    source: Any = UmsSource if form.name == "ums" else PlainSource if form.flat else DebeziumSource
    structures = [structure for versions in shop.structures.values() for structure in versions]
    reader = source.read_messages(form.options(structures))
    newest: dict[tuple[str, str], Any] = {}
    for message in messages:
        for change in await reader.read(message):
            where = change.namespace, repr(list(change.key.values()))
            if where not in newest or newest[where].order <= change.order:
                newest[where] = change
    await reader.close()
    return newest


@pytest.mark.scaled
@pytest.mark.parametrize("form_name", ["json", "schemas", "flat", "flat_schemas", "ums"])
def test_messages_give_the_rows_of_the_model(form_name: str) -> None:
    loose, ums = form_name in ("json", "flat"), form_name == "ums"
    for seed in range(scaled(3, 60)):
        chance = random.Random(f"{seed}-{form_name}")
        moves = form_name in ("json", "schemas") and chance.random() < 0.3
        form = MessageForm(form_name, chance.choice(ORDERS), "topic", moves=moves)
        kinds = LOOSE if loose else [kind.name for kind in KINDS.values() if not ums or kind.ums]
        keys = ("int64", "code") if loose else ("int32", "int64", "code") if ums else KEYS
        shop = Shop(chance, kinds, keys, moves=moves)
        for table in ("a", "b"):
            shop.add_table(table)
        messages = repeat_messages(chance, form.write(shop.draw_events(40)))
        newest = asyncio.run(read_newest(form, shop, messages))
        events = [event for message in messages for event in message.events]
        for table, versions in shop.structures.items():
            namespace = f"mysql.s.shop.{table}" if ums else form.namespace(table)
            columns = {name: kind for part in versions for name, kind in part.all_columns.items() if kind.name in PLAIN}
            table_events = [event for event in events if event.structure.table == table]
            expected = newest_rows(table_events, shop.families(table))
            actual = {key: change.row for (name, key), change in newest.items() if name == namespace and change.row}
            assert actual.keys() == expected.keys(), seed
            for key, row in expected.items():
                assert {name: actual[key].get(name) for name in columns} == {name: row[name] for name in columns}, seed
