"""Chains of transforms on the fast path: whatever their options, they give the bytes of the general path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.local_avro import LocalAvro
from tests.support.transform_chains import UNWRAP, chain, chains
from tests.unit.connectors.mysql.events import making
from tests.unit.connectors.mysql.row_strategies import image, rows_event
from tests.unit.connectors.mysql.test_fast_rows import (
    CONVERTERS,
    MASKS,
    OPTIONS,
    WIDE,
    Both,
    json,
    row,
    tables,
)
from worker.converters.avro_form.schema import AvroSettings

if TYPE_CHECKING:
    from connectors.mysql.model import MySqlTable
    from connectors.mysql.schema.types import ValueOptions
    from worker.converters.base import Converter

KAFKA = "org.apache.kafka.connect.transforms"
NAMES = ["n", "c0", "c1", "c2", "c3"]
#: Literals that some types of columns have as a default; others have none then.
DEFAULTS = st.sampled_from([None, "1", "a", "2026-11-27"])
AVRO = st.builds(
    lambda enhanced, scrub: LocalAvro(AvroSettings(enhanced=enhanced, scrub=scrub)), st.booleans(), st.booleans()
)
JSON = CONVERTERS.map(lambda options: json(**options))


@st.composite
def tables_with_defaults(draw: st.DrawFn) -> tuple[MySqlTable, list[list[bytes | None]]]:
    """A table with rows, of which some columns have defaults."""
    table, rows = draw(tables())
    columns = [msgspec.structs.replace(column, default=draw(DEFAULTS)) for column in table.columns[1:]]
    return msgspec.structs.replace(table, columns=(table.columns[0], *columns)), rows


#: A mask that looks at another column; it can't be for a column of the key.
ROW_MASK = {
    "mask.rules": "r",
    "mask.r.columns": r"world\.customers\.c[0-3]",
    "mask.r.type": "hash",
    "mask.r.salt.field": "n",
}


@settings(max_examples=300, deadline=None)
@given(
    tables_with_defaults(),
    st.sampled_from(["write", "update", "delete", "snapshot"]),
    OPTIONS,
    st.one_of(MASKS, st.just(ROW_MASK)),
    st.one_of(JSON, AVRO),
    st.one_of(JSON, AVRO),
    chains(NAMES),
    st.data(),
)
def test_chains_give_the_same_bytes(
    table_and_rows: tuple[MySqlTable, list[list[bytes | None]]],
    kind: str,
    options: ValueOptions,
    masks: dict[str, str],
    key: Converter,
    value: Converter,
    transforms: dict[str, str],
    data: st.DataObject,
) -> None:
    table, rows = table_and_rows
    if masks == ROW_MASK:
        table = msgspec.structs.replace(table, key=("n",))
    chosen = making.settings(masks, tombstones=data.draw(st.booleans()), skip_unchanged=data.draw(st.booleans()))
    both = Both(table, chosen=chosen, options=options, key=key, value=value, transforms=transforms)
    images = [image(table, row) for row in rows]
    if kind == "update":
        # The key stays; of some rows other columns get the values of another row.
        keys = {position for position, column in enumerate(table.columns) if column.name in table.key}
        images = []
        for row, other in zip(rows, [*rows[1:], rows[0]], strict=True):
            changed = data.draw(st.booleans())
            after = [item if at in keys or not changed else other[at] for at, item in enumerate(row)]
            images += [image(table, row), image(table, after)]
    if kind == "snapshot":
        if both.state.snapshot is not None:
            both.check_snapshot(rows_event(table, "write", images))
    elif both.state.fast is not None:
        both.check(rows_event(table, kind, images), ordinary=kind != "delete")
        assert both.state.events.left_out == both.fast_left_out or both.fast_left_out is None


def events_of_wide() -> list[tuple[str, bytes]]:
    """An event of each kind."""
    rows = [row(1, b"a"), row(2, None), row(3, 'ß😀"\\\x01'.encode())]
    pairs = [image for old in rows for image in (old, old)]
    return [
        (kind, rows_event(WIDE, kind, pairs if kind == "update" else rows)) for kind in ("write", "update", "delete")
    ]


UNWRAPPED = {"type": UNWRAP, "add.fields": "op,source.ts_ms,row", "add.headers": "db,op,source.ts_ms"}
COMPILED = [
    [{"type": f"{KAFKA}.ReplaceField$Value", "include": "id,t", "renames": "t:text"}],
    [{"type": f"{KAFKA}.ReplaceField$Value", "exclude": "id"}],
    [{"type": f"{KAFKA}.ReplaceField$Key", "renames": "id:key"}],
    [{"type": f"{KAFKA}.InsertField$Value", "static.field": "site!", "static.value": "ä{}"}],
    [{"type": f"{KAFKA}.InsertField$Value", "topic.field": "topic"}],
    [{"type": f"{KAFKA}.InsertField$Key", "topic.field": "topic"}],
    [{"type": f"{KAFKA}.InsertHeader", "header": "h", "value.literal": "7"}],
    [{"type": f"{KAFKA}.DropHeaders", "headers": "a"}],
    [{"type": "io.debezium.transforms.SchemaChangeEventFilter", "schema.change.event.exclude.list": "DROP"}],
    [{"type": f"{KAFKA}.MaskField$Value", "fields": "id,t,__op", "replacement": "7"}],
    [{"type": f"{KAFKA}.MaskField$Key", "fields": "id"}],
    [{"type": f"{KAFKA}.HoistField$Value", "field": "row"}],
    [{"type": f"{KAFKA}.HoistField$Key", "field": "key"}],
    [{"type": f"{KAFKA}.ExtractField$Key", "field": "id"}],
    [{"type": f"{KAFKA}.ReplaceField$Key", "renames": "id:k"}, {"type": f"{KAFKA}.ExtractField$Key", "field": "k"}],
    [{"type": f"{KAFKA}.MaskField$Key", "fields": "id"}, {"type": f"{KAFKA}.ExtractField$Key", "field": "id"}],
    [
        {"type": f"{KAFKA}.InsertField$Key", "static.field": "s", "static.value": "ä"},
        {"type": f"{KAFKA}.ExtractField$Key", "field": "s"},
    ],
    [{"type": f"{KAFKA}.SetSchemaMetadata$Value", "schema.name": "s", "schema.version": "2"}],
    [{"type": f"{KAFKA}.RegexRouter", "regex": r"(.*)\.(.*)", "replacement": "lake.$2"}],
    [
        {
            "type": "io.debezium.transforms.ByLogicalTableRouter",
            "topic.regex": r"(.*)\.(.*)",
            "topic.replacement": "all",
        }
    ],
    [
        {"type": f"{KAFKA}.ReplaceField$Value", "exclude": "t"},
        {"type": f"{KAFKA}.InsertField$Value", "static.field": "t", "static.value": "x"},
        {"type": f"{KAFKA}.RegexRouter", "regex": r"(.*)\.(.*)", "replacement": "lake.$2"},
        {"type": f"{KAFKA}.InsertField$Value", "topic.field": "topic"},
        {"type": f"{KAFKA}.MaskField$Value", "fields": "topic,t,id"},
    ],
]


@pytest.mark.parametrize("stages", COMPILED)
@pytest.mark.parametrize("form", ["json", "json with schemas", "avro"])
@pytest.mark.parametrize("unwrapped", [False, True])
def test_chains_that_are_compiled(stages: list[dict[str, str]], form: str, unwrapped: bool) -> None:
    converters: list[Converter] = [
        LocalAvro(AvroSettings()) if form == "avro" else json(schemas_enable=str(form != "json").lower())
        for _ in (0, 1)
    ]
    transforms = chain(*([UNWRAPPED] if unwrapped else []), *stages)
    both = Both(WIDE, key=converters[0], value=converters[1], transforms=transforms)
    for kind, raw in events_of_wide():
        both.check(raw, ordinary=kind != "delete")


@pytest.mark.parametrize(
    "stage",
    [
        {"type": f"{KAFKA}.InsertField$Value", "timestamp.field": "at"},
        {"type": f"{KAFKA}.InsertField$Value", "topic.field": "id"},
        {"type": f"{KAFKA}.MaskField$Value", "fields": "t", "replacement": "7", "predicate": "p"},
        {"type": UNWRAP, "add.headers": "row"},
        {"type": UNWRAP, "add.fields": "source"},
        {"type": f"{KAFKA}.Cast$Value", "spec": "id:string"},
        {"type": f"{KAFKA}.ExtractField$Value", "field": "id"},
        {"type": f"{KAFKA}.ExtractField$Key", "field": "nothing"},
    ],
)
def test_what_depends_on_the_record_needs_records(stage: dict[str, str]) -> None:
    transforms = chain({"type": UNWRAP}, stage) if stage["type"] != UNWRAP else chain(stage)
    predicate = {"predicates": "p", "predicates.p.type": f"{KAFKA}.predicates.RecordIsTombstone"}
    assert Both(WIDE, transforms=transforms | predicate).state.fast is None
