"""The chain: order, predicates, errors, batches; and how its configuration is checked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors import schema as types
from connectors.api import Header, SourceRecord
from connectors.errors import ConfigInvalid, Fatal, Fenced, Retriable, Skippable
from connectors.options import ConfigDef
from connectors.schema import Schema, struct
from worker.transforms.base import Predicate, RecordFunction, SchemaCache, Side, Transform
from worker.transforms.options import PIPELINE_KEYS, transform_config_keys, transform_problems
from worker.transforms.pipeline import TransformError, TransformPipeline, TransformStage, build_pipeline
from worker.transforms.registry import (
    builtin_stages,
    predicate_types,
    resolve_predicate,
    resolve_transform,
    transform_types,
)

if TYPE_CHECKING:
    from pathlib import Path

KAFKA = "org.apache.kafka.connect.transforms."


def record(topic: str = "t", value: Any = None, **more: Any) -> SourceRecord:
    return SourceRecord({}, {}, topic, {} if value is None else value, **more)


def chain(*stages: dict[str, str], **more: str) -> dict[str, str]:
    config = {"transforms": ",".join(f"s{number}" for number in range(len(stages))), **more}
    for number, stage in enumerate(stages):
        config |= {f"transforms.s{number}.{name}": value for name, value in stage.items()}
    return config


def adds(name: str, **more: str) -> dict[str, str]:
    return {"type": KAFKA + "InsertField$Value", "static.field": name, "static.value": "x", **more}


def route(regex: str, replacement: str) -> dict[str, str]:
    return {"type": KAFKA + "RegexRouter", "regex": regex, "replacement": replacement}


def test_no_transforms_is_nothing_to_do() -> None:
    for config in ({}, {"transforms": ""}, {"transforms": "  "}):
        pipeline = build_pipeline(config)
        assert not pipeline
        single_record = record()
        assert pipeline.apply(single_record) is single_record


def test_transforms_run_in_the_order_of_the_list() -> None:
    config = chain(route("t", "u"), route("u", "v"))
    config["transforms"] = " s1 , s0 "
    result = build_pipeline(config).apply(record("t"))
    assert result is not None
    assert result.topic == "u"


@pytest.mark.parametrize(
    ("negate", "topic", "applied"),
    [(None, "x1", True), (None, "y", False), ("false", "x1", True), ("true", "x1", False), ("TRUE", "y", True)],
)
def test_predicates(negate: str | None, topic: str, applied: bool) -> None:
    stage = adds("f", predicate="p", **({} if negate is None else {"negate": negate}))
    config = chain(
        stage,
        predicates="p",
        **{"predicates.p.type": KAFKA + "predicates.TopicNameMatches", "predicates.p.pattern": "x."},
    )
    single_record = record(topic)
    result = build_pipeline(config).apply(single_record)
    assert result is not None
    assert result.value == ({"f": "x"} if applied else {})
    assert (result is single_record) == (not applied)


def test_predicates_on_headers_and_tombstones() -> None:
    drop = {"type": KAFKA + "Filter", "predicate": "p"}
    header = build_pipeline(
        chain(drop, predicates="p", **{"predicates.p.type": "HasHeaderKey", "predicates.p.name": "h"})
    )
    assert header.apply(record(headers=(Header("a", 1), Header("h", None)))) is None
    assert header.apply(record(headers=(Header("a", 1),))) is not None
    null = build_pipeline(chain(drop, predicates="p", **{"predicates.p.type": KAFKA + "predicates.RecordIsTombstone"}))
    assert null.apply(SourceRecord({}, {}, "t")) is None
    assert null.apply(record()) is not None


def test_dropped_record_meets_no_further_transform() -> None:
    def explode(record: SourceRecord) -> SourceRecord:
        raise AssertionError(record)

    pipeline = TransformPipeline([TransformStage(lambda _: None, "drop", "D"), TransformStage(explode, "boom", "B")])
    assert pipeline.apply(record()) is None


def test_error_names_the_transform_and_keeps_its_cause() -> None:
    pipeline = build_pipeline(chain(adds("a"), adds("b")))
    with pytest.raises(TransformError) as caught:
        pipeline.apply(record(value="text"))
    error = caught.value
    assert isinstance(error, Skippable)
    assert (error.alias, error.class_name, error.stage) == ("s0", KAFKA + "InsertField$Value", "TRANSFORMATION")
    assert str(error) == (
        f"transformation 's0' ({KAFKA}InsertField$Value) failed: Only Map objects supported in absence of "
        "schema for [field insertion], found: java.lang.String"
    )
    assert isinstance(error.__cause__, Skippable)


@pytest.mark.parametrize("kind", [Retriable, Fatal, Fenced])
def test_errors_that_are_no_bad_record_pass_as_they_are(kind: type[Exception]) -> None:
    def fail(record: SourceRecord) -> SourceRecord:
        raise kind(record.topic)

    pipeline = TransformPipeline([TransformStage(fail, "a", "A")])
    with pytest.raises(kind):
        pipeline.apply(record())
    with pytest.raises(kind):
        pipeline.apply_many([record()])


@given(st.lists(st.sampled_from(["keep", "drop", "bad"]), max_size=30))
def test_batch_gives_what_single_records_give(kinds: list[str]) -> None:
    config = chain(
        {"type": KAFKA + "Filter", "predicate": "p"},
        adds("f"),
        predicates="p",
        **{"predicates.p.type": "TopicNameMatches", "predicates.p.pattern": "drop"},
    )
    pipeline = build_pipeline(config)
    records = [record(kind, "text" if kind == "bad" else {"n": number}) for number, kind in enumerate(kinds)]
    results, errors = pipeline.apply_many(records)
    assert len(results) == len(records)
    assert [index for index, _ in errors] == [index for index, kind in enumerate(kinds) if kind == "bad"]
    for index, kind in enumerate(kinds):
        result = results[index]
        if kind == "keep":
            assert result is not None
            assert result.value == {"n": index, "f": "x"}
        else:
            assert result is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"transforms": "a"}, "transformation 'a': Missing required configuration \"transforms.a.type\""),
        (
            {"transforms": "a", "transforms.a.type": "NoSuch"},
            "Class NoSuch could not be found. Available transformations: .*Router",
        ),
        (
            {"transforms": "a", "transforms.a.type": KAFKA + "MaskField"},
            r"abstract and cannot be created. Did you mean .*Field\$Key",
        ),
        (
            {"transforms": "a", "transforms.a.type": "TopicNameMatches"},
            "does not implement the Transformation interface",
        ),
        (
            {"transforms": "a", "transforms.a.type": "Filter", "transforms.a.predicate": "p"},
            "Unknown predicate 'p'.*declares: none",
        ),
        (
            {"transforms": "a", "transforms.a.type": "Filter", "transforms.a.predicate": "p", "predicates": "q"},
            "declares: q",
        ),
        (
            {"transforms": "a", "transforms.a.type": "Filter", "transforms.a.predicate": "p", "predicates": "p"},
            "not be found",
        ),
        (
            {
                "transforms": "a",
                "transforms.a.type": "Filter",
                "transforms.a.predicate": "p",
                "predicates": "p",
                "predicates.p.type": "Filter",
            },
            "does not implement the Predicate interface",
        ),
        (
            {"transforms": "a", "transforms.a.type": "Filter", "transforms.a.plugin.version": "[9,)"},
            "matches the version range",
        ),
        ({"transforms": "a", "transforms.a.type": "RegexRouter", "transforms.a.regex": "("}, "Invalid regex"),
    ],
)
def test_wrong_configuration_says_what_and_where(config: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        build_pipeline(config)


def test_problems_that_connect_finds_only_when_a_task_starts() -> None:
    config = chain(adds("f", predicate="nope"), {"type": KAFKA + "InsertField$Value"}, {"type": "NoSuch"})
    problems = {problem.name: problem.message for problem in transform_problems(config)}
    assert set(problems) == {"transforms.s0.predicate", "transforms.s1.type"}
    assert "Unknown predicate 'nope'" in problems["transforms.s0.predicate"]
    assert "No field insertion configured" in problems["transforms.s1.type"]


def test_every_builtin_is_found_by_each_of_its_names() -> None:
    stages = builtin_stages()
    transforms = {short: kind for short, kind in stages.items() if issubclass(kind, Transform)}
    predicates = {short: kind for short, kind in stages.items() if issubclass(kind, Predicate)}
    assert len(transforms) == 31
    assert len(predicates) == 3
    for short, kind in transforms.items():
        for name in (short, *kind.aliases):
            for side in Side if kind.sided else (Side.VALUE,):
                resolved = resolve_transform(f"{name}${side}" if kind.sided else name)
                assert (resolved.kind, resolved.side) == (kind, side)
                assert resolved.class_name.startswith(kind.aliases[0])
    for short, predicate in predicates.items():
        for name in (short, *predicate.aliases):
            assert resolve_predicate(name).kind is predicate
    assert [resolved.class_name for resolved in transform_types()] == sorted(
        resolved.class_name for resolved in transform_types()
    )
    assert {resolved.kind for resolved in predicate_types()} == set(predicates.values())


def test_every_option_is_documented() -> None:
    definitions = [kind.config_def for kind in builtin_stages().values()]
    for definition in definitions:
        for key in definition.keys.values():
            assert len(key.doc) > 10, key.name
            assert key.doc.endswith((".", ")")), key.name


PACKAGE = """
from typing import ClassVar
from connectors.options import ConfigDef, ConfigKey, ConfigType
from worker.transforms.base import Predicate, Transform, by_schema, Side

class Shout(Transform):
    version: ClassVar[str] = "2.5"
    config_def: ClassVar[ConfigDef] = ConfigDef([
        ConfigKey(name="mark", type=ConfigType.STRING, default="!", doc="What to add.")])
    aliases: ClassVar[tuple[str, ...]] = ("com.example.Shout",)
    sided: ClassVar[bool] = True

    def compile(self):
        mark = self.config["mark"]
        return by_schema(self.side, lambda schema: (schema, lambda value, record: value + mark), skip_null=True)

class Never(Predicate):
    version: ClassVar[str] = "1"
    config_def: ClassVar[ConfigDef] = ConfigDef()

    def compile(self):
        return lambda record: False
"""


def test_other_packages_bring_transforms_by_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loud_transforms.py").write_text(PACKAGE)
    info = tmp_path / "loud-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[millrace.transforms]\nshout = loud_transforms:Shout\n\n[millrace.predicates]\nnever = loud_transforms:Never\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("com.example.Shout$Key", "shout$Key", "loud_transforms.Shout$Key", "loud_transforms:Shout$Key"):
        config = {"transforms": "a", "transforms.a.type": name, "transforms.a.mark": "?"}
        result = build_pipeline(config).apply(SourceRecord({}, {}, "t", key="k"))
        assert result is not None
        assert result.key == "k?"
    keys = {key.name: key for key in transform_config_keys({"transforms": "a", "transforms.a.type": "shout$Value"})}
    assert keys["transforms.a.plugin.version"].default == "2.5"
    assert keys["transforms.a.mark"].group == "Transforms: a"
    assert "com.example.Shout$Value" in {resolved.class_name for resolved in transform_types()}
    never = {
        "transforms": "a",
        "transforms.a.type": "Filter",
        "transforms.a.predicate": "n",
        "predicates": "n",
        "predicates.n.type": "never",
    }
    single_record = record()
    assert build_pipeline(never).apply(single_record) is single_record
    sys.modules.pop("loud_transforms", None)


class Unchanged(Transform):
    """The least a transform can be."""

    version: ClassVar[str] = "1"
    config_def: ClassVar[ConfigDef] = ConfigDef()

    def compile(self) -> RecordFunction:
        return lambda record: record


def test_contract_classes_need_compile() -> None:
    assert Unchanged(ConfigDef().parse({})).compile()(record()) is not None
    for contract in (Transform, Predicate):
        with pytest.raises(TypeError, match="abstract"):
            contract(ConfigDef().parse({}))  # type: ignore[abstract]


def test_schema_cache_is_bounded_and_never_confuses_schemas() -> None:
    built: list[Schema | None] = []

    def build(schema: Schema | None) -> str:
        built.append(schema)
        return "none" if schema is None else str(schema.name)

    cache: SchemaCache[str] = SchemaCache(build, limit=4)
    assert cache.get(None) == cache.get(None) == "none"
    for turn in range(50):
        for number in range(7):  # fresh objects each time: ids are used again once a schema has gone
            assert cache.get(struct(f"s{number}", {"a": types.INT32})) == f"s{number}", turn
    assert len(cache.by_id) <= 4
    assert len(cache.by_content) <= 4
    before = len(built)
    same = struct("same", {"a": types.INT32})
    assert [cache.get(schema) for schema in (same, same, struct("same", {"a": types.INT32}))] == ["same"] * 3
    assert len(built) == before + 1


def test_common_options_of_the_chain() -> None:
    values = ConfigDef(PIPELINE_KEYS).values({"transforms": "a, b,a"})
    assert values["transforms"].errors == [
        "Invalid value [a, b, a] for configuration transforms: Duplicate alias provided."
    ]
    assert values["predicates"].errors == []
