"""Chains of transforms that the fast path compiles, for tests that compare both paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

KAFKA: Final = "org.apache.kafka.connect.transforms"
UNWRAP: Final = "io.debezium.transforms.ExtractNewRecordState"
SCYLLA_UNWRAP: Final = "com.scylladb.cdc.debezium.connector.transforms.ScyllaExtractNewRecordState"
SCYLLA_FLATTEN: Final = "com.scylladb.cdc.debezium.connector.transforms.ScyllaFlattenColumns"
_BOOLEANS: Final = st.sampled_from(["true", "false"])
_SIDES: Final = st.sampled_from(["Value", "Value", "Key"])
_LITERALS: Final = st.sampled_from(["eu-1", "ä漢😀", 'a"b\\c{x}', "7", "", "-1.5", "2026-11-27T21:00:00.000Z"])
_ENVELOPE: Final = ("before", "source", "op", "ts_ms", "transaction", "nothing")

Stage = dict[str, str]


def chain(*stages: Stage) -> dict[str, str]:
    """The configuration of stages one after the other."""
    names = [f"t{number}" for number in range(len(stages))]
    return {
        "transforms": ",".join(names),
        **{
            f"transforms.{name}.{option}": value
            for name, stage in zip(names, stages, strict=True)
            for option, value in stage.items()
        },
    }


@st.composite
def _unwrap(draw: st.DrawFn, kind: str, names: Sequence[str]) -> Stage:
    added = st.lists(
        st.sampled_from(
            [
                "op",
                "table",
                "source.ts_ms:changed",
                "db",
                "ts_ns",
                "transaction.id",
                "row",
                *(f"before.{name}" for name in names[:2]),
            ]
        ),
        max_size=3,
        unique=True,
    )
    stage = {
        "type": kind,
        "delete.tombstone.handling.mode": draw(st.sampled_from(["tombstone", "rewrite", "drop"])),
        "replace.null.with.default": draw(_BOOLEANS),
        "add.fields": ",".join(draw(added)),
    }
    headers = draw(
        st.lists(
            st.sampled_from(["db", "op", "source.name:ä", "ts_us", "source.file", "gtid"]), max_size=3, unique=True
        )
    )
    return stage | ({"add.headers": ",".join(headers)} if draw(st.booleans()) else {})


def _with_fields(names: Sequence[str]) -> st.SearchStrategy[Stage]:
    """Transforms that name fields."""
    fields = st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True).map(",".join)
    renames = st.lists(
        st.tuples(st.sampled_from(names), st.sampled_from(["x", "y", "ä", names[0]])),
        max_size=2,
        unique_by=lambda p: p[1],
    ).map(lambda pairs: ",".join(f"{old}:{new}" for old, new in pairs))
    replaced = st.fixed_dictionaries(
        {"type": _SIDES.map(lambda side: f"{KAFKA}.ReplaceField${side}"), "replace.null.with.default": _BOOLEANS},
        optional={"exclude": fields, "renames": renames},
    )
    kept = st.builds(
        lambda kept, null: {
            "type": f"{KAFKA}.ReplaceField$Value",
            "include": ",".join(["after", *kept]),
            "replace.null.with.default": null,
        },
        st.lists(st.sampled_from(names), max_size=4, unique=True),
        _BOOLEANS,
    )
    masked = st.fixed_dictionaries(
        {
            "type": _SIDES.map(lambda side: f"{KAFKA}.MaskField${side}"),
            "fields": fields,
            "replace.null.with.default": _BOOLEANS,
        },
        optional={"replacement": st.sampled_from(["7", "***", "ß"])},
    )
    extracted = st.fixed_dictionaries(
        {
            "type": st.just(f"{KAFKA}.ExtractField$Key"),
            "field": st.sampled_from(names),
            "replace.null.with.default": _BOOLEANS,
        }
    )
    return st.one_of(replaced, kept, masked, masked, extracted)


_OTHERS: Final = st.one_of(
    st.fixed_dictionaries(
        {
            "type": _SIDES.map(lambda side: f"{KAFKA}.InsertField${side}"),
            "topic.field": st.sampled_from(["topic", "topic!", "x"]),
            "replace.null.with.default": _BOOLEANS,
        }
    ),
    st.fixed_dictionaries(
        {
            "type": _SIDES.map(lambda side: f"{KAFKA}.InsertField${side}"),
            "static.field": st.sampled_from(["site", "site!", "y"]),
            "static.value": _LITERALS,
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just(f"{KAFKA}.InsertHeader"), "header": st.just("h"), "value.literal": _LITERALS}
    ),
    st.fixed_dictionaries({"type": st.just(f"{KAFKA}.DropHeaders"), "headers": st.sampled_from(["a", "h,b", "none"])}),
    st.fixed_dictionaries(
        {
            "type": _SIDES.map(lambda side: f"{KAFKA}.SetSchemaMetadata${side}"),
            "schema.name": st.sampled_from(["s", "other.Envelope"]),
            "replace.null.with.default": _BOOLEANS,
        }
    ),
    st.fixed_dictionaries(
        {"type": _SIDES.map(lambda side: f"{KAFKA}.HoistField${side}"), "field": st.sampled_from(["whole", "after"])}
    ),
    st.just({"type": f"{KAFKA}.RegexRouter", "regex": r"(.*)\.(.*)", "replacement": "lake.$2"}),
    st.fixed_dictionaries(
        {
            "type": st.just("io.debezium.transforms.ByLogicalTableRouter"),
            "topic.regex": st.sampled_from([r"(.*)\.(.*)", "none"]),
            "topic.replacement": st.just("all"),
            "key.enforce.uniqueness": _BOOLEANS,
        }
    ),
)


@st.composite
def chains(
    draw: st.DrawFn, names: Sequence[str], unwrap: Sequence[str] = (UNWRAP,), events: Sequence[Stage] = ()
) -> dict[str, str]:
    """A chain over tables with some of the columns ``names``.

    Args:
        draw: hypothesis's.
        names: columns.
        unwrap: transforms that take the row out of an event.
        events: more stages for whole events.
    """
    stages = st.lists(
        st.one_of(_with_fields([*names, *_ENVELOPE]), _OTHERS, *([st.sampled_from(events)] if events else [])),
        max_size=2,
    )
    rows = st.lists(st.one_of(_with_fields(names), _OTHERS), max_size=3)
    taken_out = [draw(_unwrap(draw(st.sampled_from(unwrap)), names))] if draw(st.integers(0, 3)) else []
    before = draw(stages) if not taken_out or draw(st.booleans()) else []
    return chain(*before, *taken_out, *(draw(rows) if taken_out else ()))
