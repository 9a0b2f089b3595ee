"""Configurations of the file source connector that ``validate`` is asked about: chosen ones, and many at random.

Nothing here depends on the machine: the same cases are asked of Kafka Connect and of Millrace.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from connectors.options import ConfigType
from worker.kafka.client_properties import client_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CLASS: Final = "org.apache.kafka.connect.file.FileStreamSourceConnector"
BASE: Final = {"name": "x", "connector.class": CLASS, "topic": "t", "file": "/nowhere"}
_POLICY: Final = "connector.client.config.override.policy"
_EXACTLY_ONCE: Final = {"exactly.once.source.support": "enabled"}
#: The worker that most cases are asked of.
USUAL: Final[Mapping[str, str]] = {_POLICY: "All", **_EXACTLY_ONCE}
_SEED: Final = 4102
_RANDOM: Final = 300


@dataclass(frozen=True, slots=True)
class Case:
    """One question.

    Attributes:
        name: a short one.
        config: the connector's configuration.
        worker: the worker's properties in addition to the usual ones.
    """

    name: str
    config: Mapping[str, str]
    worker: Mapping[str, str] = field(default_factory=lambda: dict(USUAL))


# Chosen: clients, versions.

_OVERRIDES: Final[tuple[dict[str, str], ...]] = (
    {"producer.override.acks": "all"},
    {"producer.override.acks": "maybe"},
    {"producer.override.linger.ms": "abc"},
    {"admin.override.retries": "x"},
    {"consumer.override.max.poll.records": "zz"},
    {"producer.override.": "x"},
    {"producer.override.compression.type": "brotli"},
    {"producer.override.enable.idempotence": " TRUE "},
    {"producer.override.acks": " all ", "producer.override.ssl.key.password": "hunter2"},
    {
        "producer.override.linger.ms": "5",
        "producer.override.nosuch": "1",
        "producer.override.batch.size": "-1",
        "consumer.override.max.poll.records": "7",
        "admin.override.sasl.jaas.config": "hunter2",
    },
    {"producer.override.ssl.enabled.protocols": "TLSv1.2, TLSv1.3", "admin.override.client.id": ""},
    {
        "producer.override.security.protocol": "SASL_PLAINTEXT",
        "producer.override.sasl.mechanism": "PLAIN",
        "producer.override.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="a" password="hunter2";',
    },
    {
        "offsets.storage.topic": "o",
        "admin.override.client.id": "a",
        "consumer.override.nosuch": "b",
        "producer.override.client.id": "c",
    },
    {
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        "consumer.override.client.id": "a",
        "admin.override.client.id": "b",
    },
    {"admin.override.client.id": "a", "consumer.override.client.id": "a"},
)
#: Values that every property of a type takes; for strings the default is used.
_GOOD: Final = {
    ConfigType.BOOLEAN: "true",
    ConfigType.INT: "7",
    ConfigType.LONG: "7",
    ConfigType.SHORT: "7",
    ConfigType.DOUBLE: "0.5",
    ConfigType.CLASS: "java.lang.String",
    ConfigType.LIST: "a, b",
    ConfigType.PASSWORD: "hunter2",
}
_WORKERS: Final[Mapping[str, Mapping[str, str]]] = {
    "all": USUAL,
    "none": {_POLICY: "None"},
    "principal": {_POLICY: "Principal", **_EXACTLY_ONCE},
}


def _all_properties(kind: str) -> dict[str, str]:
    """Every property that Millrace knows of a client; what Kafka Connect says of each is in the answer."""
    return {
        f"{kind}.override.{name}": _GOOD.get(key.type) or key.default or "x" for name, key in client_keys(kind).items()
    }


RANGES: Final = (
    "[1,",
    "[1,2],[0,",
    "(1)",
    "[3,1]",
    "bogus[",
    "a b",
    "1,2",
    "1]",
    "1)",
    "(1",
    "[]",
    "[,]",
    "(,)",
    "[,",
    "[1,2],[1,3]",
    "[1,2],3",
    "3,[1,2]",
    "[1,1)",
    "(1,1]",
    "[1,1]",
    "(,3],[4,)",
    "[ 1 , 2 ]",
    "[4.1.2]",
    "[4,5)",
    "(4.1.2,)",
    "4.1.2-rc1",
    "4.1.2",
    "[4.1.2-rc1,4.1.2]",
    "latest",
    "LATEST",
    "",
    "[1;2]",
    "[4,5),",
    "[4,5)x",
    "[4,5)[6,7]",
    "[1,2,3]",
    "(,4.1.2)",
    "(,4.1.2]",
    "4.1.2.0",
    "4.1.2-ga",
    "[4.1.1,4.1.2.1]",
    "[1,2] , [4,5]",
    "(4,)",
    "[,4],[4,]",
    "[1,2),[2,3)",
)
_DROP: Final = {
    "transforms": "t",
    "transforms.t.type": "org.apache.kafka.connect.transforms.DropHeaders",
    "transforms.t.headers": "a",
}


def _versions() -> Iterator[tuple[str, dict[str, str]]]:
    for text in ("[1,", "(1)", "[3,1]"):
        yield f"connector {text}", {"connector.plugin.version": text}
    for text in ("[1,", "9", "", "[0,)", "latest"):
        for option in ("key.converter", "header.converter"):
            yield f"{option} {text}", {f"{option}.plugin.version": text}
            for name in (
                "org.apache.kafka.connect.json.JsonConverter",
                "nope",
                "org.apache.kafka.connect.transforms.Filter",
            ):
                yield f"{option} {name} {text}", {option: name, f"{option}.plugin.version": text}
        for kind in ("transforms", "predicates"):
            yield f"{kind} without type {text}", {kind: "a", f"{kind}.a.plugin.version": text}
            for name in (
                "",
                "nope",
                "org.apache.kafka.connect.transforms.Cast",
                "org.apache.kafka.connect.transforms.Filter",
                "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
                "org.apache.kafka.connect.transforms.Flatten$Value",
            ):
                yield f"{kind} {name} {text}", {kind: "a", f"{kind}.a.type": name, f"{kind}.a.plugin.version": text}


def cases() -> list[Case]:
    """All of them."""
    all_cases = [Case(f"range {text}", {**BASE, **_DROP, "transforms.t.plugin.version": text}) for text in RANGES]
    all_cases += [Case(f"version {name}", {**BASE, **config}) for name, config in _versions()]
    all_cases += [
        Case(f"client {number} {worker}", {**BASE, **config}, dict(properties))
        for worker, properties in _WORKERS.items()
        for number, config in enumerate(_OVERRIDES)
    ]
    all_cases += [
        Case(f"client {kind}", {**BASE, **_all_properties(kind)}) for kind in ("producer", "consumer", "admin")
    ]
    numbers = random.Random(_SEED)
    return all_cases + [Case(f"random {number}", _random(numbers)) for number in range(_RANDOM)]


# At random.

_KAFKA: Final = "org.apache.kafka.connect.transforms."
_PREDICATE: Final = f"{_KAFKA}predicates."
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
_VERSIONS: Final = ("[0,)", "9", "[1,", "", "latest")

_SINGLE: Final[Mapping[str, Sequence[str]]] = {
    "tasks.max": ("1", "0", "-1", "x", "", " 2 ", "2147483648", "1.0", "+3", "007", " "),
    "tasks.max.enforce": ("true", "false", "x", "", " TRUE", "0"),
    "config.action.reload": ("restart", "none", "NONE", "", " none ", "x"),
    "errors.retry.timeout": ("9", "-1", "-2", "x", "", " 5 ", "9223372036854775808"),
    "errors.retry.delay.max.ms": ("0", "-1", "x", "", "60000"),
    "errors.tolerance": ("none", "all", "ALL", "None", "", "x", " all "),
    "errors.log.enable": ("true", "x", "", "TRUE", "yes"),
    "errors.log.include.messages": ("false", "x", ""),
    "exactly.once.support": ("requested", "required", "REQUIRED", "x", "", " required ", "Requested"),
    "transaction.boundary": ("poll", "interval", "connector", "POLL", "x", "", " poll "),
    "transaction.boundary.interval.ms": ("1", "0", "-1", "x", "", " 10 "),
    "offsets.storage.topic": ("o", "", " ", "a b"),
    "name": ("n", "", " ", "a\tb", " n ", "é", "a/b", "x\n"),
    "file": ("/nowhere/x", "", " "),
    "topic": ("t", "", " ", "a,b", " t ", "a b"),
    "batch.size": ("1", "0", "x", "", "-5", " 3 "),
    "connector.class": ("FileStreamSource", CLASS, "FileStreamSourceConnector"),
    "topic.creation.groups": ("a", "a,b", "a,a", "", " ", ",", " a , b ", "default", "A"),
    "topic.creation.default.partitions": ("1", "-1", "0", "x", ""),
    "topic.creation.default.replication.factor": ("1", "-1", "0", "x", "40000"),
    "topic.creation.a.include": ("a.*", "(", "", ","),
    "topic.creation.a.cleanup.policy": ("compact",),
    "bogus": ("x", " y"),
    "transforms.": ("x",),
    "predicates": ("p",),
}
_CONVERTERS: Final = (
    _JSON,
    _STRING,
    "JsonConverter",
    "String",
    "nope",
    "",
    f"{_KAFKA}RegexRouter",
    "org.apache.kafka.connect.converters.LongConverter",
    "org.apache.kafka.connect.storage.SimpleHeaderConverter",
    "org.apache.kafka.connect.converters.ByteArrayConverter",
)
_OF_CONVERTERS: Final[Mapping[str, Sequence[str]]] = {
    "schemas.enable": ("true", "x", "", "FALSE "),
    "schemas.cache.size": ("1", "x", "-1", ""),
    "decimal.format": ("base64", "NUMERIC", "x", ""),
    "replace.null.with.default": ("x", "true"),
    "converter.encoding": ("UTF-8", "nope", ""),
    "converter.type": ("key", "value", "header"),
    "plugin.version": _VERSIONS,
    "bogus": ("x",),
}
_TRANSFORMS: Final[Mapping[str, Sequence[str]]] = {
    "DropHeaders": ("headers",),
    "Cast$Value": ("spec", "replace.null.with.default"),
    "HoistField$Key": ("field",),
    "InsertField$Value": ("static.field", "static.value", "timestamp.field", "replace.null.with.default"),
    "Filter": (),
    "RegexRouter": ("regex", "replacement"),
    "ReplaceField$Value": ("include", "exclude", "renames", "replace.null.with.default"),
    "TimestampRouter": ("topic.format", "timestamp.format"),
    "Flatten$Key": ("delimiter",),
    "MaskField$Value": ("fields", "replacement"),
    "SetSchemaMetadata$Key": ("schema.name", "schema.version"),
    "ValueToKey": ("fields",),
    "TimestampConverter$Value": ("target.type", "format", "unix.precision", "field"),
    "HeaderFrom$Value": ("fields", "headers", "operation"),
    "InsertHeader": ("header", "value.literal"),
    "ExtractField$Key": ("field", "field.syntax.version"),
}
_NO_TRANSFORMS: Final = (
    f"{_KAFKA}Cast",
    f"{_KAFKA}Nope",
    "nope",
    "",
    f"{_PREDICATE}RecordIsTombstone",
    _JSON,
    f"{_KAFKA}HoistField$Header",
    "RegexRouter",
)
_PREDICATES: Final[Mapping[str, Sequence[str]]] = {
    "RecordIsTombstone": (),
    "TopicNameMatches": ("pattern",),
    "HasHeaderKey": ("name",),
}
_NO_PREDICATES: Final = ("nope", "", f"{_KAFKA}Filter", _JSON, "TopicNameMatches")
#: The first of each is a good one.
_OF_STAGES: Final[Mapping[str, Sequence[str]]] = {
    "headers": ("a", "", "a,,b", " a , b ", ","),
    "spec": ("a:int8", "", "bad:zz", "int8, a:string", " a:int8 "),
    "field": ("a", "", " ", "a.b"),
    "regex": (".*", "(", "", "(?<x>a)"),
    "replacement": ("b", "$1", "", "${x}"),
    "topic.format": ("${topic}", ""),
    "timestamp.format": ("yyyy", "b'"),
    "delimiter": ("-", ""),
    "fields": ("a,b", "", "a,,", ","),
    "operation": ("copy", "move", "MOVE", "x", ""),
    "schema.version": ("1", "x", "", "-1", " 2 "),
    "schema.name": ("a", ""),
    "target.type": ("string", "unix", "X", "", "Timestamp"),
    "format": ("yyyy", "b'", ""),
    "unix.precision": ("seconds", "Seconds", "x"),
    "static.field": ("a", "!a", "?a", ""),
    "static.value": ("v",),
    "replace.null.with.default": ("true", "no", " FALSE ", "", "True"),
    "header": ("h", ""),
    "value.literal": ("1", "abc"),
    "include": ("a", "", ","),
    "exclude": ("a",),
    "renames": ("a:b", "a", "a:b:c", ""),
    "pattern": ("a.*", "(", ""),
    "name": ("n", ""),
    "field.syntax.version": ("V1", "V3", "v2"),
    "timestamp.field": ("!x", ""),
    "predicate": ("p", "q", "", " p ", "P"),
    "negate": ("true", "x", "", "TRUE "),
    "bogus": ("x",),
    "plugin.version": _VERSIONS,
}
_CLIENTS: Final[Mapping[str, Sequence[str]]] = {
    "producer.override.acks": ("all", "1", " all ", "maybe"),
    "producer.override.linger.ms": ("5", " 5 ", "x"),
    "admin.override.retries": ("3", "x"),
    "consumer.override.max.poll.records": ("5", "x"),
    "producer.override.nosuch": ("x",),
}
_PREDICATE_ALIASES: Final = (("p",), ("p", "q"), ("p", "p"), ("p", ""))
_ALIASES: Final = (("a",), ("a", "b"), ("a", "a"), ("a", ""), ("",), (" a ",), ("a", "a.b"), ("b", "a"), ("A b",))


def _random(numbers: random.Random) -> dict[str, str]:
    def happens(chance: float) -> bool:
        return numbers.random() < chance

    config = dict(BASE)
    for option in numbers.sample(list(_SINGLE), numbers.choice((0, 1, 2, 3))):
        config[option] = numbers.choice(_SINGLE[option])
    for kind, chance, good, bad, prefix in (
        ("transforms", 0.55, _TRANSFORMS, _NO_TRANSFORMS, _KAFKA),
        ("predicates", 0.35, _PREDICATES, _NO_PREDICATES, _PREDICATE),
    ):
        if not happens(chance):
            continue
        aliases = numbers.choice(_ALIASES if kind == "transforms" else _PREDICATE_ALIASES)
        config[kind] = numbers.choice((",", ", ", " ,")).join(aliases)
        for alias in dict.fromkeys(item.strip() for item in aliases):
            _stage(numbers, config, f"{kind}.{alias}.", good, bad, prefix)
    for role in ("key", "value", "header"):
        option = f"{role}.converter"
        if happens(0.22):
            config[option] = numbers.choice(_CONVERTERS if happens(0.6) else _CONVERTERS[:2])
        if happens(0.2):
            for name in numbers.sample(list(_OF_CONVERTERS), numbers.choice((1, 2))):
                config[f"{option}.{name}"] = numbers.choice(_OF_CONVERTERS[name])
    if happens(0.15):
        for option in numbers.sample(list(_CLIENTS), 2):
            config[option] = numbers.choice(_CLIENTS[option])
    if happens(0.1):
        config.pop(numbers.choice(("name", "topic", "file")), None)
    return config


def _stage(
    numbers: random.Random,
    config: dict[str, str],
    prefix: str,
    good: Mapping[str, Sequence[str]],
    bad: Sequence[str],
    package: str,
) -> None:
    """A transform or predicate under ``prefix``, more often a good one."""
    options: tuple[str, ...] = ()
    if numbers.random() < 0.75:
        name = numbers.choice(list(good))
        config[f"{prefix}type"] = package + name
        options = tuple(option for option in good[name] if numbers.random() < 0.8)
    elif numbers.random() < 0.85:
        config[f"{prefix}type"] = numbers.choice(bad)
    common = [("bogus", 0.1), ("plugin.version", 0.07)]
    if prefix.startswith("transforms."):
        common += [("predicate", 0.2), ("negate", 0.2)]
    options += tuple(option for option, chance in common if numbers.random() < chance)
    for option in options:
        values = _OF_STAGES[option]
        config[prefix + option] = numbers.choice(values) if numbers.random() < 0.6 else values[0]
