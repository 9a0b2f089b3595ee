"""``millrace demo``: the main job on the local stack, from nothing to a verified result."""

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from compose.local.console import say
from compose.local.errors import StackError
from compose.local.kafka import KafkaCluster
from compose.local.service import wait_until
from compose.local.topics import read_topic
from compose.local.worker import MillraceWorker

TOPIC = "demo-lines"
CONNECTOR = "demo-file"
_SHOWN = ("kafka_connect_worker_task_count", "kafka_connect_connector_task_status",
          "kafka_connect_source_task_source_record_write_total")


def _append(source: Path, start: int, count: int) -> None:
    with source.open("a", encoding="utf-8") as file:
        file.writelines(f'{{"order": {number}, "item": "item-{number % 17}"}}\n' for number in range(start, start + count))


def _values(bootstrap: str) -> list[str]:
    return [json.loads(record.value or b"null") for record in read_topic(bootstrap, TOPIC, committed=True)]


def _where(workers: list[MillraceWorker]) -> dict[str, Any]:
    for worker in workers:
        try:
            status, body = worker.request("GET", f"/connectors/{CONNECTOR}/status", timeout=5)
        except OSError:
            continue
        if status == 200:
            return dict(body)
    return {"tasks": []}


def _owner(workers: list[MillraceWorker]) -> str | None:
    return next((task["worker_id"] for task in _where(workers)["tasks"] if task["state"] == "RUNNING"), None)


def _captured(bootstrap: str, source: Path, timeout: float) -> list[str]:
    wanted = source.read_text(encoding="utf-8").splitlines()
    if not wait_until(lambda: set(wanted) <= set(_values(bootstrap)), timeout, 0.25):
        found = set(_values(bootstrap))
        raise StackError(f"{len(set(wanted) - found)} of {len(wanted)} lines had not reached topic {TOPIC} after {timeout:g} s")
    return wanted


def run_demo(*, lines: int = 2000, keep: bool = False) -> int:
    """Run the demo. Blocks, for about half a minute when everything is downloaded.

    Args:
        lines: Lines written to the source, half of them after a worker was killed.
        keep: Leave Kafka and the workers running.

    Returns:
        0 when the topic holds every line of the source.

    Raises:
        StackError: A part did not start, or a line is missing.
    """
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="millrace-demo-"))
    source = folder / "orders.txt"
    kafka = KafkaCluster(folder / "kafka", count=1, port=None, detached=keep, say=say)
    workers: list[MillraceWorker] = []
    try:
        kafka.start()
        say(f"Kafka is ready at {kafka.bootstrap}")
        for number in (1, 2):
            properties = {"value.converter.schemas.enable": "false", "exactly.once.source.support": "enabled"}
            workers.append(MillraceWorker(folder / f"worker-{number}", kafka.bootstrap, group="demo", processes=1,
                                          detached=keep, properties=properties))
            workers[-1].start()
            say(f"worker {number} is ready at {workers[-1].url}")
        _run(kafka, workers, source, lines)
        say(f"done in {time.monotonic() - started:.0f} s")
        if keep:
            say(f"left running: Kafka at {kafka.bootstrap}, REST at {_alive(workers).url}; files in {folder}")
            pids = [worker.pid for worker in workers if worker.running] + [kafka.broker(0).pid]
            say(f"stop it with: kill {' '.join(map(str, pids))}")
    finally:
        if not keep:
            for worker in workers:
                worker.stop()
            kafka.stop()
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _alive(workers: list[MillraceWorker]) -> MillraceWorker:
    return next(worker for worker in workers if worker.running)


def _run(kafka: KafkaCluster, workers: list[MillraceWorker], source: Path, lines: int) -> None:
    _append(source, 0, lines // 2)
    config = {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "tasks.max": "1",
              "file": str(source), "topic": TOPIC}
    say(f"POST {workers[0].url}/connectors  {json.dumps({'name': CONNECTOR, 'config': config})}")
    begin = time.monotonic()
    status, body = workers[0].request("POST", "/connectors", {"name": CONNECTOR, "config": config})
    if status != 201:
        raise StackError(f"the connector was refused with status {status}: {body}")
    workers[0].wait_running(CONNECTOR, 1)
    say(f"201 created, running after {time.monotonic() - begin:.2f} s")
    _captured(kafka.bootstrap, source, 30)
    say(f"{lines // 2} lines captured; the first events of topic {TOPIC}:")
    for value in _values(kafka.bootstrap)[:3]:
        say(f"  {value}")

    owner = _owner(workers)
    victim = next(worker for worker in workers if worker.worker_id == owner)
    say(f"kill -9 worker {owner}, which runs the task, while lines are being written")
    _append(source, lines // 2, lines // 4)
    victim.kill()
    _append(source, lines // 2 + lines // 4, lines - lines // 2 - lines // 4)
    begin = time.monotonic()
    others = [worker for worker in workers if worker is not victim]
    if not wait_until(lambda: _owner(others) not in {None, owner}, 60, 0.1):
        raise StackError(f"the task did not move to another worker within 60 s: {_where(others)}")
    say(f"the task runs on {_owner(others)}, {time.monotonic() - begin:.1f} s after the kill")
    wanted = _captured(kafka.bootstrap, source, 60)
    values = _values(kafka.bootstrap)
    say(f"source: {len(wanted)} lines; topic: {len(values)} records, {len(set(values))} different; missing: "
        f"{len(set(wanted) - set(values))}; repeated: {len(values) - len(set(values))}")
    say("some of its metrics:")
    wait_until(lambda: len(_metrics(workers)) == len(_SHOWN), 10, 0.2)
    for line in _metrics(workers):
        say(f"  {line}")


def _metrics(workers: list[MillraceWorker]) -> list[str]:
    _, text = _alive(workers).request("GET", "/metrics")
    return [line for line in str(text).splitlines() if line.startswith(_SHOWN)]
