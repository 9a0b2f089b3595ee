"""The faults of a soak: each ends or freezes real processes and restarts what no other process restarts."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from compose.demo.run import JOBS, SOURCES
from compose.local.process.service import PATIENCE, wait_until
from compose.soak.processes import list_descendants, read_arguments
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from compose.demo.run import Demo
    from compose.local.worker import MillraceWorker

#: Longer than a worker's session and than most requests: others take the work over meanwhile.
_FROZEN_S: Final = 10.0
_PATIENCE_S: Final = 180.0
#: All must run for so long to have recovered: a status follows a fault by up to a second.
_STEADY_S: Final = 5.0
_JVM: Final = "org.apache.spark.deploy.SparkSubmit"
_PYTHON_WORKER: Final = "pyspark.daemon"
_OLD_LOGS: Final = 5


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault.

    Attributes:
        name: What happens, for people.
        inflict: Does it, and starts again what it ended. Blocks.
    """

    name: str
    inflict: Callable[[Demo, random.Random], None]


def _kill_worker(demo: Demo, chance: random.Random) -> None:
    worker = chance.choice(demo.rest.workers)
    worker.kill()
    for name in (*SOURCES, *JOBS):
        demo.rest.wait_running(name, _PATIENCE_S, without=worker.worker_id)
    worker.start()


def _kill_control_process(demo: Demo, chance: random.Random) -> None:
    worker = chance.choice(demo.rest.workers)
    hosts = worker.hosts()
    worker.kill_control()
    if not wait_until(lambda: not worker.running and not any(map(_is_alive, hosts)), _PATIENCE_S):
        raise StackError(f"task hosts of worker {worker.worker_id} live on without their control process: {hosts}")
    worker.start()


def _kill_task_host(demo: Demo, chance: random.Random) -> None:
    hosts = chance.choice(demo.rest.workers).hosts()
    if hosts:
        _kill(chance.choice(hosts))


def _freeze_worker(demo: Demo, chance: random.Random) -> None:
    worker = chance.choice(demo.rest.workers)
    worker.pause()
    time.sleep(_FROZEN_S)
    worker.resume()


def _kill_spark(demo: Demo, chance: random.Random) -> None:
    _kill_below(demo, chance, _JVM)


def _kill_python_worker(demo: Demo, chance: random.Random) -> None:
    _kill_below(demo, chance, _PYTHON_WORKER)


def _kill_kafka(demo: Demo, chance: random.Random) -> None:
    demo.kafka.kill()
    time.sleep(chance.uniform(0, _FROZEN_S))
    demo.kafka.start()


def _freeze_kafka(demo: Demo, chance: random.Random) -> None:
    broker = demo.kafka.broker(0)
    broker.pause()
    time.sleep(chance.uniform(1, _FROZEN_S))
    broker.resume()


def _kill_postgres(demo: Demo, chance: random.Random) -> None:
    demo.postgres.kill()
    time.sleep(chance.uniform(0, _FROZEN_S))
    demo.postgres.start()


def _restart_registry(demo: Demo, chance: random.Random) -> None:
    demo.registry.kill()
    time.sleep(chance.uniform(0, _FROZEN_S))
    demo.registry.start()


def _rotate_log(demo: Demo, _chance: random.Random) -> None:
    path = demo.requests.path
    for number in range(_OLD_LOGS, 0, -1):
        old = path.with_name(f"{path.name}.{number}")
        if old.exists():
            old.rename(path.with_name(f"{path.name}.{number + 1}"))
    if path.exists():
        demo.requests.rotate()


#: All of them; a soak draws from them by its seed.
FAULTS: Final = (
    Fault("a worker is killed; it comes back when the other one has its work", _kill_worker),
    Fault("the control process of a worker is killed, its task hosts end by themselves", _kill_control_process),
    Fault("a task host is killed", _kill_task_host),
    Fault(f"a worker hangs for {_FROZEN_S:g} s", _freeze_worker),
    Fault("Spark's JVM is killed", _kill_spark),
    Fault("a Python worker of Spark is killed", _kill_python_worker),
    Fault("Kafka is killed and comes back", _kill_kafka),
    Fault("Kafka hangs", _freeze_kafka),
    Fault("PostgreSQL is killed and comes back", _kill_postgres),
    Fault("the schema registry is killed and comes back", _restart_registry),
    Fault("the access log is rotated", _rotate_log),
)


def wait_recovered(demo: Demo) -> float:
    """Wait until all connectors and jobs run and stay so; the seconds until they ran. Blocks.

    Raises:
        StackError: One does not run, with its status, or a worker has ended.
    """
    begin = down = time.monotonic()
    while (now := time.monotonic()) - down < _STEADY_S:
        for worker in demo.rest.workers:
            if not worker.running:
                raise StackError(f"worker {worker.worker_id} has ended:\n{worker.service.log_tail()}")
        for name in (*SOURCES, *JOBS):
            tasks = demo.rest.status(name)["tasks"]
            if not tasks or any(task["state"] != "RUNNING" for task in tasks):
                down = now
                if now - begin > _PATIENCE_S * PATIENCE:
                    seconds = f"{now - begin:.0f} s"
                    raise StackError(f"{name} does not run {seconds} after the fault: {demo.rest.status(name)}")
        time.sleep(0.2)
    return down - begin


def list_processes(workers: list[MillraceWorker]) -> list[int]:
    """All processes of workers that run: control processes, task hosts, Spark with its JVM and Python workers."""
    return [pid for worker in workers if worker.running for pid in list_descendants(worker.pid)]


def _kill_below(demo: Demo, chance: random.Random, text: str) -> None:
    pids = [pid for pid in list_processes(demo.rest.workers) if text in read_arguments(pid)]
    if pids:
        _kill(chance.choice(pids))


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended meanwhile


def _is_alive(pid: int) -> bool:
    return bool(read_arguments(pid))
