"""From the Java connector to Millrace, step by step as docs/connectors/scylla.md says, with offsets in the Java form."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.process.service import wait_until
from compose.local.scylla.writes import Insert
from tests.support.eventually import eventually
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.scylla.client import Emulation
    from compose.local.worker import MillraceWorker

_EPOCH = 0x01B21DD213814000


def bound(time_ms: int, low_bits: int) -> str:
    """A time uuid with given low bits, as the Java library makes the bounds of its windows."""
    ticks = time_ms * 10_000 + _EPOCH
    return str(
        uuid.UUID(
            int=(ticks & 0xFFFFFFFF) << 96
            | (ticks >> 32 & 0xFFFF) << 80
            | (ticks >> 48 & 0xFFF | 0x1000) << 64
            | low_bits
        )
    )


def test_java_offsets_are_taken_over(
    scylla: Emulation, scylla_keyspace: Callable[..., str], millrace: Callable[..., MillraceWorker], bootstrap: str
) -> None:
    if not scylla.emulated:
        pytest.skip("the vnodes and times of changes are known from what the emulation logs")
    start_ms = scylla.new_generation(vnodes=4, shards=1)
    keyspace = scylla_keyspace()
    table = f"{keyspace}.orders"
    scylla.create_table(f"CREATE TABLE {table} (id int PRIMARY KEY, v text) WITH cdc = {{'enabled': true}}")
    changes: dict[str, list[tuple[uuid.UUID, bytes, int]]] = {}
    for number in range(40):
        (logged,) = scylla.apply(Insert(table, {"id": number, "v": "x"})).logged
        vnode = str(int.from_bytes(logged.stream[8:], "big") >> 4 & 0x3FFFFF)
        changes.setdefault(vnode, []).append((uuid.UUID(bytes=logged.time), logged.stream, number))
    # Where the Java connector stopped: behind the middle change of each vnode, in the window that holds all of them, however
    # long it took to write them.
    window_end_ms = max((time.time - _EPOCH) // 10_000 for writes in changes.values() for time, _, _ in writes)
    offsets, expected = [], set[int]()
    for vnode, writes in changes.items():
        time, stream, _ = writes[len(writes) // 2]
        offsets.append(
            {
                "partition": {
                    "keyspace_name": keyspace,
                    "table_name": "orders",
                    "vnode_id": vnode,
                    "generation_start": str(start_ms),
                },
                "offset": {
                    "window_start": bound(start_ms, 0x8080808080808080),
                    "change_id_stream_id": f"0x{stream.hex()}",
                    "window_end": bound(window_end_ms, 0x7F7F7F7F7F7F7F7F),
                    "change_id_time": str(time),
                },
            }
        )
        # It may have stopped in the middle of the change, so that one comes again.
        expected |= {number for _, _, number in writes[len(writes) // 2 :]}
    config = {  # an existing configuration of the Java connector, as it is
        "connector.class": "com.scylladb.cdc.debezium.connector.ScyllaConnector",
        "topic.prefix": keyspace,
        "tasks.max": "3",
        "scylla.cluster.ip.addresses": scylla.address,
        "scylla.table.names": table,
        "scylla.query.time.window.size": "1000",
        "scylla.confidence.window.size": "500",
        "auto.create.topics.enable": "true",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
    }
    # Exactly once: a worker that gets no time from a busy machine loses its place in the group and its tasks begin again where
    # they were, which must not look like changes that came twice because of the Java offsets.
    worker = millrace(properties={"exactly.once.source.support": "enabled"})

    def ask(method: str, path: str, body: Any = None) -> Any:
        """Return the worker's answer; while its group rebalances, the worker asks its clients (409) to retry."""
        answers: list[tuple[int, Any]] = []

        def answered() -> bool:
            answers.append(worker.request(method, f"/connectors{path}", body, timeout=90))
            return answers[-1][0] != 409

        wait_until(answered, 60)
        status, answer = answers[-1]
        assert status < 300, answer
        return answer

    ask("POST", "", {"name": keyspace, "config": config, "initial_state": "STOPPED"})
    eventually(lambda: ask("GET", f"/{keyspace}/status")["connector"]["state"] == "STOPPED", "it is stopped")
    answer = ask("PATCH", f"/{keyspace}/offsets", {"offsets": offsets})
    assert "altered" in answer["message"]
    ask("PUT", f"/{keyspace}/resume")

    def arrived() -> list[int]:
        records = read_topic(bootstrap, f"{keyspace}.{table}", committed=True)
        return [json.loads(record.key or b"{}")["id"] for record in records]

    assert wait_until(lambda: expected <= set(arrived()), 120), f"{expected - set(arrived())} did not come"
    assert sorted(arrived()) == sorted(expected), "something came that the Java connector had delivered, or came twice"

    scylla.apply(Insert(table, {"id": 1000, "v": "new"}))
    eventually(lambda: 1000 in arrived(), "the new row comes", 120)
