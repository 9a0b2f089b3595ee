"""Makes the cases of the differential test: seeded, so that the same ones come out each time.

Run as a program it applies Java's own transforms to them and writes ``vectors.json.gz``, which is committed, so that the
comparison runs without Java: ``python -m tests.conformance.transforms.generate_vectors``. Java and the jars (the sets
``connect`` and ``debezium`` of ``artifacts.toml``) are brought if they are not there.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conformance.java_compiler import compiled
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import find_java
from worker.fetch.resolver import ArtifactResolver

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
VECTORS = HERE / "vectors.json.gz"
DRIVER = HERE / "ApplyTransforms.java"

KAFKA = "org.apache.kafka.connect.transforms."
DEBEZIUM = "io.debezium.transforms.ExtractNewRecordState"
DATA = "org.apache.kafka.connect.data."
Json = dict[str, Any]


def schema(kind: str, **more: Any) -> Json:
    return {"type": kind, "optional": False, **more}


SCALARS: tuple[tuple[Json, tuple[Any, ...]], ...] = (
    (schema("int8"), (0, 1, -128, 127)),
    (schema("int16"), (0, -32768, 300)),
    (schema("int32"), (7, -2147483648, 2147483647)),
    (schema("int64"), (0, 9007199254740993, -5)),
    (schema("float"), (0.5, -1.25)),
    (schema("double"), (1.0, 3.25, -0.125)),
    (schema("boolean"), (True, False)),
    (schema("string"), ("", "plain", "ümlaut \u2713 \U0001f600", 'with "quotes" and \\')),
    (schema("bytes"), (base64.b64encode(b"raw\x00\xff").decode(),)),
    (
        schema("bytes", name=DATA + "Decimal", version=1, parameters={"scale": "0"}),
        (base64.b64encode(b"\x04\xd2").decode(),),
    ),
    (schema("int32", name=DATA + "Date", version=1), (0, 20000)),
    (schema("int32", name=DATA + "Time", version=1), (0, 86399999)),
    (schema("int64", name=DATA + "Timestamp", version=1), (0, 1700000000123)),
    (schema("int64", name="io.debezium.time.MicroTimestamp", version=1), (1700000000123456,)),
    (schema("array", items=schema("string")), ([], ["a", "b"])),
    (schema("map", keys=schema("string"), values=schema("int32")), ({}, {"a": 1})),
    (schema("struct", name="inner", fields=[{**schema("string"), "field": "x"}]), ({"x": "y"},)),
)
#: The same without dates before 1970-01-02, which are written differently as strings, and with fewer maps.
LATER = (
    *(
        item
        for item in SCALARS
        if item[0].get("name") not in (DATA + "Date", DATA + "Timestamp") and item[0]["type"] != "map"
    ),
    (schema("int32", name=DATA + "Date", version=1), (1, 20000)),
    (schema("int64", name=DATA + "Timestamp", version=1), (86400000, 1700000000123)),
    (schema("string"), ("2023-11-14", "14.11.2023", "12", "true", "300")),
    (
        schema(
            "struct",
            name="inner",
            fields=[
                {**schema("string"), "field": "x"},
                {**schema("int64"), "optional": True, "default": 5, "field": "id"},
            ],
        ),
        ({"x": "y", "id": None}, {"x": "", "id": 3}),
    ),
)
DEFAULTS = {"string": "fallback", "int32": 42, "int64": 43, "boolean": True, "double": 2.5}
NAMES = ("id", "name", "email", "amount", "flag", "note", "a", "b", "c")


class Generator:
    """One seeded source of schemas, values and configurations."""

    def __init__(self, seed: int, scalars: Sequence[tuple[Json, tuple[Any, ...]]] = SCALARS) -> None:
        self.random = random.Random(seed)
        self.scalars = scalars

    def field(self, name: str) -> tuple[Json, Any]:
        """A field's schema and a value for it."""
        kind, values = self.random.choice(self.scalars)
        kind = dict(kind)
        value = self.random.choice(values)
        if self.random.random() < 0.6:
            kind["optional"] = True
            if self.random.random() < 0.3:
                value = None
        if "name" not in kind and kind["type"] in DEFAULTS and self.random.random() < 0.3:
            kind["default"] = DEFAULTS[kind["type"]]
        if self.random.random() < 0.1:
            kind["doc"] = "about it"
        return {**kind, "field": name}, value

    def struct(self, name: str, *, optional: bool = False) -> tuple[Json, Json]:
        """A struct schema and a value of it."""
        names = self.random.sample(NAMES, self.random.randint(1, len(NAMES)))
        fields = [self.field(field_name) for field_name in names]
        described: Json = {"type": "struct", "fields": [kind for kind, _ in fields], "optional": optional, "name": name}
        if self.random.random() < 0.3:
            described["version"] = 3
        return described, {kind["field"]: value for kind, value in fields}

    def schemaless(self) -> Json:
        values: tuple[Any, ...] = (None, True, 5, -1, 2.5, "text", ["a", 1], {"x": 1}, "")
        return {
            name: self.random.choice(values) for name in self.random.sample(NAMES, self.random.randint(0, len(NAMES)))
        }

    def data(self, name: str) -> Json | None:
        """A key or value as JsonConverter writes it."""
        roll = self.random.random()
        if roll < 0.55:
            described, value = self.struct(name, optional=self.random.random() < 0.3)
            return {"schema": described, "payload": value}
        if roll < 0.8:
            return {"schema": None, "payload": self.schemaless()}
        if roll < 0.87:
            kind, values = self.random.choice(self.scalars)
            return {"schema": kind, "payload": self.random.choice(values)}
        if roll < 0.92:
            return {"schema": None, "payload": self.random.choice((5, "text", 2.5, True, ["a"]))}
        if roll < 0.95:
            return {"schema": {"type": "struct", "fields": [], "optional": True, "name": name}, "payload": None}
        return None

    def record(self, key: Json | None, value: Json | None, headers: list[Json] | None = None) -> Json:
        return {
            "topic": self.random.choice(("inventory.users", "inventory.orders", "plain", "a.b.c", "x")),
            "partition": self.random.choice((None, 0, 3)),
            "timestamp": self.random.choice((None, 0, 1700000000000)),
            "key": key,
            "value": value,
            "headers": headers or [],
        }

    def records(self, count: int) -> list[Json]:
        return [
            self.record(
                self.data("k"),
                self.data("v"),
                self.random.choice(([], [{"key": "trace", "value": {"schema": schema("string"), "payload": "1"}}])),
            )
            for _ in range(count)
        ]

    def some_names(self, low: int = 0) -> list[str]:
        return self.random.sample(NAMES, self.random.randint(low, 3))

    def case(self, kind: str, options: Json, records: list[Json]) -> Json:
        own_options = {f"transforms.t.{name}": value for name, value in options.items()}
        config = {"transforms": "t", "transforms.t.type": kind, **own_options}
        if self.random.random() < 0.3:
            predicate, more = self.random.choice(
                (
                    ("TopicNameMatches", {"pattern": r"inventory\..*"}),
                    ("RecordIsTombstone", {}),
                    ("HasHeaderKey", {"name": "trace"}),
                )
            )
            config |= {
                "transforms.t.predicate": "p",
                "predicates": "p",
                "predicates.p.type": f"{KAFKA}predicates.{predicate}",
                **{f"predicates.p.{name}": value for name, value in more.items()},
            }
            if self.random.random() < 0.5:
                config["transforms.t.negate"] = self.random.choice(("true", "false"))
        return {"config": config, "records": records}

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

    def properties_texts(self, count: int) -> list[str]:
        fragments = (
            "a",
            "key",
            "=",
            ":",
            " ",
            "\t",
            "\f",
            "\\",
            "\n",
            "\r\n",
            "\r",
            "#",
            "!",
            "\\u0041",
            "\\n",
            "\\=",
            "\\ ",
            "ü",
            "\\\n",
            "value",
            "\\t",
            "\\\\",
            "b.c",
        )
        mixed = [
            "".join(self.random.choice(fragments) for _ in range(self.random.randint(0, 14))) for _ in range(count)
        ]
        return [
            *mixed,
            "a=1\nb : 2\nc 3\n",
            "long = one, \\\n   two, \\\n\n   three",
            "smile=\\ud83d\\ude00",
            "bad=\\u00g1",
            "bad=\\u1",
            "=empty",
            "k",
            "# only\n! comments",
            "a=b\\",
            "a\\:b=c",
            "spaces = trailing  ",
        ]


EXPRESSIONS: tuple[tuple[str, str], ...] = (
    (r"([^.]+)\.(.*)", "$1_$2"),
    (r"(?<a>\w+)-(?<b>\d+)", "${b}${a}"),
    (r"\Qa.b\E.*", "q"),
    (r"[a-z&&[^c]]+", "i"),
    (r"[a[x-z]]+", "u"),
    (r"\p{Alpha}+", "alpha"),
    (r"\p{Lower}[\p{Digit}_]*", "posix"),
    (r"\P{Alpha}+", "no"),
    (r"(?i)ABC", "ci"),
    (r"a(?i)B|cD", "mid"),
    (r"(?i:A)b", "scoped"),
    (r"a++b", "poss"),
    (r"(?>a|ab)c", "atomic"),
    (r"a\x2eb", "hex"),
    (r"a\u002eb", "uni"),
    (r"a\056b", "oct"),
    (r"\x{61}+", "braced"),
    (r"(a)\1", "back"),
    (r"(?<n>a)\k<n>", "named back"),
    (r"a\Z", "Z"),
    (r"a\z", "z"),
    (r"^a.b$", "anchors"),
    (r"[\w.-]+", "class"),
    (r"[^\W\d]+", "neg"),
    (r"[\Q]^-\E]+", "quoted class"),
    (r"[a-c&&b-z&&[^c]]", "three"),
    (r"[]a]+", "bracket"),
    (r"\p{L}+", "letters"),
    (r"\p{IsLu}x", "Lu"),
    (r"[\p{Lu}\d]+", "mixed"),
    (r"a{2,3}?", "lazy"),
    (r"(", "x"),
    (r"a)", "x"),
    (r"[a", "x"),
    (r"\p{Nonsense}", "x"),
    (r"(?<1a>x)", "x"),
    (r"\q", "x"),
    (r"*a", "x"),
    (r"a\h*b", "blank"),
    (r"\D+", "nondigit"),
    (r"(?s).*", "dotall"),
    (r"(?=a)a.*", "ahead"),
    (r"(?<!b)a.*", "behind"),
    (r"a|ab", "short-"),
    (r"(a)?(b)?c", "[$1|$2]"),
    (r"(a)(b)", "$3"),
    (r"(a)(b)", "$12"),
    (r"a", "$"),
    (r"a", "\\"),
    (r"a", "${x}"),
    (r"a", r"\$\\"),
    (r"é+", "accents"),
    (r"\w+", "ascii"),
    (r"[^a-c[x]]", "neg union"),
    (r"[^a-z&&[^c]]", "neg inter"),
    (r"[&a]+", "amp"),
    (r"[a&&&&c]", "many amps"),
    (r"[~|-]+", "specials"),
    (r"a{,2}", "x"),
    (r"{a", "x"),
    (r"a{x}", "x"),
    (r"a{1", "x"),
    (r"a{2}|b{1,}", "times"),
    (r"a}", "x"),
)
INPUTS = (
    "",
    "a",
    "b",
    "c",
    "ab",
    "aab",
    "aaab",
    "abc",
    "ABC",
    "aB",
    "aD",
    "cD",
    "CD",
    "Ab",
    "aa",
    "aaa",
    "a.b",
    "a.b.c",
    "axb",
    "abc-123",
    "x",
    "y9_",
    "Zx",
    "é",
    "éé",
    "a b",
    "a\tb",
    "a\n",
    "-~|",
    "]^-",
    "&a",
    "123",
    "_",
    "ac",
    "bc",
    "Lx",
    "1a",
    "c1",
    "a1b2",
    "ω",
)


def cases() -> Json:
    """Everything that is compared."""
    kafka, debezium, properties, others = Generator(1), Generator(2), Generator(3), Generator(4, LATER)
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
        "properties": properties.properties_texts(400),
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
