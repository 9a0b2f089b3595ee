"""Processes that hang for longer than their session and then continue as if nothing had happened."""

import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos.cluster import Cluster, freeze, thaw, timed
from tests.chaos.conftest import ProxiedKafka
from tests.chaos.delivery import Load

#: Of a record batch (version 2): base offset, length; behind the length: leader epoch, magic, CRC, attributes, last offset
#: delta, first and last timestamp, producer id, producer epoch.
_HEAD = struct.Struct(">qi")
_REST = struct.Struct(">ibIhiqqqh")
_CONTROL = 1 << 5


def producers(kafka: ProxiedKafka, topic: str) -> list[tuple[int, int]]:
    """Producer id and epoch of each batch of records in a topic's only partition, in the order of the log."""
    batches = []
    folder = Path(kafka.cluster.state_dir) / "broker-1" / "data" / f"{topic}-0"
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        at = 0
        while at + _HEAD.size + _REST.size <= len(data):
            _, length = _HEAD.unpack_from(data, at)
            if length <= 0:
                break  # preallocated
            _, _, _, attributes, _, _, _, producer, epoch = _REST.unpack_from(data, at + _HEAD.size)
            if not attributes & _CONTROL:
                batches.append((producer, epoch))
            at += _HEAD.size + length
    return batches


def test_zombie_leader(pair: Cluster, load: Callable[..., Load], broker: ProxiedKafka) -> None:
    """A leader that hung is replaced, and writes nothing to the config topic when it wakes up, though a client asks it to."""
    stream = load()
    pair.until_saved(stream, 0.1)
    zombie, other = pair.leader(), pair.followers()[0]
    control = zombie.pid
    with ThreadPoolExecutor(1) as pool:
        freeze(control)
        try:
            with timed("a hanging leader had been replaced after"):
                pair.until(lambda: pair.leads(other), "the other worker leads")
                pair.until_running(stream, {other.worker_id}, by=other)
            before = producers(broker, f"{pair.group}-configs")
            other.create(stream.name, stream.config | {"millrace.test": "written by the new leader"})
            # The kernel takes this for it; the first thing it does when it wakes up is to read it.
            asked = pool.submit(
                pair.ask,
                "PUT",
                f"/connectors/{stream.name}/config",
                stream.config | {"millrace.test": "asked of the zombie"},
                zombie,
            )
        finally:
            thaw(control)
        status, body = asked.result()
    print(f"the zombie answered {status} {body}")
    pair.until_complete()
    after = producers(broker, f"{pair.group}-configs")
    assert len(after) > len(before), "the new leader has written nothing"
    assert len({producer for producer, _ in after}) == 1, "someone wrote without the leaders' transactional id"
    epochs = [epoch for _, epoch in after]
    assert epochs == sorted(epochs), f"an earlier leader wrote behind a later one: {epochs}"
    assert epochs[-1] > epochs[0]
    # Either it was refused, or the leader of now has done it: then all know it.
    expected = "asked of the zombie" if status in {200, 201} else "written by the new leader"
    for worker in pair.workers:
        pair.until_config(stream, "millrace.test", expected, worker)
    pair.finish(stream)


def test_zombie_tasks(pair: Cluster, load: Callable[..., Load]) -> None:
    """A worker hangs; its tasks run elsewhere; its task hosts wake up first, and no control process tells them to stop."""
    stream = load(records=5000)
    pair.until_saved(stream, 0.2)
    zombie = pair.followers()[0]
    assert zombie.worker_id in pair.find_workers(stream)
    control, hosts = zombie.pid, zombie.hosts()
    others = pair.ids - {zombie.worker_id}
    near = pair.worker(min(others))
    freeze(control, *hosts)
    try:
        pair.until_running(stream, others, by=near)
        thaw(*hosts)
        if pair.exactly_once:
            with timed("the zombie's task knew that it was fenced after"):
                pair.until(
                    lambda: "a newer instance of this task owns the transactional id" in zombie.service.log_tail(200),
                    "the zombie's task is fenced",
                )
        pair.until_done(stream, by=near)
    finally:
        thaw(control, *hosts)
    pair.until_complete()
    pair.until_running(stream)
    pair.finish(stream)


def test_hanging_machine(pair: Cluster, load: Callable[..., Load]) -> None:
    """A worker and its task hosts hang together and wake up together: what they then say of their tasks is old news."""
    stream = load(records=5000)
    pair.until_saved(stream, 0.2)
    zombie = pair.followers()[0]
    assert zombie.worker_id in pair.find_workers(stream)
    hanging = (zombie.pid, *zombie.hosts())
    others = pair.ids - {zombie.worker_id}
    freeze(*hanging)
    try:
        pair.until_running(stream, others, by=pair.worker(min(others)))
    finally:
        thaw(*hanging)
    pair.until_complete()
    pair.until_done(stream)
    pair.until_settled(stream)
    pair.finish(stream)
