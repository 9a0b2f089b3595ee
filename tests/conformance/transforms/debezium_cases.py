"""The cases that compare Debezium's transforms with ours: seeded, so that each run generates the same ones.

Run as a program it applies Debezium's own classes and writes ``debezium_vectors.json.gz``, which is committed, so that the
comparison runs without Java: ``python -m tests.conformance.transforms.debezium_cases``. The jars are the pinned sets
``connect``, ``debezium``, ``debezium-scripting`` and, for EnforceRecordSize, ``debezium-36``.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.conformance.java_compiler import compiled
from tests.conformance.transforms.debezium_events import (
    COLUMNS,
    DATA,
    DEBEZIUM,
    INT32,
    INT64,
    STEADY,
    STRING,
    TIME,
    TIMES,
    ZONED_TIMES,
    ZONES,
    Events,
    Json,
    case,
    schema,
)
from tests.conformance.transforms.debezium_expressions import CEL, GROOVY, ROUTES
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import find_java
from worker.fetch.resolver import ArtifactResolver

VECTORS = Path(__file__).with_name("debezium_vectors.json.gz")
DRIVER = Path(__file__).with_name("ApplyTransforms.java")


def changed_cases(events: Events) -> list[Json]:
    names: tuple[Json, ...] = (
        {"header.changed.name": "Changed"},
        {"header.unchanged.name": "Unchanged"},
        {"header.changed.name": " "},
        {},
        {"header.changed.name": "Changed", "header.unchanged.name": "Unchanged"},
    )
    return [
        case(DEBEZIUM + "ExtractChangedRecordState", events.random.choice(names), events.records()) for _ in range(12)
    ]


def header_cases(events: Events) -> list[Json]:
    headers = [
        {"key": "one", "value": {"schema": STRING, "payload": "1"}},
        {"key": "two", "value": {"schema": {**INT32, "optional": True}, "payload": None}},
        {"key": "other", "value": {"schema": STRING, "payload": "stays"}},
        {"key": "list", "value": {"schema": schema("array", items=STRING), "payload": ["a"]}},
    ]
    options = [
        {"headers": "one", "fields": "added"},
        {"headers": "one,two", "fields": "added,source.added"},
        {"headers": "list", "fields": "after.names"},
        {"headers": "one", "fields": "transaction.added"},
        {"headers": "one", "fields": "op"},
        {"headers": "one", "fields": "nowhere.added"},
        {"headers": "one", "fields": "op.added"},
        {"headers": "one,two", "fields": "added"},
        {"headers": "one", "fields": ""},
        {"headers": "one,other", "fields": "a,b"},
        {"headers": "absent", "fields": "added"},
        {"headers": "o ne", "fields": "x"},
        {"headers": "one"},
        {"headers": "one", "fields": "after.x"},
        {"headers": "one,list,two", "fields": "b,source.a,c"},
    ]
    cases = []
    for number, header_options in enumerate(options):
        # Debezium keeps a schema per value schema, whatever the headers are: they are the same in each record of a case.
        whole = "other" in header_options["headers"]
        records = [
            events.record(value, topic="t", headers=headers if whole or events.chance(0.8) else headers[2:3])
            for value in (record["value"] for record in events.records(6))
        ]
        cases.append(
            case(DEBEZIUM + "HeaderToValue", {**header_options, "operation": "move" if number % 2 else "copy"}, records)
        )
    return [
        *cases,
        case(DEBEZIUM + "HeaderToValue", {"headers": "one", "fields": "x", "operation": "steal"}, []),
        case(DEBEZIUM + "HeaderToValue", {"headers": "one", "fields": "x"}, []),
    ]


def router_cases(events: Events) -> list[Json]:
    routes = [
        {"topic.regex": r"srv\.(.*)\.(.*)", "topic.replacement": "all.$2"},
        {"topic.regex": "(?<server>[a-z]+)\\.[a-z0-9]+\\.users", "topic.replacement": "${server}-users!"},
        {"topic.regex": "x|plain", "topic.replacement": ""},
        {"topic.regex": "nothing", "topic.replacement": "y"},
        {"topic.regex": ".*", "topic.replacement": "1all"},
        {"topic.regex": "(", "topic.replacement": "x"},
    ]
    more: list[Json] = [
        {},
        {"key.enforce.uniqueness": "false"},
        {"key.field.regex": r"srv\.(.*)\.(.*)", "key.field.replacement": "$1"},
        {"key.field.name": "from"},
        {"key.field.name": "id"},
        {"key.field.regex": "a.*"},
        {"schema.name.adjustment.mode": "avro"},
        {"schema.name.adjustment.mode": "avro_unicode"},
        {"schema.name.adjustment.mode": "none", "logical.table.cache.size": "1"},
    ]
    cases = []
    for number in range(27):
        # One topic in each case: Debezium names a schema after the first topic that it met with it.
        topic = events.random.choice(("srv.db.users", "srv.shard1.users", "plain", "x"))
        cases.append(
            case(
                DEBEZIUM + "ByLogicalTableRouter",
                {**routes[number % 6 if number < 18 else 0], **more[number % 9]},
                events.records(5, topic=topic),
            )
        )
    return cases


def partition_cases(events: Events) -> list[Json]:
    fields = (
        "change.id",
        "change.name",
        "after.name,source.table",
        "change.c0",
        "change.c1,change.c2",
        "change.c3",
        "change.c4,op",
        "change.c5",
        "nowhere",
        "op.x",
        "source.snapshot",
        "before.id",
        "transaction.total_order",
        "a,,b",
        " change.id , source.ts_ms ",
    )
    cases = []
    for number in range(30):
        options: Json = {
            "partition.payload.fields": fields[number % len(fields)],
            "partition.topic.num": events.random.choice(("1", "7", "100", "0", "1000003")),
        }
        if number % 3:
            options["partition.hash.function"] = "murmur" if number % 3 == 1 else "java"
        cases.append(case(DEBEZIUM + "partitions.PartitionRouting", options, events.records(8)))
    return cases


def timezone_cases(events: Events) -> list[Json]:
    cases = [case(DEBEZIUM + "TimezoneConverter", {"converted.timezone": zone}, events.records(6)) for zone in ZONES]
    lists = (
        "source:users",
        "source:orders:c0",
        "topic:srv.db.users",
        "topic:srv.db.users:c1,srv.db.orders:c2",
        "users:c0",
        "srv.db.users:c1",
        "source:users:before.c0",
        "source:users:after.c1",
        "source:users:source.ts_ms",
        "nonsense",
        "source:users:source.ts_us,source:users:source.ts_ns",
        "topic:x-y",
        "TOPIC:plain",
        "source:users,orders",
        "source:users:source.ts_ms,users:c1",
        "source:",
        "a:b:c",
        "source:users:c0:c1",
    )
    for entry in lists:
        for option in ("include.list", "exclude.list"):
            options = {"converted.timezone": events.random.choice(ZONES[:4]), option: entry}
            cases.append(
                case(
                    DEBEZIUM + "TimezoneConverter",
                    options,
                    events.records(4, topic=events.random.choice(("srv.db.users", "srv.db.orders"))),
                )
            )
    both = {"converted.timezone": "+01:00", "include.list": "source:a", "exclude.list": "source:b"}
    steady = Events(99, (ZONED_TIMES,))
    return [
        *cases,
        case(DEBEZIUM + "TimezoneConverter", both, events.records(1)),
        *(case(DEBEZIUM + "TimezoneConverter", {"converted.timezone": zone}, steady.records(5)) for zone in STEADY),
    ]


def small_cases(events: Events) -> list[Json]:
    excluded = ("DROP", "DROP, TRUNCATE", "CREATE,ALTER,DATABASE", "drop", "NOTHING", "")
    cases = []
    for changes in excluded:
        records = [events.record(events.other() if events.chance(0.2) else events.schema_change()) for _ in range(10)]
        cases.append(case(DEBEZIUM + "SchemaChangeEventFilter", {"schema.change.event.exclude.list": changes}, records))
    cases += [case("io.debezium.connector.mysql.transforms.ReadToInsertEvent", {}, events.records()) for _ in range(4)]
    return cases


def size_cases() -> list[Json]:
    long = (*("x" * size for size in (10, 1000, 30_000, 60_000)), "é" * 40_000)
    sizes = Events(
        7,
        (
            (STRING, long),
            (INT32, (1,)),
            ({**STRING, "optional": True}, (None, "x" * 26_000)),
            (schema("array", items=STRING), ([], ["x" * 5000] * 3)),
            (schema("map", keys=STRING, values=INT32), ({"a": 1},)),
        ),
    )
    cases = []
    for options in (
        {"max.bytes": "1000"},
        {"max.bytes": "50000"},
        {"max.bytes": "60000", "min.field.size": "0"},
        {"max.bytes": "40000", "compression.ratio": "0.5"},
        {"max.bytes": "20000", "compression.ratio": "1.7"},
        {"max.bytes": "0"},
        {"max.bytes": "10", "compression.ratio": "0"},
        {"max.bytes": "5", "min.field.size": "-1"},
        {},
        {"max.bytes": "100000000"},
    ):
        row, columns = sizes.row("srv.db.users.Value", 4)
        records = [
            sizes.record(sizes.event(row, columns, "users", "cud"), topic="srv.db.ü", key=False) for _ in range(3)
        ]
        cases.append(case(DEBEZIUM + "EnforceRecordSize", options, [*records, sizes.record(None, key=False)]))
    return cases


def unwrapped_cases(events: Events) -> list[Json]:
    """Cases of ExtractNewRecordState after the other transforms: a chain as it is used."""
    cases = []
    for mode in ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"):
        config = {
            "transforms": "c,h,u",
            "transforms.c.type": DEBEZIUM + "ExtractChangedRecordState",
            "transforms.c.header.changed.name": "Changed",
            "transforms.h.type": DEBEZIUM + "HeaderToValue",
            "transforms.h.headers": "Changed",
            "transforms.h.fields": "source.changed",
            "transforms.h.operation": "copy",
            "transforms.u.type": DEBEZIUM + "ExtractNewRecordState",
            "transforms.u.add.fields": "op,source.changed",
            "transforms.u.delete.tombstone.handling.mode": mode,
            "transforms.u.add.headers": "op,source.table",
        }
        cases.append(
            {
                "config": config,
                "records": [
                    record
                    for record in events.records(8)
                    if record["value"] is None
                    or str((record["value"]["schema"] or {}).get("name")).endswith(".Envelope")
                ],
            }
        )
    return cases


PAYLOADS = (
    None,
    "",
    "  ",
    "plain text",
    '{"a": 1, "b c": null, "9x": "y", "n": {"d.e": true, "f": [1, 2]}}',
    "{bad",
    '{"a": 1.5, "a-b": 1}',
    '{"list": [{"x": 1}, {"x": 2}], "big": 3000000000}',
    '{"mixed": [1, "a"]}',
    "{}",
)
OUTBOX: tuple[tuple[Json, tuple[Any, ...]], ...] = (
    ({**STRING, "field": "id"}, ("e1", "e2")),
    ({**STRING, "field": "aggregatetype"}, ("user", "order.x")),
    ({**STRING, "optional": True, "field": "aggregateid"}, ("a1", None)),
    ({**STRING, "field": "type"}, ("Created",)),
    ({**STRING, "optional": True, "field": "payload"}, PAYLOADS),
    ({**INT32, "field": "part"}, (0, 4)),
    ({**INT32, "optional": True, "field": "version"}, (1, 2)),
    (
        {"type": "int64", "optional": True, "name": TIME + "MicroTimestamp", "version": 1, "field": "at"},
        (1_700_000_000_123_456, -5),
    ),
    ({**INT64, "field": "plain_at"}, (5,)),
)


def outbox_cases(events: Events) -> list[Json]:
    choices: dict[str, tuple[str, ...]] = {
        "table.field.event.id": ("id", "type", "nowhere"),
        "table.field.event.key": ("aggregateid", "part", "nowhere"),
        "table.field.event.type": ("type",),
        "table.field.event.payload": ("payload", "part", "nowhere"),
        "table.field.event.timestamp": ("at", "plain_at", "nowhere"),
        "table.field.event.schema.version": ("version",),
        "table.fields.additional.placement": (
            "type:header",
            "type:header:kind,part:envelope",
            "part:partition",
            "version:envelope:v,type:envelope",
            "nowhere:header",
            "nowhere:envelope,type:header",
            "type:nowhere",
            "type",
        ),
        "table.fields.additional.error.on.missing": ("true", "false"),
        "table.op.invalid.behavior": ("warn", "error", "fatal"),
        "table.expand.json.payload": ("true", "true", "false"),
        "table.json.payload.null.behavior": ("ignore", "optional_bytes"),
        "field.name.adjustment.mode": ("none", "avro", "avro_unicode"),
        "route.by.field": ("aggregatetype", "part", "nowhere"),
        "route.topic.regex": ("(?<routedByValue>.*)", "us(.*)", "("),
        "route.topic.replacement": ("to.$1", "all"),
        "route.tombstone.on.empty.payload": ("true", "false"),
    }
    chances = {
        "table.expand.json.payload": 0.7,
        "field.name.adjustment.mode": 0.5,
        "route.tombstone.on.empty.payload": 0.5,
        "table.fields.additional.placement": 0.5,
    }
    cases = []
    for _ in range(60):
        options = {
            name: events.random.choice(values if events.chance(0.15) else values[:2])
            for name, values in choices.items()
            if events.chance(chances.get(name, 0.15))
        }
        if {"route.topic.replacement", "route.topic.regex"} & options.keys():
            # A group that there is not is refused at validation here.
            options |= {
                "route.topic.regex": options.get("route.topic.regex", "us(.*)"),
                "route.topic.replacement": "to.$1",
            }
        row: Json = {
            "type": "struct",
            "optional": True,
            "name": "srv.db.outbox.Value",
            "fields": [kind for kind, _ in OUTBOX],
        }
        # Debezium keeps the schema of an envelope that it met first, for a payload's schema or for a version.
        count = 1 if "envelope" in options.get("table.fields.additional.placement", "") else 6
        cases.append(
            case(
                DEBEZIUM + "outbox.EventRouter",
                options,
                [
                    events.record(
                        events.event(row, list(OUTBOX), "outbox", "ccccudr" if count > 1 else "c")
                        if events.chance(0.9)
                        else events.other()
                    )
                    for _ in range(count)
                ],
            )
        )
    return cases


def corner_cases(events: Events) -> list[Json]:
    """Corner cases, which the other cases contain by chance at best."""
    # Nulls on the way to fields that are there, and to some that are not.
    columns = [
        ({**INT32, "field": "id"}, (1, -129, 8388608, 2147483647)),
        ({**STRING, "field": "name"}, ("ü" * 8, "a" * 33)),
        (
            {"type": "struct", "optional": True, "name": "inner", "field": "in", "fields": [{**INT32, "field": "x"}]},
            ({"x": 5}, None),
        ),
    ]
    row: Json = {
        "type": "struct",
        "optional": True,
        "name": "srv.db.users.Value",
        "fields": [kind for kind, _ in columns],
    }
    fields = (
        "after.gone",
        "before.gone",
        "before.id.x",
        "after.in.gone",
        "change.in.x",
        "after.in.x.y",
        "change.gone,change.id",
        "change.id,change.name,change.in.x",
    )
    cases = [
        case(
            DEBEZIUM + "partitions.PartitionRouting",
            {
                "partition.payload.fields": field_list,
                "partition.topic.num": "1000003",
                "partition.hash.function": function,
            },
            [events.record(events.event(row, columns, "users", "cud"), key=False) for _ in range(6)],
        )
        for field_list in fields
        for function in ("murmur", "java")
    ]
    cases += [
        case(
            DEBEZIUM + "ExtractNewRecordState",
            options,
            [events.record(events.event(row, columns[:2], "users", "cu"), key=False) for _ in range(2)],
        )
        for options in ({"add.fields": "op:,source.table:"}, {"add.headers": "op::,source.ts_ms:at"})
    ]
    outbox: Json = {
        "type": "struct",
        "optional": True,
        "name": "srv.db.outbox.Value",
        "fields": [kind for kind, _ in OUTBOX],
    }
    options: tuple[Json, ...] = (
        {"table.fields.additional.placement": "type:header:"},
        {"table.fields.additional.placement": "type:envelope:payload"},
        {"table.expand.json.payload": "true"},
    )
    for router_options in options:
        for text in ('{"": 1}', '{"a": {"": null}, "b": 0.1}', '{"a": [[1, null], []], "b": [true]}'):
            event = events.event(outbox, list(OUTBOX), "outbox", "c")
            event["payload"]["after"]["payload"] = text
            cases.append(case(DEBEZIUM + "outbox.EventRouter", router_options, [events.record(event)]))
    zoned = Events(
        5,
        (
            (
                schema("string", name=TIME + "ZonedTimestamp", version=1),
                (
                    "1990-11-04T18:26:18+01",
                    "2024-07-01T12:00-11",
                    "2024-07-01T12:00:00+0100",
                    "2024-07-01T12:00:00+1",
                    "2024-07-01T12:00:00+01:",
                    "2024-07-01T12:00:00.+01:00:09",
                    "2024-07-01t12:00z",
                    "2024-07-01T24:00Z",
                ),
            ),
        ),
    )
    return [
        *cases,
        *(
            case(DEBEZIUM + "TimezoneConverter", {"converted.timezone": zone}, zoned.records(6))
            for zone in ("Europe/Paris", "-03:30")
        ),
    ]


def expression_cases() -> list[Json]:
    """Groovy in Debezium, and the same expression here: as Groovy, and where it is given as CEL."""
    cases = []
    for number, (expression, *_) in enumerate((*GROOVY, *ROUTES)):
        events = Events(
            1000 + number,
            (
                (INT32, (1, 65, 2)),
                (INT64, (2, 49)),
                (STRING, ("a", "b", "1", "10", "é")),
                (schema("boolean"), (True, False)),
                (schema("double"), (2.0, 1.5)),
                (schema("bytes", name=DATA + "Decimal", version=1, parameters={"scale": "2"}), ("AMg=", "AJY=")),
                (schema("array", items=STRING), (["a"],)),
            ),
        )
        row, columns = events.row("srv.db.users.Value", 7)
        headers = [{"key": "h", "value": {"schema": STRING, "payload": "x"}}]
        records = [
            events.record(
                events.other() if events.chance(0.2) else events.event(row, columns, "users"),
                headers=headers if events.chance(0.7) else [],
            )
            for _ in range(8)
        ]
        route = number >= len(GROOVY)
        options = {"language": "jsr223.groovy", "topic.expression" if route else "condition": expression}
        if number % 3 == 0:
            options["null.handling.mode"] = ("keep", "drop", "evaluate")[number // 3 % 3]
        if number % 5 == 0:
            options["topic.regex"] = r"srv\..*"
        cases.append(case(DEBEZIUM + ("ContentBasedRouter" if route else "Filter"), options, records))
    return cases


def cases() -> Json:
    """The cases that are compared with Debezium 3.5, and those with 3.6."""
    events, times = Events(1), Events(2, (*TIMES, *COLUMNS[:3]))
    return {
        "3.5": [
            *changed_cases(events),
            *header_cases(events),
            *router_cases(events),
            *partition_cases(events),
            *timezone_cases(times),
            *small_cases(events),
            *outbox_cases(Events(3)),
            *unwrapped_cases(events),
            *expression_cases(),
            *corner_cases(Events(4)),
        ],
        "3.6": size_cases(),
    }


def recorded() -> tuple[Json, Json]:
    """The committed cases and what Java made of them."""
    document = json.loads(gzip.decompress(VECTORS.read_bytes()))
    return document["cases"], document["expected"]


def ask_java(cases_by_version: Json) -> Json:
    """Apply Debezium's classes to the cases. Needs Java, and the network where the jars are not in the cache."""
    java, manifest = find_java(17), load_manifest()
    sets = {"3.5": ("debezium", "debezium-scripting", "connect"), "3.6": ("debezium-36", "debezium", "connect")}
    expected = {}
    for version, names in sets.items():
        jars = [jar for name in names for jar in ArtifactResolver().fetch(manifest.members(name), name)]
        asked = {"transforms": cases_by_version[version], "expressions": [], "properties": []}
        classes = compiled(java, DRIVER, ArtifactResolver().fetch(manifest.members("connect"), "connect"))
        # The log would stand in the answer.
        classpath = ":".join(map(str, [classes, *jars]))
        command = [str(java.executable), "-Xmx512m", "-Dlog4j2.level=OFF", "-cp", classpath, DRIVER.stem]
        done = subprocess.run(command, input=json.dumps(asked).encode(), capture_output=True, check=False, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"{DRIVER.name} failed: {done.stderr.decode()[-2000:]}")
        expected[version] = json.loads(done.stdout)["transforms"]
    return expected


def main() -> None:
    cases_by_version = cases()
    document = json.dumps({"cases": cases_by_version, "expected": ask_java(cases_by_version)}, separators=(",", ":"))
    VECTORS.write_bytes(gzip.compress(document.encode(), mtime=0))
    configurations = len(cases_by_version["3.5"]) + len(cases_by_version["3.6"])
    print(
        f"{VECTORS}: {configurations} configurations, {VECTORS.stat().st_size} bytes; "
        f"{len(CEL)} expressions in CEL are compared with them too"
    )


if __name__ == "__main__":
    main()
