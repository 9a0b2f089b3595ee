"""Kafka goes away at each moment of a transaction: no process hangs, and retried records are there exactly once.

librdkafka waits without a limit in ``send_offsets_to_transaction`` where the broker's connections were refused for a while,
also when the broker has come back. Processes of the Kafka sink's and the materializer's writers, without Spark; one outage for
all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compose.local.kafka import KafkaCluster, Ports
from compose.local.ports import LOOPBACK, free_ports
from spark_jobs.spark.watchdog import EXIT_CODE, GRACE_S
from tests.support.eventually import eventually
from tests.support.kafka_gate import Gate, Moment
from tests.support.transaction_steps import RECORDS, RETRIABLE
from worker.fetch.java import FAST_START
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[4]
TIMEOUT_S: Final = 5
#: A few calls one after the other, each with its own limit, on a busy machine.
LIMIT_S: Final = 4 * (TIMEOUT_S + GRACE_S)
QUICK: Final = [
    ("kafka", Moment("AddOffsetsToTxn", before=False, closed=True)),
    ("kafka", Moment("TxnOffsetCommit", before=True, closed=True)),
    ("kafka", Moment("EndTxn", before=False, closed=False)),
    ("materializer", Moment("TxnOffsetCommit", before=False, closed=True)),
    ("materializer", Moment("EndTxn", before=False, closed=True)),
]
ALL: Final = [
    (kind, Moment(request, before, closed))
    for kind in ("kafka", "materializer")
    for request in (
        "FindCoordinator",
        "InitProducerId",
        "AddPartitionsToTxn",
        "Produce",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
    )
    for before in (True, False)
    for closed in (True, False)
]
AT_ONCE: Final = 8


@dataclass
class GatedKafka:
    """A broker whose clients of ``gate`` can be cut off, each at a moment of its own."""

    cluster: KafkaCluster
    gate: Gate


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatedKafka]:
    client, between, controller, behind = free_ports([None] * 4)
    gate = Gate(behind)
    names = {"CLIENT": client, "BROKER": between}
    listeners = [f"{name}://{LOOPBACK}:{port}" for name, port in names.items()]
    properties = {
        "listeners": ",".join([*listeners, f"GATED://{LOOPBACK}:{behind}", f"CONTROLLER://{LOOPBACK}:{controller}"]),
        "advertised.listeners": ",".join([*listeners, f"GATED://{LOOPBACK}:{gate.port}"]),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (*names, "GATED", "CONTROLLER")),
    }
    with KafkaCluster(
        tmp_path_factory.mktemp("gated"),
        port=None,
        ports=[Ports(client, between, controller)],
        properties=properties,
        jvm_options=FAST_START,
    ) as cluster:
        yield GatedKafka(cluster, gate)
        gate.close()


@dataclass
class Task:
    """A writer's process over a topic of its own."""

    kind: str
    moment: Moment
    folder: Path
    name: str = field(init=False)
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.name = (
            f"{self.kind}-{self.moment.request}-{'before' if self.moment.before else 'after'}-"
            f"{'closed' if self.moment.closed else 'held'}-{self.folder.name}"
        ).lower()

    def topics(self) -> list[str]:
        """The topics that must exist before it starts; the materializer creates its own."""
        return [self.name, *([f"{self.name}-out", f"{self.name}-markers"] if self.kind == "kafka" else [])]

    def start(self, port: int) -> None:
        """Start it, with Kafka at the port."""
        plan = {
            "kind": self.kind,
            "name": self.name,
            "bootstrap": f"{LOOPBACK}:{port}",
            "timeout_ms": TIMEOUT_S * 1000,
            "folder": str(self.folder / self.name),
        }
        with (self.folder / f"{self.name}.log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.transaction_steps", json.dumps(plan)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                cwd=ROOT,
            )

    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def log(self) -> str:
        """Its log."""
        return f"{self.name}:\n{(self.folder / f'{self.name}.log').read_text()[-1000:]}"

    def written(self, bootstrap: str) -> list[int]:
        """The numbers that readers of committed records see, in order."""
        values = [record.value for record in read_topic(bootstrap, f"{self.name}-out", committed=True)]
        if self.kind == "kafka":
            return [int(value or b"") for value in values]
        return [int(msgspec.json.decode(value or b"")["after"]) for value in values]


def interrupt(gated: GatedKafka, tasks: list[Task]) -> None:
    """Take Kafka away from each task at its moment, until all have ended; then do their work again."""
    admin = AdminClient({"bootstrap.servers": gated.cluster.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1) for task in tasks for topic in task.topics()]).values():
        future.result(30)
    try:
        for task in tasks:
            gated.gate.take_away(task.name, task.moment)
            task.start(gated.gate.port)
        eventually(
            lambda: all(task.ended() for task in tasks),
            "all processes have ended",
            LIMIT_S,
            detail=lambda: "".join(task.log() for task in tasks if not task.ended()),
        )
        for task in tasks:
            assert gated.gate.gone(task.name), f"the moment did not come: {task.log()}"
            assert task.process.returncode in (0, RETRIABLE, EXIT_CODE), task.log()
        gated.gate.give_back()
        for task in tasks:
            task.start(gated.gate.port)
        deadline = time.monotonic() + LIMIT_S
        for task in tasks:
            # As the frame does: the broker may still be ending the transaction that was interrupted.
            while task.process.wait(deadline - time.monotonic()) == RETRIABLE:
                task.start(gated.gate.port)
            assert task.process.returncode == 0, task.log()
            assert task.written(gated.cluster.bootstrap) == list(range(RECORDS)), task.name
    finally:
        for task in tasks:
            if not task.ended():
                task.process.kill()
                task.process.wait()


@pytest.mark.slow
def test_an_outage_at_the_moments_that_hang(gated: GatedKafka, tmp_path: Path) -> None:
    interrupt(gated, [Task(kind, moment, tmp_path) for kind, moment in QUICK])


@pytest.mark.slow
def test_an_outage_at_every_moment(gated: GatedKafka, tmp_path: Path) -> None:
    for first in range(0, len(ALL), AT_ONCE):
        interrupt(gated, [Task(kind, moment, tmp_path) for kind, moment in ALL[first : first + AT_ONCE]])
