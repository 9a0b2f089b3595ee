"""One small world of tables and changes, captured by Debezium for MariaDB (the recordings) and by this project's connector.

The server is always a new one with the same settings and statements, so that positions, GTIDs and times in the events are the
same each time. ``python -m tests.integration.mysql.debezium_world`` recreates the recordings, see ``recordings/README.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition

from compose.local.connect import DEBEZIUM, JavaConnect
from compose.local.databases.server_pair import execute_sql
from compose.local.kafka import KafkaCluster
from compose.local.mariadb import MariaDb
from tests.support.eventually import eventually_async
from worker.fetch.java import FAST_START
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

FOLDER = Path(__file__).with_name("recordings")
#: Stands for `topic.prefix` in recordings.
SERVER = "server"
DATABASE = "world"
#: The server's settings in addition to those of the local stack.
SERVER_SETTINGS = {"default-time-zone": "+00:00", "binlog-annotate-row-events": "ON", "gtid-strict-mode": "ON"}
_LAST_TABLE, _LAST_ID = "empty_at_first", 999
_DEADLINE = 120.0  # seconds
_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"

#: The options of each recording's connector in addition to `_COMMON`.
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "default": {
        "provide.transaction.metadata": "true",
        "heartbeat.interval.ms": "1000",
    },
    "precise": {
        "time.precision.mode": "connect",
        "decimal.handling.mode": "string",
        "bigint.unsigned.handling.mode": "precise",
        "skipped.operations": "none",
        "include.query": "true",
    },
    "iso": {
        "time.precision.mode": "isostring",
        "decimal.handling.mode": "double",
        "binary.handling.mode": "hex",
        "tombstones.on.delete": "false",
        "column.propagate.source.type": r"world\.(?!customers).*",
        "include.schema.comments": "true",
        "message.key.columns": "world.no_key:a;world.customers:id,name",
        "column.mask.with.12.chars": "world.customers.card",
        "column.truncate.to.3.chars": "world.customers.name",
        "column.mask.hash.v2.SHA-256.with.salt.Cz3": "world.customers.email",
        "skip.messages.without.change": "true",
        "include.schema.changes": "false",
    },
    "nano": {
        "time.precision.mode": "nanoseconds",
        "binary.handling.mode": "base64",
        "schema.name.adjustment.mode": "avro",
        "field.name.adjustment.mode": "avro",
        "enable.time.adjuster": "false",
        "skipped.operations": "u",
        "column.exclude.list": "world.customers.card,world.numbers.t1",
        "event.deserialization.failure.handling.mode": "warn",
    },
}


class Worker(Protocol):
    """A Connect worker's REST API, of either kind."""

    def request(self, method: str, path: str, body: object = None, timeout: float = 30.0) -> tuple[int, Any]:
        """Status and decoded body."""
        ...


class Record(NamedTuple):
    """One record of a capture, with the topic prefix replaced by ``SERVER``.

    Attributes:
        phase: "snapshot" for what was there before the changes were written, else "stream".
        headers: names and values, the values as text.
    """

    topic: str
    phase: str
    key_schema: Any
    key: Any
    value_schema: Any
    value: Any
    headers: list[list[str]]


class Capture(NamedTuple):
    """The output of one connector: its records by topic in order, and its offsets at the end.

    Attributes:
        name: of the connector, which is stopped: its topic prefix too; "" for a recording.
        offsets: the offsets topic's records of the connector, as [partition, offset], repeated ones left out.
    """

    records: list[Record]
    offsets: list[list[Any]]
    name: str = ""

    def rows(self) -> dict[str, int]:
        """Records of each table's topic."""
        return {
            topic: len(records) for topic, records in self.topics().items() if topic.startswith(f"{SERVER}.{DATABASE}.")
        }

    def topics(self) -> dict[str, list[Record]]:
        """By topic in order."""
        by_topic: dict[str, list[Record]] = {}
        for record in self.records:
            by_topic.setdefault(record.topic, []).append(record)
        return by_topic


def statements(name: str) -> list[str]:
    """The statements of ``before`` or ``changes``."""
    lines = (FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("--"))
    return [part.strip() for part in text.split(";\n") if part.strip()]


def fingerprint() -> str:
    """Changes with the statements, the server's settings and the connectors' options: a recording of other ones is stale."""
    content = [statements("before"), statements("changes"), SERVER_SETTINGS, _COMMON, VARIANTS]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def server(folder: Path) -> MariaDb:
    """The world's server, new, not started; for ``with``."""
    return MariaDb(folder, port=None, durable=False, settings=SERVER_SETTINGS)


def write(database: MariaDb, name: str) -> None:
    """Run the statements of ``before`` or ``changes`` on one connection. Blocks; raises as ``execute_sql``."""
    execute_sql(database, *statements(name))


def rows_before(database: MariaDb) -> int:
    """Rows in the captured tables. Blocks."""
    tables = execute_sql(database, f"USE {DATABASE}", "SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'")
    counts = (
        execute_sql(database, f"SELECT COUNT(*) FROM {DATABASE}.`{table}`")
        for table, _ in tables
        if not table.startswith("secret")
    )
    return sum(count for ((count,),) in counts)


_COMMON: Mapping[str, str] = {
    "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
    "tasks.max": "1",
    "database.include.list": DATABASE,
    "table.exclude.list": r"world\.secret.*",
    "snapshot.mode": "initial",
    "key.converter": _CONVERTER,
    "value.converter": _CONVERTER,
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
}
#: Only Debezium needs these; for ours they are options without effect.
HISTORY = {"schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory"}
#: Only ours knows this one: Debezium never reads a table that comes later, so the renamed table would have more records.
NO_NEW_TABLES = {"snapshot.new.tables": "false"}


def config(variant: str, database: MariaDb, prefix: str, number: int) -> dict[str, str]:
    """A connector's configuration, understood by both."""
    return {
        **_COMMON,
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.server.id": str(7000 + number),
        "topic.prefix": prefix,
        **HISTORY,
        **NO_NEW_TABLES,
        **VARIANTS[variant],
    }


async def read_topics(bootstrap: str, prefixes: Sequence[str]) -> dict[str, list[Any]]:
    """All records of the topics that belong to a prefix, by topic."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        cluster = await consumer._client.fetch_all_metadata()  # one topic's would create it
        topics = [
            topic
            for topic in cluster.topics()
            if any(
                topic == prefix or topic.startswith(f"{prefix}.") or topic == f"__debezium-heartbeat.{prefix}"
                for prefix in prefixes
            )
        ]
        by_topic: dict[str, list[Any]] = {topic: [] for topic in topics}
        parts = [
            TopicPartition(topic, number) for topic in topics for number in cluster.partitions_for_topic(topic) or ()
        ]
        if not parts:
            return by_topic
        consumer.assign(parts)
        await consumer.seek_to_beginning(*parts)
        ends = await consumer.end_offsets(parts)
        while behind := [partition for partition in parts if await consumer.position(partition) < ends[partition]]:
            for partition, records in (await consumer.getmany(*behind, timeout_ms=300)).items():
                by_topic[partition.topic] += records
        return by_topic
    finally:
        await consumer.stop()


def decoded(raw: bytes) -> Any:
    """A record's value without its schema."""
    return json.loads(raw)["payload"]


def _decoded(raw: bytes | None, prefix: str) -> tuple[Any, Any]:
    if raw is None:
        return None, None
    parsed = json.loads(raw.decode().replace(prefix, SERVER))
    return parsed["schema"], parsed["payload"]


async def _until_snapshot(
    bootstrap: str, prefixes: Sequence[str], rows: int, check: Callable[[], Awaitable[None]]
) -> dict[str, int]:
    """Wait until every prefix has its snapshot; the number of records of each topic then."""
    counts: list[int] = []

    async def read() -> dict[str, int] | None:
        topics = await read_topics(bootstrap, prefixes)
        counts[:] = [
            sum(len(records) for topic, records in topics.items() if topic.startswith(f"{prefix}.{DATABASE}."))
            for prefix in prefixes
        ]
        if all(count >= rows for count in counts):
            return {topic: len(records) for topic, records in topics.items()}
        await check()
        return None

    return await eventually_async(
        read, f"the snapshots have {rows} rows each", _DEADLINE, every=0.1, detail=lambda: counts
    )


async def _until_last(bootstrap: str, prefixes: Sequence[str], check: Callable[[], Awaitable[None]]) -> None:
    """Wait until every prefix has the change that was written last."""
    waiting = set(prefixes)

    async def read() -> bool:
        last = [f"{prefix}.{DATABASE}.{_LAST_TABLE}" for prefix in waiting]
        for topic, records in (await read_topics(bootstrap, last)).items():
            if any(decoded(record.value)["after"]["id"] == _LAST_ID for record in records):
                waiting.discard(topic.split(".")[0])
        await check()
        return not waiting

    await eventually_async(
        read, "every prefix has the last change", _DEADLINE, every=0.1, detail=lambda: f"without it: {sorted(waiting)}"
    )


async def _until_there(bootstrap: str, expected: Mapping[str, Mapping[str, int]]) -> None:
    """Wait until topics hold what is expected, or for ten seconds: what is missing then is for the comparison to say."""
    end = time.monotonic() + 10
    prefixed_counts = {
        topic.replace(SERVER, prefix, 1): count
        for prefix, counts in expected.items()
        for topic, count in counts.items()
    }
    while prefixed_counts and time.monotonic() < end:
        topics = await read_topics(bootstrap, list(expected))
        if all(len(topics.get(topic, ())) >= count for topic, count in prefixed_counts.items()):
            return
        await asyncio.sleep(0.1)


async def _ask(worker: Worker, method: str, path: str, body: object = None) -> Any:
    status, answer = await asyncio.to_thread(worker.request, method, path, body)
    assert status < 400, f"{method} {path}: {status} {answer}"
    return answer


async def _stopped(worker: Worker, name: str) -> None:
    await _ask(worker, "PUT", f"/connectors/{name}/stop")
    status: Any = None

    async def stopped() -> bool:
        nonlocal status
        status = await _ask(worker, "GET", f"/connectors/{name}/status")
        return status["connector"]["state"] == "STOPPED" and not status["tasks"]

    await eventually_async(stopped, f"{name} is stopped", _DEADLINE, every=0.05, detail=lambda: status)


async def capture(
    bootstrap: str,
    workers: Mapping[str, Worker],
    database: MariaDb,
    variants: Sequence[str] = tuple(VARIANTS),
    expected: Mapping[tuple[str, str], Mapping[str, int]] | None = None,
) -> dict[tuple[str, str], Capture]:
    """Write the world on a new server while the workers' connectors capture it.

    Args:
        bootstrap: Kafka's addresses.
        workers: by name; each runs one connector for every variant.
        database: the world's server, started and new.
        variants: names of ``VARIANTS``.
        expected: by worker and variant the records of each table's topic that are waited for, some seconds: topics need not be
            written in order.

    Returns:
        by name of the worker and variant.

    Raises:
        AssertionError: a connector failed or was too slow.
    """
    await asyncio.to_thread(write, database, "before")
    rows = await asyncio.to_thread(rows_before, database)
    token = secrets.token_hex(4)
    prefixes = {
        (worker_name, variant): f"{worker_name}_{variant}_{token}" for worker_name in workers for variant in variants
    }
    for number, ((worker_name, variant), prefix) in enumerate(prefixes.items()):
        await _ask(
            workers[worker_name], "PUT", f"/connectors/{prefix}/config", config(variant, database, prefix, number)
        )
    names = list(prefixes.values())

    async def check() -> None:
        for (worker_name, _), prefix in prefixes.items():
            code, status = await asyncio.to_thread(workers[worker_name].request, "GET", f"/connectors/{prefix}/status")
            parts = [] if code == 404 else [status["connector"], *status["tasks"]]  # it has just been made
            failed = [part.get("trace", "") for part in parts if part["state"] == "FAILED"]
            assert not failed, f"{prefix} has failed: {failed[0]}"

    before = await _until_snapshot(bootstrap, names, rows, check)
    await asyncio.to_thread(write, database, "changes")
    await _until_last(bootstrap, names, check)
    await _until_there(bootstrap, {prefixes[key]: counts for key, counts in (expected or {}).items()})
    offsets = {}
    for (worker_name, variant), prefix in prefixes.items():
        await _stopped(workers[worker_name], prefix)
        answer = await _ask(workers[worker_name], "GET", f"/connectors/{prefix}/offsets")
        offsets[worker_name, variant] = [[item["partition"], item["offset"]] for item in answer["offsets"]]
    topics = await read_topics(bootstrap, names)
    captures = {}
    for key, prefix in prefixes.items():
        records = []
        for topic, raw in sorted(topics.items()):
            if prefix in topic:
                records += [
                    _record(topic, prefix, index < before.get(topic, 0), raw_record)
                    for index, raw_record in enumerate(raw)
                ]
        saved = json.loads(json.dumps(offsets[key]).replace(prefix, SERVER))
        captures[key] = Capture(records, saved, prefix)
    return captures


def _record(topic: str, prefix: str, early: bool, raw: Any) -> Record:
    key_schema, key = _decoded(raw.key, prefix)
    value_schema, value = _decoded(raw.value, prefix)
    headers = [[name, (content or b"").decode().replace(prefix, SERVER)] for name, content in raw.headers]
    phase = "snapshot" if early else "stream"
    return Record(topic.replace(prefix, SERVER), phase, key_schema, key, value_schema, value, headers)


def path_of(variant: str) -> Path:
    """The recording's file."""
    return FOLDER / f"{variant}.json"


def save(variant: str, capture: Capture, about: Mapping[str, Any]) -> None:
    """Write a recording: schemas once each, one record a line."""
    schemas: dict[str, int] = {}

    def number(schema: Any) -> int | None:
        return None if schema is None else schemas.setdefault(json.dumps(schema, ensure_ascii=False), len(schemas))

    lines, heartbeats = [], 0
    for record in capture.records:
        if record.topic.startswith("__debezium-heartbeat."):
            heartbeats += 1
            if heartbeats > 2:  # how many there are is chance
                continue
        row = [
            record.topic,
            record.phase,
            number(record.key_schema),
            record.key,
            number(record.value_schema),
            record.value,
            record.headers,
        ]
        lines.append(json.dumps(row, ensure_ascii=False))
    head = {**about, "variant": variant, "options": dict(VARIANTS[variant]), "fingerprint": fingerprint()}
    text = "".join(
        [
            '{"about": ',
            json.dumps(head, indent=1),
            ',\n"columns": ',
            json.dumps(["topic", "phase", "key schema", "key", "value schema", "value", "headers"]),
            ',\n"schemas": [\n',
            ",\n".join(schemas),
            '\n],\n"records": [\n',
            ",\n".join(lines),
            '\n],\n"offsets": ',
            json.dumps(capture.offsets),
            "\n}\n",
        ]
    )
    path_of(variant).write_text(text, encoding="utf-8")


def load(variant: str) -> Capture:
    """A recording.

    Raises:
        AssertionError: it is of other statements or options than those that are here now.
    """
    raw = json.loads(path_of(variant).read_text(encoding="utf-8"))
    assert raw["about"]["fingerprint"] == fingerprint(), (
        f"{path_of(variant)} is older than the statements or options; make it anew, see recordings/README.md"
    )
    schemas = [*raw["schemas"], None]
    return Capture(
        [
            Record(
                topic,
                phase,
                schemas[-1 if key_schema is None else key_schema],
                key,
                schemas[-1 if value_schema is None else value_schema],
                value,
                headers,
            )
            for topic, phase, key_schema, key, value_schema, value, headers in raw["records"]
        ],
        raw["offsets"],
    )


def java(folder: Path, bootstrap: str) -> JavaConnect:
    """The Java worker with Debezium, not started; for ``with``."""
    return JavaConnect(
        folder,
        bootstrap,
        group=f"debezium-{secrets.token_hex(4)}",
        plugins=[DEBEZIUM],
        jvm_options=FAST_START,
        properties={"offset.flush.interval.ms": "500"},
        port=None,
        say=say,
    )


def main(argv: list[str]) -> int:
    """Record all variants; about half a minute."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.mysql.debezium_world", description=__doc__)
    parser.add_argument("variants", nargs="*", default=list(VARIANTS))
    options = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory(prefix="millrace-world-") as name,
        server(Path(name) / "mariadb") as database,
        KafkaCluster(Path(name) / "kafka", port=None) as kafka,
        java(Path(name) / "java", kafka.bootstrap) as worker,
    ):
        ((_, plugin),) = [
            (item["class"], item["version"])
            for item in worker.request("GET", "/connector-plugins")[1]
            if item["class"] == _COMMON["connector.class"]
        ]
        about = {
            "made by": f"Debezium for MariaDB {plugin} on Kafka Connect {worker.request('GET', '/')[1]['version']}"
        }
        captures = asyncio.run(capture(kafka.bootstrap, {"java": worker}, database, options.variants))
        for (_, variant), recording in captures.items():
            save(variant, recording, about)
            print(f"{path_of(variant)}: {len(recording.records)} records")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
