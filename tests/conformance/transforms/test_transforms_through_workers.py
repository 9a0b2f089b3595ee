"""Records through Kafka Connect's worker and through Millrace's, with the same transforms: the same bytes must come to Kafka.

The slow suite takes more configurations, and others.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.conformance.transforms.strategies import KINDS, case, collect
from tests.conformance.transforms.worker_pair import Outcome, compare, run_java, run_millrace
from tests.selection import scaled
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import HasBootstrap

Json = dict[str, Any]

KAFKA = "org.apache.kafka.connect.transforms."
DATA = "org.apache.kafka.connect.data."
pytestmark = pytest.mark.scaled
#: Configurations per transform, and records per configuration.
COUNT, RECORDS, SEED = scaled((3, 6, 1), (20, 10, 1000))


def build_case(kind: str, options: Json, *records: Json, **more: str) -> Json:
    """A case with one transform."""
    properties = {f"transforms.t.{name}": value for name, value in options.items()}
    return {
        "config": {"transforms": "t", "transforms.t.type": KAFKA + kind, **properties, **more},
        "records": list(records),
    }


def build_record(value: Json | None, key: Json | None = None, timestamp: int | None = 1_700_000_000_000) -> Json:
    """A record."""
    return {
        "topic": "inventory.users",
        "partition": None,
        "timestamp": timestamp,
        "key": key,
        "value": value,
        "headers": [],
    }


def plain(payload: Any) -> Json:
    """Data without a schema."""
    return {"schema": None, "payload": payload}


def typed(kind: str, payload: Any, **more: Any) -> Json:
    """Data with a schema of one type."""
    return {"schema": {"type": kind, "optional": True, **more}, "payload": payload}


def row(**fields: tuple[str, Any]) -> Json:
    """A struct of plain types."""
    return {
        "schema": {
            "type": "struct",
            "optional": False,
            "name": "Row",
            "fields": [{"type": kind, "optional": True, "field": name} for name, (kind, _) in fields.items()],
        },
        "payload": {name: value for name, (_, value) in fields.items()},
    }


class Difference(NamedTuple):
    """A documented difference: a case that shows it, and which generated records it may touch."""

    case: Json
    covers: Callable[[Json, Json], bool]


def _never(config: Json, record: Json) -> bool:
    del config, record
    return False


def _touches(kind: str, text: str, config: Json, record: Json) -> bool:
    return any(str(value).startswith(KAFKA + kind) for value in config.values()) and text in json.dumps(record)


DIFFERENCES = {
    "a masked Decimal gets its schema's scale": Difference(
        build_case(
            "MaskField$Value",
            {"fields": "d"},
            build_record(
                {
                    "schema": {
                        "type": "struct",
                        "optional": False,
                        "fields": [
                            {
                                "type": "bytes",
                                "name": DATA + "Decimal",
                                "version": 1,
                                "parameters": {"scale": "2"},
                                "optional": False,
                                "field": "d",
                            }
                        ],
                    },
                    "payload": {"d": "AfQ="},
                }
            ),
        ),
        partial(_touches, "MaskField", "Decimal"),
    ),
    "a rename of an absent field has no effect": Difference(
        build_case("ReplaceField$Value", {"renames": "gone:id"}, build_record(row(id=("int32", 5)))), _never
    ),
    "a whole value that is cast loses its logical type": Difference(
        build_case(
            "Cast$Value",
            {"spec": "int64"},
            build_record(typed("int64", 1_700_000_000_000, name=DATA + "Timestamp", version=1)),
        ),
        partial(_touches, "Cast", DATA),
    ),
    "days before 1970-01-02 are cast to dates": Difference(
        build_case(
            "Cast$Value",
            {"spec": "d:string"},
            build_record(
                {
                    "payload": {"d": -400},
                    "schema": {
                        "type": "struct",
                        "optional": False,
                        "fields": [
                            {"type": "int32", "name": DATA + "Date", "version": 1, "optional": False, "field": "d"}
                        ],
                    },
                }
            ),
        ),
        _never,
    ),
    "a wrong pattern of TimestampRouter is an error of the configuration": Difference(
        build_case("TimestampRouter", {"timestamp.format": "yyyy-bb"}, build_record(plain("x"))), _never
    ),
    "weeks are refused in patterns": Difference(
        build_case("TimestampRouter", {"timestamp.format": "YYYY-ww"}, build_record(plain("x"))), _never
    ),
    "days of the week without a day of the month are not read": Difference(
        build_case(
            "TimestampConverter$Value", {"target.type": "unix", "format": "EEE HH:mm"}, build_record(plain("Tue 22:13"))
        ),
        _never,
    ),
    "a Date beyond 32 bits is refused": Difference(
        build_case(
            "TimestampConverter$Value", {"target.type": "Date"}, build_record(typed("int64", 1_700_000_000_123_456_789))
        ),
        _never,
    ),
    "texts may name no zones but UTC and GMT": Difference(
        build_case(
            "TimestampConverter$Value",
            {"target.type": "unix", "format": "yyyy-MM-dd HH:mm z"},
            build_record(plain("2023-11-14 22:13 PST")),
        ),
        _never,
    ),
}

STRING = "org.apache.kafka.connect.storage.StringConverter"
RAW = "org.apache.kafka.connect.converters.ByteArrayConverter"
SIMPLE = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
#: Other converters behind the transforms.
CONVERTED = {
    "a field as text": build_case(
        "ExtractField$Value",
        {"field": "name"},
        build_record(row(name=("string", "ümlaut"))),
        build_record(row(name=("string", None))),
        build_record(plain({"name": 5})),
        **{"value.converter": STRING},
    ),
    "a field as bytes": build_case(
        "ExtractField$Value",
        {"field": "raw"},
        build_record(row(raw=("bytes", "AP8B"))),
        build_record(row(raw=("string", "refused"))),
        **{"value.converter": RAW},
    ),
    "a key as text": build_case(
        "ValueToKey",
        {"fields": "id"},
        build_record(row(id=("int32", 7), name=("string", "n"))),
        build_record(plain({"id": 1, "x": None})),
        **{"key.converter": STRING},
    ),
    "headers as text": build_case(
        "HeaderFrom$Value",
        {"fields": "id,name", "headers": "a,b", "operation": "move"},
        build_record(row(id=("int64", 7), name=("string", "x y"), flag=("boolean", True))),
        build_record(plain({"id": 2.5, "name": [1, "b"]})),
        **{"header.converter": SIMPLE},
    ),
    "a cast as text": build_case(
        "Cast$Value",
        {"spec": "string"},
        build_record(typed("double", 2.5)),
        build_record(typed("float", 0.125)),
        build_record(typed("bytes", "AP8B")),
        build_record(plain(True)),
        **{"value.converter": STRING},
    ),
}

#: What ends a task that tolerates no errors; both name the same cause.
FAILING = {
    "cast": build_case("Cast$Value", {"spec": "id:int8"}, build_record(plain({"id": "300"}))),
    "cast of a list": build_case("Cast$Value", {"spec": "int8"}, build_record(plain([1]))),
    "extract": build_case(
        "ExtractField$Value", {"field": "a.b", "field.syntax.version": "V2"}, build_record(row(a=("int32", 1)))
    ),
    "extract of nothing": build_case("ExtractField$Value", {"field": "gone"}, build_record(row(a=("int32", 1)))),
    "flatten": build_case(
        "Flatten$Value",
        {},
        build_record(
            {
                "schema": {
                    "type": "struct",
                    "optional": False,
                    "fields": [
                        {
                            "type": "map",
                            "keys": {"type": "string", "optional": False},
                            "values": {"type": "int32", "optional": False},
                            "optional": True,
                            "field": "m",
                        }
                    ],
                },
                "payload": {"m": {"a": 1}},
            }
        ),
    ),
    "header": build_case(
        "HeaderFrom$Key", {"fields": "a", "headers": "b", "operation": "copy"}, build_record(plain({}))
    ),
    "schema": build_case("SetSchemaMetadata$Value", {"schema.name": "n"}, build_record(plain(5))),
    "schema of a text": build_case("SetSchemaMetadata$Value", {"schema.name": "n"}, build_record(typed("string", "x"))),
    "time": build_case(
        "TimestampConverter$Value",
        {"field": "ts", "target.type": "unix", "format": "yyyy-MM-dd"},
        build_record(plain({"ts": "14.11.2023"})),
    ),
    "time of a number": build_case("TimestampConverter$Value", {"target.type": "unix"}, build_record(plain(2.5))),
    "time of a short": build_case("TimestampConverter$Value", {"target.type": "unix"}, build_record(typed("int16", 5))),
    "route": build_case("TimestampRouter", {}, build_record(plain(1), timestamp=None)),
    "key": build_case("ValueToKey", {"fields": "gone"}, build_record(row(a=("int32", 1)))),
    "key of a text": build_case("ValueToKey", {"fields": "a"}, build_record(plain("x"))),
    "insert": build_case("InsertField$Value", {"offset.field": "o"}, build_record(plain({}))),
    "mask": build_case("MaskField$Value", {"fields": "a", "replacement": "x"}, build_record(plain({"a": True}))),
    "replace": build_case("ReplaceField$Key", {"exclude": "a"}, build_record(None, plain("x"))),
}
#: Configurations that can't be used.
UNUSABLE = {
    "no cast": build_case("Cast$Value", {}),
    "an empty cast": build_case("Cast$Value", {"spec": ""}),
    "a type": build_case("Cast$Value", {"spec": "a:int7"}),
    "bytes": build_case("Cast$Value", {"spec": "bytes"}),
    "two whole": build_case("Cast$Value", {"spec": "int8,a:int8"}),
    "parts": build_case("Cast$Value", {"spec": "a:int8:b"}),
    "no field": build_case("HoistField$Value", {}),
    "a backtick": build_case("ExtractField$Value", {"field": "`a", "field.syntax.version": "V2"}),
    "a syntax": build_case("ExtractField$Value", {"field": "a", "field.syntax.version": "V3"}),
    "counts": build_case("HeaderFrom$Value", {"fields": "a,b", "headers": "c", "operation": "move"}),
    "an operation": build_case("HeaderFrom$Value", {"fields": "a", "headers": "c", "operation": "steal"}),
    "no format": build_case("TimestampConverter$Value", {"target.type": "string"}),
    "a format": build_case("TimestampConverter$Value", {"target.type": "string", "format": "bb"}),
    "a target": build_case("TimestampConverter$Value", {"target.type": "date"}),
    "a unit": build_case("TimestampConverter$Value", {"target.type": "unix", "unix.precision": "hours"}),
    "no name": build_case("SetSchemaMetadata$Value", {}),
    "a version": build_case("SetSchemaMetadata$Value", {"schema.version": "x"}),
    "no headers": build_case("DropHeaders", {"headers": ""}),
    "no literal": build_case("InsertHeader", {"header": "a"}),
    "no fields": build_case("ValueToKey", {"fields": ""}),
    "a side": build_case("Flatten", {}),
}


class Run(NamedTuple):
    """The outcomes of all cases in both workers, by name."""

    cases: dict[str, Json]
    java: dict[str, Outcome]
    ours: dict[str, Outcome]

    def differences(self, name: str) -> list[str]:
        """Those of one case, with its configuration."""
        differences = compare(self.java[name], self.ours[name], self.cases[name]["records"])
        return [f"{json.dumps(self.cases[name]['config'])}\n{text}" for text in differences]


@pytest.fixture(scope="module")
def run(kafka: HasBootstrap, tmp_path_factory: pytest.TempPathFactory) -> Run:
    cases: dict[str, Json] = {}
    for number, kind in enumerate(KINDS):
        cases |= {
            f"{kind} {index}": example
            for index, example in enumerate(collect(case(kind, RECORDS), COUNT, SEED + number))
        }
    for group, group_cases in (
        ("known", {name: difference.case for name, difference in DIFFERENCES.items()}),
        ("converted", CONVERTED),
        ("unusable", UNUSABLE),
    ):
        cases |= {f"{group} {name}": example for name, example in group_cases.items()}
    for name, failing_case in FAILING.items():
        cases[f"failing {name}"] = {**failing_case, "config": {**failing_case["config"], "errors.tolerance": "none"}}
    folder = tmp_path_factory.mktemp("workers")
    listed = list(cases.values())
    with ThreadPoolExecutor(1) as pool:
        ours = pool.submit(run_millrace, listed, kafka.bootstrap, folder)
        try:
            java = run_java(listed, kafka.bootstrap, folder)
        except StackError as error:
            ours.result()
            pytest.skip(f"no Java or no jars: {error}")
        return Run(cases, dict(zip(cases, java, strict=True)), dict(zip(cases, ours.result(), strict=True)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes_come_to_kafka(run: Run, kind: str) -> None:
    for name in (f"{kind} {index}" for index in range(COUNT)):
        config = run.cases[name]["config"]
        allowed = [
            number
            for number, record in enumerate(run.cases[name]["records"])
            if any(difference.covers(config, record) for difference in DIFFERENCES.values())
        ]
        left = [text for text in run.differences(name) if not any(f"\nrecord {number}: " in text for number in allowed)]
        assert not left, "\n".join(left)


def test_records_get_through(run: Run) -> None:
    # A comparison of nothing with nothing would prove nothing.
    generated = [name for name in run.cases if name.rpartition(" ")[0] in KINDS]
    sent = sum(record is not None for name in generated for record in run.java[name].records)
    assert sent > 0.4 * COUNT * RECORDS * len(KINDS)
    assert all(run.java[name].verdict == "done" for name in generated)


@pytest.mark.parametrize("name", CONVERTED)
def test_other_converters_write_the_same(run: Run, name: str) -> None:
    assert not run.differences(f"converted {name}")
    assert any(run.java[f"converted {name}"].records)


@pytest.mark.parametrize("name", FAILING)
def test_a_refused_record_fails_the_task_with_the_same_words(run: Run, name: str) -> None:
    java, ours = run.java[f"failing {name}"], run.ours[f"failing {name}"]
    assert (java.verdict, ours.verdict) == ("failed", "failed")
    # Messages that end with a Java object's own form start alike; Millrace's may say more.
    assert any(text.split("SourceRecord{")[0] in ours.reason for text in java.causes), (java.causes, ours.reason)


@pytest.mark.parametrize("name", UNUSABLE)
def test_wrong_options_are_refused_by_both(run: Run, name: str) -> None:
    assert not run.differences(f"unusable {name}")
    assert run.ours[f"unusable {name}"].verdict == "refused"


@pytest.mark.parametrize("name", DIFFERENCES)
def test_known_differences_are_still_there(run: Run, name: str) -> None:
    assert run.differences(f"known {name}"), "it is gone: take it out of the list and out of docs/transforms.md"
