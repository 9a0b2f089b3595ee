"""Makes the cases of the differential test: seeded, so that the same ones come out each time.

Run as a program it applies Java's own transforms to them and writes ``vectors.json.gz``, which is committed, so that the
comparison runs without Java: ``python -m tests.conformance.transforms.generate_vectors``. Java and the jars (the sets
``connect`` and ``debezium`` of ``artifacts.toml``) are brought if they are not there.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
from pathlib import Path
from typing import Any

from tests.conformance.java_compiler import compiled
from tests.conformance.transforms.java_syntax import EXPRESSIONS, INPUTS, build_properties_files
from tests.conformance.transforms.vector_records import DATA, KAFKA, LATER, NAMES, Json, RecordGenerator, schema
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import find_java
from worker.fetch.resolver import ArtifactResolver

HERE = Path(__file__).parent
VECTORS = HERE / "vectors.json.gz"
DRIVER = HERE / "ApplyTransforms.java"
DEBEZIUM = "io.debezium.transforms.ExtractNewRecordState"


class CaseGenerator(RecordGenerator):
    """One seeded source of configurations for each transform, with records for them."""

    def insert_field(self) -> Json:
        options: Json = {}
        for name in ("topic", "partition", "timestamp", "static"):
            if self.random.random() < 0.5:
                options[f"{name}.field"] = self.random.choice(NAMES + (f"_{name}",) * 6) + self.random.choice(
                    ("", "?", "!")
                )
        if "static.field" in options and self.random.random() < 0.95:
            options["static.value"] = "fixed"
        if self.random.random() < 0.05:
            options["offset.field"] = "_offset"
        return options

    def replace_field(self) -> Json:
        exclude, include = set(self.some_names()), set(self.some_names()) if self.random.random() < 0.5 else set[str]()
        kept = [name for name in NAMES if name not in exclude and (not include or name in include)]
        old = self.random.sample(kept, min(len(kept), self.random.randint(0, 2)))
        renames = [f"{name}:{self.random.choice(('new', 'other', 'third'))}" for name in old]
        # Two old names for one new: Connect keeps one of them by the order of a hash table.
        if len({rename.split(":")[1] for rename in renames}) < len(renames):
            renames = renames[:1]
        options = {
            "exclude": ",".join(sorted(exclude)),
            "include": ",".join(sorted(include)),
            "renames": ",".join(renames),
        }
        return {name: value for name, value in options.items() if value}

    def mask_field(self) -> Json:
        options: Json = {"fields": ",".join(self.some_names(1))}
        if self.random.random() < 0.5:
            options["replacement"] = self.random.choice(
                ("123", "-7", "abc", "1.5", "300", "99999999999", "1e3", " 5", "+4", "***")
            )
        return options

    def kafka_cases(self, count: int) -> list[Json]:
        cases: list[Json] = []
        for number in range(count):
            side = self.random.choice(("Key", "Value"))
            name, options = (
                ("InsertField", self.insert_field),
                ("ReplaceField", self.replace_field),
                ("MaskField", self.mask_field),
            )[number % 3]
            chosen = options()
            if self.random.random() < 0.3:
                chosen["replace.null.with.default"] = self.random.choice(("true", "false"))
            cases.append(self.case(f"{KAFKA}{name}${side}", chosen, self.records(5)))
        cases += [self.case(f"{KAFKA}Filter", {}, self.records(6)) for _ in range(4)]
        for regex, replacement in (
            (r"(.*)\.(.*)", "$2-$1"),
            ("(?<db>[a-z]+)\\.(?<t>.*)", "${t}.${db}"),
            ("a|a.*", "first"),
            (".*", "all"),
            ("x", r"\$1"),
            ("inventory.*", "to$0"),
            (r"([a-z]+)\Q.\Eb(.*)", "$1$22"),
        ):
            cases.append(
                self.case(f"{KAFKA}RegexRouter", {"regex": regex, "replacement": replacement}, self.records(6))
            )
        return cases

    def cast(self) -> Json:
        types = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
        if self.random.random() < 0.15:
            return {"spec": self.random.choice((*types, "bytes", "int7"))}
        return {"spec": ",".join(f"{name}:{self.random.choice(types)}" for name in self.random.sample(NAMES, 4))}

    def timestamp_converter(self) -> Json:
        options: Json = {"target.type": self.random.choice(("string", "unix", "Date", "Time", "Timestamp"))}
        if self.random.random() < 0.8:
            options["field"] = self.random.choice(NAMES)
        if self.random.random() < 0.8:
            options["format"] = self.random.choice(
                ("yyyy-MM-dd", "dd.MM.yyyy", "EEE, d MMM yyyy hh:mm:ss.SSS a z", "yyMMddHHmm")
            )
        if self.random.random() < 0.4:
            options["unix.precision"] = self.random.choice(("seconds", "milliseconds", "microseconds", "nanoseconds"))
        return options

    def header_from(self) -> Json:
        fields = self.some_names(1)
        headers = [f"h{number}" for number in range(len(fields) + (self.random.random() < 0.05))]
        return {
            "fields": ",".join(fields),
            "headers": ",".join(headers),
            "operation": self.random.choice(("move", "copy")),
        }

    def extract_field(self) -> Json:
        if self.random.random() < 0.5:
            return {"field": self.random.choice(NAMES)}
        path = self.random.choice(NAMES) + self.random.choice((".x", ".id", "", ".", ".`x`"))
        return {"field": path, "field.syntax.version": "V2"}

    def set_schema_metadata(self) -> Json:
        return self.random.choice(
            ({"schema.name": "renamed"}, {"schema.version": "7"}, {}, {"schema.name": "renamed", "schema.version": "1"})
        )

    def other_kafka_cases(self, count: int) -> list[Json]:
        """Cases for the transforms that ``kafka_cases`` leaves out."""
        literals = ("5", "300", "2.5", "true", "[1, 2]", "text", "2024-02-29")
        # Kind, whether it has two sides, whether it fills in nulls, its options.
        kinds: tuple[tuple[str, bool, bool, Any], ...] = (
            ("Cast", True, True, self.cast),
            ("TimestampConverter", True, True, self.timestamp_converter),
            ("HeaderFrom", True, True, self.header_from),
            ("ExtractField", True, True, self.extract_field),
            ("SetSchemaMetadata", True, True, self.set_schema_metadata),
            ("Flatten", True, False, lambda: self.random.choice(({}, {"delimiter": "_"}, {"delimiter": ""}))),
            ("HoistField", True, False, lambda: {"field": self.random.choice(NAMES)}),
            ("ValueToKey", False, True, lambda: {"fields": ",".join(self.some_names(1))}),
            ("DropHeaders", False, False, lambda: {"headers": self.random.choice(("trace", "x,trace", "x"))}),
            ("InsertHeader", False, False, lambda: {"header": "new", "value.literal": self.random.choice(literals)}),
            (
                "TimestampRouter",
                False,
                False,
                lambda: self.random.choice(
                    ({}, {"topic.format": "${timestamp}.${topic}", "timestamp.format": "yyyy-MM-dd-HH"})
                ),
            ),
        )
        cases = []
        for number in range(count):
            name, sided, fills, make = kinds[number % len(kinds)]
            options = dict(make())
            if fills and self.random.random() < 0.4:
                options["replace.null.with.default"] = self.random.choice(("true", "false"))
            side = "$" + self.random.choice(("Key", "Value")) if sided else ""
            records = self.records(6)
            if ":" not in options.get("spec", ":"):  # a whole value that is cast loses its logical type here
                records = [
                    record
                    for record in records
                    if not any(
                        DATA in ((record[part] or {}).get("schema") or {}).get("name", "") for part in ("key", "value")
                    )
                ]
            cases.append(self.case(f"{KAFKA}{name}{side}", options, records))
        return cases

    def corner_cases(self) -> list[Json]:
        """Corner cases, which the others contain by chance at best. All versions of Java print their floats alike."""
        numbers = (
            0.1,
            300.9,
            -0.3,
            1e21,
            1e-7,
            123456.7,
            5,
            2**24 + 1,
            True,
            "0.1",
            "1.5e3",
            "1e400",
            "NaN",
            " 7f",
            "x",
        )
        plain = [self.record(None, {"schema": None, "payload": {"a": number, "b": number}}) for number in numbers]
        chains = (
            {
                "transforms": "s,t",
                "transforms.s.type": f"{KAFKA}Cast$Value",
                "transforms.s.spec": "a:float32",
                "transforms.t.type": f"{KAFKA}Cast$Value",
                "transforms.t.spec": "a:string,b:string",
            },
            {"transforms": "s", "transforms.s.type": f"{KAFKA}Cast$Value", "transforms.s.spec": "a:float32,b:float64"},
        )
        whole = [self.record(None, {"schema": None, "payload": number}) for number in numbers]
        hoisted = [
            self.record(None, value)
            for value in (None, {"schema": None, "payload": {"a": 1}}, {"schema": schema("int32"), "payload": 5})
        ]
        return [
            *({"config": config, "records": plain} for config in chains),
            {
                "config": {
                    "transforms": "t",
                    "transforms.t.type": f"{KAFKA}Cast$Value",
                    "transforms.t.spec": "float32",
                },
                "records": whole,
            },
            *(
                {
                    "config": {
                        "transforms": "t",
                        "transforms.t.type": f"{KAFKA}HoistField$Value",
                        "transforms.t.field": name,
                    },
                    "records": hoisted,
                }
                for name in ("", " ")
            ),
        ]

    def envelope(self, row: Json) -> Json:
        optional_row = {**row, "optional": True}
        source = {
            "type": "struct",
            "optional": False,
            "name": "io.debezium.connector.mysql.Source",
            "field": "source",
            "fields": [
                {**schema("string"), "field": "connector"},
                {**schema("int64"), "field": "ts_ms"},
                {**schema("string"), "optional": True, "default": "false", "field": "snapshot"},
                {**schema("string"), "field": "table"},
            ],
        }
        transaction = {
            "type": "struct",
            "optional": True,
            "name": "event.block",
            "version": 1,
            "field": "transaction",
            "fields": [{**schema("string"), "field": "id"}, {**schema("int64"), "field": "total_order"}],
        }
        return {
            "type": "struct",
            "optional": False,
            "name": "srv.db.users.Envelope",
            "version": 2,
            "fields": [
                {**optional_row, "field": "before"},
                {**optional_row, "field": "after"},
                source,
                transaction,
                {**schema("string"), "field": "op"},
                {**schema("int64"), "optional": True, "field": "ts_ms"},
            ],
        }

    def event(self, row: Json, value: Json) -> Json:
        op = self.random.choice("crudt")
        return {
            "schema": self.envelope(row),
            "payload": {
                "before": value if op in "ud" else None,
                "after": value if op in "cru" else None,
                "source": {
                    "connector": "mysql",
                    "ts_ms": 5,
                    "snapshot": self.random.choice((None, "true")),
                    "table": "users",
                },
                "transaction": self.random.choice((None, {"id": "tx:1", "total_order": 4})),
                "op": op,
                "ts_ms": self.random.choice((None, 77)),
            },
        }

    def unwrap_records(self) -> list[Json]:
        row, value = self.struct("srv.db.users.Value")
        records = []
        for _ in range(8):
            roll = self.random.random()
            body = None if roll < 0.15 else self.data("v") if roll < 0.25 else self.event(row, value)
            key_row, key = self.struct("srv.db.users.Key")
            names = {"schema": schema("array", items=schema("string")), "payload": self.some_names()}
            headers = self.random.choice(([], [{"key": "drop", "value": names}]))
            records.append(self.record({"schema": key_row, "payload": key}, body, headers))
        return records

    def unwrap_cases(self, count: int) -> list[Json]:
        added = (
            "op",
            "ts_ms",
            "source.ts_ms",
            "table",
            "source.table:tbl",
            "transaction.id",
            "total_order",
            "id",
            "missing",
            "source.missing",
            "snapshot",
            "op:operation",
            "source.op",
        )
        cases = []
        for _ in range(count):
            options: Json = {}
            mode = self.random.choice(
                (None, "drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
            )
            if mode is not None:
                options["delete.tombstone.handling.mode"] = mode
            for name in ("add.fields", "add.headers"):
                if self.random.random() < 0.6:
                    options[name] = ",".join(self.random.sample(added, self.random.randint(1, 3)))
                    if self.random.random() < 0.3:
                        options[f"{name}.prefix"] = self.random.choice(("", "meta."))
            if self.random.random() < 0.3:
                options["route.by.field"] = self.random.choice(NAMES)
            if self.random.random() < 0.4:
                options["drop.fields.header.name"] = "drop"
                if self.random.random() < 0.5:
                    options["drop.fields.from.key"] = "true"
                if self.random.random() < 0.5:
                    options["drop.fields.keep.schema.compatible"] = "false"
            if self.random.random() < 0.3:
                options["replace.null.with.default"] = self.random.choice(("true", "false"))
            cases.append(self.case(DEBEZIUM, options, self.unwrap_records()))
        return cases


def cases() -> Json:
    """Everything that is compared."""
    kafka, debezium, others = CaseGenerator(1), CaseGenerator(2), CaseGenerator(4, LATER)
    return {
        "transforms": [
            *kafka.kafka_cases(150),
            *debezium.unwrap_cases(80),
            *others.other_kafka_cases(154),
            *others.corner_cases(),
        ],
        "expressions": [
            {"regex": regex, "replacement": replacement, "inputs": list(INPUTS)} for regex, replacement in EXPRESSIONS
        ],
        "properties": build_properties_files(random.Random(3), 400),
    }


def recorded() -> tuple[Json, Json]:
    """The committed cases and what Java made of them."""
    document = json.loads(gzip.decompress(VECTORS.read_bytes()))
    return document["cases"], document["expected"]


def run_java(cases: Json, timeout_s: float = 300) -> Json:
    """Apply Java's transforms to the cases. Blocks.

    Raises:
        StackError: there is no Java, or the jars can't be brought.
    """
    java, manifest = find_java(), load_manifest()
    members = dict.fromkeys(
        artifact for name in ("connect", "debezium", "debezium-scripting") for artifact in manifest.members(name)
    )
    jars = ArtifactResolver().fetch(members, "Kafka Connect's and Debezium's transforms")
    classes = compiled(java, DRIVER, jars)
    done = subprocess.run(
        [str(java.executable), "-Xmx512m", "-cp", ":".join(map(str, [classes, *jars])), DRIVER.stem],
        input=json.dumps(cases).encode(),
        capture_output=True,
        check=False,
        timeout=timeout_s,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{DRIVER.name} failed: {done.stderr.decode()[-2000:]}")
    answer: Json = json.loads(done.stdout)
    return answer


def main() -> None:
    generated = cases()
    results = run_java(generated)
    document = json.dumps({"cases": generated, "expected": results}, separators=(",", ":"))
    VECTORS.write_bytes(gzip.compress(document.encode(), mtime=0))
    print(
        f"{VECTORS}: {len(generated['transforms'])} configurations, "
        f"{sum(len(case['records']) for case in generated['transforms'])} records, {len(generated['properties'])} texts"
    )


if __name__ == "__main__":
    main()
