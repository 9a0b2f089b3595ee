"""The offset store on a real Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offsets.positions import OffsetIndex
from offsets.store import OffsetStore
from tests.integration.offsets.topic_tools import create_topic, producing
from tests.support.eventually import eventually_async

if TYPE_CHECKING:
    from collections.abc import Callable


async def test_offsets_are_written_read_back_and_reset(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic = unique("offsets")
    await create_topic(bootstrap, topic, partitions=5)
    client = {"bootstrap_servers": bootstrap}
    store, other = OffsetStore(topic, client), OffsetStore(topic, client)
    await store.start()
    await other.start()
    try:
        await store.write("a", [({"file": "/x"}, {"position": 1}), ({"file": "/y", "n": 2}, {"position": 2})])
        await store.write("b", [({"file": "/x"}, {"position": 3})])
        assert sorted(store.connector_offsets("a"), key=str) == [
            ({"file": "/x"}, {"position": 1}),
            ({"file": "/y", "n": 2}, {"position": 2}),
        ]
        await store.write("a", [({"n": 2, "file": "/y"}, {"position": 5}), ({"file": "/x"}, None)])
        assert store.connector_offsets("a") == [({"file": "/y", "n": 2}, {"position": 5})]
        await other.read_to_end()
        assert other.raw("a") == store.raw("a")
        assert sorted(other.connectors()) == ["a", "b"]
        assert OffsetIndex("b", other.raw("b")).get({"file": "/x"}) == {"position": 3}
        assert other.connected
        assert await other.positions("a") == [({"file": "/y", "n": 2}, {"position": 5})]
        assert await other.positions("nobody") == []
    finally:
        await store.stop()
        await other.stop()


async def test_garbage_in_the_topic_is_left_out_and_counted(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic = unique("offsets")
    await create_topic(bootstrap, topic)
    async with producing(bootstrap) as producer:
        for key, value in [(b"junk", b"x"), (b'["a",{"f":1}]', b'{"o":1}'), (b'["a",{"f":2}]', b"junk"), (b"[]", b"x")]:
            await producer.send_and_wait(topic, value, key=key)
    store = OffsetStore(topic, {"bootstrap_servers": bootstrap})
    await store.start()
    try:
        assert store.unreadable.count == 2
        assert store.connector_offsets("a") == [({"f": 1}, {"o": 1})]
        assert store.unreadable.count == 3
    finally:
        await store.stop()


async def test_offsets_of_a_transaction_appear_with_its_commit(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic = unique("offsets")
    await create_topic(bootstrap, topic)
    store = OffsetStore(topic, {"bootstrap_servers": bootstrap})
    await store.start()
    try:
        async with producing(bootstrap, transactional_id=unique("tx")) as producer:
            for offset, commit in [(1, True), (2, False)]:
                await producer.begin_transaction()
                await store.write("a", [({"f": 1}, {"o": offset})], producer=producer)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        await eventually_async(lambda: store.connector_offsets("a"), "the offset is read")
        await store.read_to_end()
        assert store.connector_offsets("a") == [({"f": 1}, {"o": 1})]
    finally:
        await store.stop()
