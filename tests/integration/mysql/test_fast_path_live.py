"""The world of the recordings, streamed by a worker with ``fast.path`` off, auto and verify: the topics hold the same bytes."""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

import pytest

from compose.local.databases.server_pair import execute_sql
from compose.local.worker import MillraceWorker
from tests.integration.mysql import debezium_world as world
from tests.support.eventually import eventually, eventually_async
from tests.support.transform_chains import KAFKA, UNWRAP, chain
from worker.fetch.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from compose.local.mariadb import MariaDb
    from compose.local.registry import SchemaRegistry

AVRO: Final = "io.confluent.connect.avro.AvroConverter"
MODES: Final = ("off", "auto", "verify")
#: More options than those of the recordings: what the fast path is for.
VARIANTS: Final[Mapping[str, Mapping[str, str]]] = {
    **world.VARIANTS,
    "plain": {
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "value.converter.decimal.format": "NUMERIC",
    },
    "unwrapped": {
        "value.converter.schemas.enable": "false",
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.add.fields": "op,source.ts_ms,row",
    },
    "chained": {
        "value.converter.schemas.enable": "false",
        "skip.messages.without.change": "true",
        **chain(
            {"type": UNWRAP, "add.headers": "op,table,source.pos", "add.fields": "row,source.file"},
            {"type": f"{KAFKA}.ReplaceField$Value", "exclude": "b", "renames": "d:number"},
            {"type": f"{KAFKA}.InsertField$Value", "static.field": "site", "static.value": "ä", "topic.field": "topic"},
            {"type": f"{KAFKA}.InsertHeader", "header": "site", "value.literal": "7"},
        ),
    },
    "avro": {"key.converter": AVRO, "value.converter": AVRO},
    "buffered": {"binlog.buffer.size": "50"},
    "small": {"max.batch.size": "3"},
}
#: Those with rows that need no records.
FAST: Final = frozenset({"precise", "iso", "nano", "plain", "small", "unwrapped", "chained", "avro"})
#: Larger than a producer's largest request.
BIG: Final = (
    "CREATE TABLE world.big (id INT NOT NULL PRIMARY KEY, d DECIMAL(12,2), b VARBINARY(8), t MEDIUMTEXT)",
    "INSERT INTO world.big VALUES (1, 1.25, x'ff00', 'ok'), (2, -3.5, x'01', REPEAT('x', 2000000)), (3, 7, NULL, 'ok')",
)
_CLOCK: Final = re.compile(rb'"op":"(\w)","ts_ms":\d+,"ts_us":\d+,"ts_ns":\d+')
#: Bytes of three optional numbers: milliseconds, microseconds and nanoseconds since 1970.
_AVRO_CLOCK: Final = 7 + 9 + 10
#: The key of the last change, in JSON and in Avro.
_LAST: Final = re.compile(rb'"id":999|\xce\x0f')
_PLAIN_CLOCK: Final = re.compile(rb'"ts_ms":\d+,"ts_us":\d+,"ts_ns":\d+')


@pytest.fixture
def database(tmp_path: Path) -> Iterator[MariaDb]:
    server = world.server(tmp_path / "mariadb")
    try:
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


def normalized(data: bytes | None, prefix: str) -> bytes | None:
    """A key or value without what is different between connectors: the prefix and the time of processing."""
    if data is None:
        return None
    data = data.replace(prefix.encode(), b"prefix")
    if data.startswith(b"\0"):  # Avro: the schema's id is in front, the time of processing at the end
        return data[5:-_AVRO_CLOCK]
    return _CLOCK.sub(rb'"op":"\1"', data)


def shown(record: Any, prefix: str) -> tuple[Any, ...]:
    headers = [
        (name, value and value.replace(prefix.encode(), b"prefix"))
        for name, value in record.headers
        if name not in {"__debezium.context.runId", "__connect.errors.exception.stacktrace"}
    ]
    key = record.key
    if key is not None:
        key = key[5:] if key.startswith(b"\0") else key.replace(prefix.encode(), b"prefix")
    return key, normalized(record.value, prefix), headers


async def test_every_mode_delivers_the_same_bytes(
    database: MariaDb, bootstrap: str, registry: SchemaRegistry, tmp_path: Path
) -> None:
    unique = secrets.token_hex(3)
    names = {(variant, mode): f"fp{unique}{variant}{mode[0]}" for variant in VARIANTS for mode in MODES}
    with MillraceWorker(
        tmp_path / "worker",
        bootstrap,
        group=f"fast-{unique}",
        port=None,
        processes=1,
        properties={"offset.flush.interval.ms": "500"},
    ) as worker:
        for number, ((variant, mode), name) in enumerate(names.items()):
            config = {
                **world.config("default", database, name, 40 + number),
                "provide.transaction.metadata": "false",
                **VARIANTS[variant],
                "heartbeat.interval.ms": "0",
                "snapshot.mode": "no_data",
                "fast.path": mode,
                "key.converter.schema.registry.url": registry.url,
                "value.converter.schema.registry.url": registry.url,
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": f"{name}.letters",
                "errors.deadletterqueue.topic.replication.factor": "1",
            }
            worker.create(name, config)
        for name in names.values():
            worker.wait_running(name, 1)
            eventually(
                lambda name=name: worker.request("GET", f"/connectors/{name}/offsets")[1]["offsets"],  # type: ignore[misc]
                "each connector has chosen its position",
            )
        world.write(database, "before")
        execute_sql(database, *BIG)
        world.write(database, "changes")

        async def check() -> None:
            for name in names.values():
                _, status = worker.request("GET", f"/connectors/{name}/status")
                assert status["tasks"][0]["state"] == "RUNNING", status["tasks"][0].get("trace")

        async def arrived() -> bool:
            await check()
            last = await world.read_topics(bootstrap, [f"{name}.world.empty_at_first" for name in names.values()])
            ended = [records for records in last.values() if any(_LAST.search(record.value) for record in records)]
            return len(ended) == len(names)

        await eventually_async(arrived, "every connector has the last change", 120, every=0.5)
        topics = await world.read_topics(bootstrap, list(names.values()))

        def of(name: str) -> dict[str, list[Any]]:
            return {
                topic.removeprefix(name): [shown(record, name) for record in records]
                for topic, records in topics.items()
                if topic.startswith(f"{name}.")
            }

        for variant in VARIANTS:
            general = of(names[variant, "off"])
            assert sum(map(len, general.values())) > 50
            # The row that is too large; and with Avro those of tables whose names it does not allow.
            assert len(general.get(".letters", ())) == 1 or variant in {"avro", "nano"}, variant
            for mode in ("auto", "verify"):
                other = of(names[variant, mode])
                assert other.keys() == general.keys()
                for topic, records in general.items():
                    expected, delivered = records, other[topic]
                    if topic == ".letters":  # those of several tables come in any order
                        expected, delivered = (
                            sorted([_without_clock(record) for record in letters], key=repr)
                            for letters in (expected, delivered)
                        )
                    assert delivered == expected, (variant, mode, topic)
        log = (tmp_path / "worker" / "worker.log").read_text(encoding="utf-8", errors="replace").splitlines()
        straight = "\n".join(line for line in log if "written straight to bytes" in line)
        for (variant, mode), name in names.items():
            assert (name in straight) == (mode != "off" and variant in FAST), (variant, mode)
        numbers = {
            name: [
                line.rpartition(" ")[2]
                for line in _metrics(worker).splitlines()
                if f'connector="{name}"' in line and "source_record_poll_total" in line
            ]
            for name in names.values()
        }
        for variant in VARIANTS:
            assert numbers[names[variant, "off"]] == numbers[names[variant, "auto"]], variant


async def test_snapshots_are_the_same_on_both_paths(
    database: MariaDb, bootstrap: str, registry: SchemaRegistry, tmp_path: Path
) -> None:
    unique = secrets.token_hex(3)
    # Avro does not allow the names of some tables.
    names = {variant: f"fs{unique}{variant}" for variant in FAST - {"avro"}}
    world.write(database, "before")
    rows = world.rows_before(database)
    with MillraceWorker(tmp_path / "worker", bootstrap, group=f"fast-{unique}", port=None, processes=1) as worker:
        for number, (variant, name) in enumerate(names.items()):
            config = {
                **world.config("default", database, name, 80 + number),
                "provide.transaction.metadata": "false",
                **VARIANTS[variant],
                "heartbeat.interval.ms": "0",
                "fast.path": "verify",
                "key.converter.schema.registry.url": registry.url,
                "value.converter.schema.registry.url": registry.url,
            }
            worker.create(name, {key: value for key, value in config.items() if key != "column.exclude.list"})

        async def arrived() -> bool:
            for name in names.values():
                _, status = worker.request("GET", f"/connectors/{name}/status")
                tasks = status.get("tasks") or [{"state": "RUNNING"}]
                assert tasks[0]["state"] != "FAILED", tasks[0].get("trace")
            topics = await world.read_topics(bootstrap, [f"{name}.world" for name in names.values()])
            return all(
                sum(len(records) for topic, records in topics.items() if topic.startswith(f"{name}.world.")) >= rows
                for name in names.values()
            )

        await eventually_async(arrived, f"every connector has read {rows} rows", 120, every=0.5)


def _metrics(worker: MillraceWorker) -> str:
    import urllib.request

    with urllib.request.urlopen(f"{worker.url}/metrics", timeout=10) as answer:  # noqa: S310
        text: str = answer.read().decode()
    return text


def _without_clock(record: tuple[Any, ...]) -> tuple[Any, ...]:
    """A dead letter, whose value is plain JSON of the record."""
    key, value, headers = record
    return key, _PLAIN_CLOCK.sub(b"", value), [header for header in headers if b"Traceback" not in (header[1] or b"")]


def test_the_option_is_checked(bootstrap: str, tmp_path: Path) -> None:
    with MillraceWorker(tmp_path, bootstrap, group=f"fast-{secrets.token_hex(3)}", port=None, processes=1) as worker:
        status, answer = worker.request(
            "PUT", "/connector-plugins/datagen/config/validate", {"connector.class": "datagen", "fast.path": "maybe"}
        )
        assert status == 200
        (option,) = [config["value"] for config in answer["configs"] if config["value"]["name"] == "fast.path"]
        assert "maybe" in json.dumps(option["errors"])
