"""A worker that is cut off from Kafka, and a Kafka that goes and comes back."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from compose.local.kafka import KafkaCluster, Ports
from compose.local.ports import LOOPBACK, free_port
from compose.local.worker import MillraceWorker
from tests.chaos.proxy import Proxy
from tests.integration.control._cluster import all_running, datagen, members, owners, wait_for
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = [f"c{number}" for number in range(4)]


@dataclass(frozen=True)
class Stage:
    """A Kafka with a second way to it that can be cut, one worker on each way."""

    kafka: KafkaCluster
    proxy: Proxy
    near: MillraceWorker
    far: MillraceWorker


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    client, broker, controller, behind = (free_port(None) for _ in range(4))
    proxy = Proxy(behind)
    kafka = KafkaCluster(
        folder / "kafka",
        ports=[Ports(client, broker, controller)],
        jvm_options=FAST_START,
        properties={
            "listeners": f"CLIENT://{LOOPBACK}:{client},BROKER://{LOOPBACK}:{broker},CONTROLLER://{LOOPBACK}:{controller},"
            f"PROXIED://{LOOPBACK}:{behind}",
            "advertised.listeners": f"CLIENT://{LOOPBACK}:{client},BROKER://{LOOPBACK}:{broker},PROXIED://{LOOPBACK}:{proxy.port}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT",
        },
    )
    group = f"stage-{secrets.token_hex(4)}"
    workers = []
    try:
        kafka.start()
        for name, address in (("near", kafka.bootstrap), ("far", f"{LOOPBACK}:{proxy.port}")):
            workers.append(MillraceWorker(state_dir=folder / name, bootstrap=address, group=group, processes=1).start())
        near, far = workers
        wait_for(lambda: members(near) == 2, "two members")
        for name in NAMES:
            near.create(name, datagen(f"{group}-{name}", 1))
        wait_for(lambda: all_running(near, NAMES), "all run")
        yield Stage(kafka, proxy, near, far)
    finally:
        for worker in workers:
            worker.kill()
        proxy.close()
        kafka.kill()


def test_a_worker_that_is_cut_off_stops_its_tasks_and_comes_back_by_itself(stage: Stage) -> None:
    near, far = stage.near, stage.far
    before = list(owners(near, NAMES).values())
    assert before.count([near.worker_id]) == before.count([far.worker_id]) == 2
    stage.proxy.cut()
    wait_for(lambda: far.request("GET", "/health")[0] == 500, "it knows that it is cut off", 15)
    wait_for(
        lambda: set(map(tuple, owners(near, NAMES).values())) == {(near.worker_id,)} and all_running(near, NAMES),
        "its tasks run on the other worker",
        20,
    )
    wait_for(lambda: _runs_nothing(far), "it has stopped its own")
    stage.proxy.heal()
    wait_for(
        lambda: list(owners(near, NAMES).values()).count([far.worker_id]) == 2 and all_running(near, NAMES),
        "it has tasks again",
        40,
    )
    wait_for(lambda: all_running(far, NAMES), "both tell the same", 20)
    after = list(owners(near, NAMES).values())
    assert after.count([near.worker_id]) == after.count([far.worker_id]) == 2


def _runs_nothing(worker: MillraceWorker) -> bool:
    metrics = worker.request("GET", "/metrics")[1].splitlines()
    lines = [line for line in metrics if line.startswith(("millrace_host_tasks{", "millrace_host_connectors{"))]
    return len(lines) == 2 and all(line.endswith(" 0") for line in lines)


def test_when_kafka_was_away_everything_goes_on_by_itself(stage: Stage) -> None:
    near, far = stage.near, stage.far
    stage.kafka.broker(0).kill()
    wait_for(lambda: near.request("GET", "/health")[0] == 500 == far.request("GET", "/health")[0], "both know", 20)
    stage.kafka.broker(0).start()
    for worker in (near, far):
        wait_for(
            lambda worker=worker: worker.request("GET", "/health")[0] == 200 and all_running(worker, NAMES),  # type: ignore[misc]
            "all run again",
            60,
        )
    wait_for(lambda: far.request("PUT", "/connectors/c0/config", datagen("again", 1))[0] == 200, "changes are taken")
    wait_for(lambda: all_running(near, NAMES), "all run")
