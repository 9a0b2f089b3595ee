"""Masks in every form of Scylla's and Cassandra's records: planted values never occur in the encoded bytes.

Hypothesis: columns, rules, forms, writes (inserts, updates, nulls, images, snapshots), masks of the source and of MaskColumns,
JSON with and without schemas, Avro.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from connectors.api import SourceRecord
from connectors.cassandra.config import settings as cassandra_config
from connectors.cassandra.events import build_events as cassandra_builder
from connectors.cql.mutations.definition import CqlColumn as CassandraColumn
from connectors.cql.mutations.definition import make_definition
from connectors.cql.mutations.encode import write_update
from connectors.cql.types import CqlType, parse_type
from connectors.errors import ConfigInvalid, Fatal, Skippable
from connectors.formats import partition_update_codec, ums
from connectors.formats.masks.masking import Masks, parse_rules
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    ClusteringBound,
    PartitionUpdate,
    RangeDeletion,
    UpdateDeletion,
    UpdateRow,
    UpdateSource,
)
from connectors.scylla.config import settings as scylla_config
from connectors.scylla.events import build_events as scylla_builder
from connectors.scylla.model import INSERT, POSTIMAGE, PREIMAGE, ROW_DELETE, UPDATE, StreamRun
from tests.support.settings import cassandra_events, scylla_events
from tests.unit.connectors.cassandra.events.cassandra_event_world import NOW, TABLE_ID, where
from tests.unit.connectors.scylla.events.making import row
from tests.unit.connectors.scylla.events_forms.model import OFFSET, PARTITION, version_of
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.schema import AvroSettings
from worker.converters.json import JsonConverter
from worker.transforms.pipeline import build_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import BadRecord
    from connectors.schema import Schema

FROZEN = CqlType("udt", (parse_type("text"),), frozen=True, keyspace="ks", udt_name="w", field_names=("inside",))
#: name -> (type, kind, position, planted value as the reader decodes it).
COLUMNS: dict[str, tuple[Any, str, int, Any]] = {
    "pk": (parse_type("text"), "partition_key", 0, "pkpkpkpk-planted@mail"),
    "ck": (parse_type("text"), "clustering", 0, "ckckckck-planted@mail"),
    "st": (parse_type("text"), "static", -1, "stststst-planted@mail"),
    "mail": (parse_type("text"), "regular", -1, "mailmailmailmail-planted@mail"),
    "num": (parse_type("bigint"), "regular", -1, 918_273_645_546),
    "raw": (parse_type("blob"), "regular", -1, b"rawrawrawraw-planted"),
    "price": (parse_type("decimal"), "regular", -1, "77615141.3121"),
    "place": (FROZEN, "regular", -1, {"inside": "placeplaceplaceplace-planted"}),
    "tags": (parse_type("set<text>"), "regular", -1, ["tagstagstagstags-planted"]),
    "at": (parse_type("timestamp"), "regular", -1, 1_776_151_413_121),
}
PLANTED = {
    name: value["inside"] if name == "place" else value[0] if name == "tags" else value
    for name, (_, _, _, value) in COLUMNS.items()
}
SCYLLA = version_of([(name, kind, part, position) for name, (kind, part, position, _) in COLUMNS.items()])
CASSANDRA = make_definition(
    "ks",
    "t",
    TABLE_ID,
    [
        CassandraColumn(name, kind, part, position)  # type: ignore[arg-type]
        for name, (kind, part, position, _) in COLUMNS.items()
    ],
    cdc=True,
)
SCYLLA_FORMS: dict[str, dict[str, Any]] = {
    "legacy": {"output_format": "legacy", "legacy_columns": "all", "preimages": True},
    "advanced": {
        "output_format": "advanced",
        "include_before": "full",
        "include_after": "full",
        "key_placement": frozenset({"kafka-key", "payload-after", "payload-before", "payload-key"}),
    },
    "delta": {"output_format": "advanced", "collections_mode": "delta", "deletes_mode": "events"},
    "ums": {"output_format": "ums"},
    "partition-update": {"output_format": "partition-update"},
}
CASSANDRA_FORMS: dict[str, dict[str, Any]] = {
    "debezium": {"output_format": "debezium", "decimals": "string"},
    "plain debezium": {"output_format": "debezium", "decimals": "string", "extended": False},
    "partition-update": {"output_format": "partition-update"},
    "raw": {"output_format": "partition-update-raw"},
}
TYPES = st.sampled_from(
    [
        {"type": "default"},
        {"type": "replace", "replacement": "7"},
        {"type": "chars", "length": "5"},
        {"type": "truncate", "length": "3"},
        {"type": "regex", "regex": ".+", "replacement": "gone"},
        {"type": "hash"},
        {"type": "md5", "salt.secret": "s"},
        {"type": "murmur"},
        {"type": "murmur32", "nulls": "mask"},
        {"type": "hash", "salt.field": "pk"},
        {"type": "hash", "salt.field": "mail"},
    ]
)
NAMES = st.sets(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3)


def pattern(names: set[str]) -> str:
    return rf"ks\.t\.({'|'.join(sorted(names))})"


def rules(names: set[str], options: dict[str, str]) -> Masks:
    return parse_rules(
        {
            "mask.rules": "m",
            "mask.m.columns": pattern(names),
            **{f"mask.m.{name}": value for name, value in options.items()},
        }
    )


def scylla_records(form: str, masks: Masks) -> list[SourceRecord]:
    values = {name: value for name, (_, _, _, value) in COLUMNS.items()}
    keys = {name: values[name] for name in ("pk", "ck")}
    cells = {name: value for name, value in values.items() if name != "st"}
    rows = [
        row(SCYLLA, 1, 0, INSERT, end=True, **cells),
        row(SCYLLA, 2, 0, PREIMAGE, **cells),
        row(SCYLLA, 2, 1, UPDATE, **keys, mail=values["mail"], deleted_num=True),
        row(SCYLLA, 2, 2, POSTIMAGE, end=True, **{**cells, "num": None}),
        row(SCYLLA, 3, 0, UPDATE, end=True, pk=values["pk"], st=values["st"]),
        row(SCYLLA, 4, 0, PREIMAGE, **cells),
        row(SCYLLA, 4, 1, ROW_DELETE, end=True, **keys),
    ]
    out: list[SourceRecord] = []
    builder = scylla_builder(SCYLLA, scylla_events(topic_prefix="p", masks=masks, **SCYLLA_FORMS[form]), lambda: 5.0)
    bad: list[BadRecord] = []
    builder.feed(StreamRun(PARTITION, OFFSET, rows, None, last=True), out, bad)
    builder.snapshot_row(
        PARTITION, OFFSET, [values[column.name] for column in SCYLLA.columns], 1_790_000_000_000_000, out, bad
    )
    assert bad == []
    assert len(out) >= 2
    return out


def cassandra_records(form: str, masks: Masks) -> list[SourceRecord]:
    def cells(*names: str) -> tuple[Cell, ...]:
        return tuple(
            Cell(name, value[0], True, NOW) if name == "tags" else Cell(name, None, value, NOW)
            for name, (_, _, _, value) in COLUMNS.items()
            if name in names
        )

    source = UpdateSource(connector="cassandra", cluster="c", keyspace="ks", table="t")
    clustering = (COLUMNS["ck"][3],)
    deletion = UpdateDeletion(NOW.write_time, 1_790_000_000)
    everything = cells(*(name for name, (_, kind, _, _) in COLUMNS.items() if kind == "regular"))
    rows = (
        UpdateRow(clustering, NOW, None, everything),
        UpdateRow(clustering, None, None, (Cell("mail", None, None, CellStamp(NOW.write_time)),)),
    )
    key = (COLUMNS["pk"][3],)
    updates = [
        PartitionUpdate(source=source, key=key, write_time=NOW.write_time, rows=(update_row,)) for update_row in rows
    ]
    updates.append(
        PartitionUpdate(
            source=source,
            key=key,
            write_time=NOW.write_time,
            static=UpdateRow((), None, None, cells("st")),
            deletion=deletion,
        )
    )
    settings = cassandra_events(topic_prefix="c", masks=masks, **CASSANDRA_FORMS[form])
    builder = cassandra_builder(CASSANDRA, 7, settings)
    out: list[SourceRecord] = []
    for update in updates:
        data = write_update(update, CASSANDRA, 7)
        assert builder.update(data, 0, len(data), where(), out) == len(data)
        builder.add_snapshot_rows(update, {}, {}, out)
    assert len(out) >= len(updates)
    return out


@lru_cache(maxsize=256)
def encoders(schema: Schema | None, *, is_key: bool) -> tuple[Callable[[Any], bytes | None], ...]:
    """Of JSON with and without schemas."""
    return tuple(
        JsonConverter({"schemas.enable": schemas}, is_key=is_key).encoder("t", schema) for schemas in ("true", "false")
    )


@lru_cache(maxsize=256)
def avro_encoder(schema: Schema) -> Callable[[Any], bytes | None]:
    return compile_avro(schema, AvroSettings(), b"")


def encoded(record: SourceRecord) -> bytes:
    """All bytes that any converter makes of a record."""
    parts: list[bytes] = []

    def write(value: Any, schema: Schema | None, *, is_key: bool) -> None:
        if isinstance(value, bytes):
            parts.append(value)
            return
        parts.extend(encode(value) or b"" for encode in encoders(schema, is_key=is_key))
        if value is not None and schema is not None:
            parts.append(avro_encoder(schema)(value) or b"")

    write(record.key, record.key_schema, is_key=True)
    write(record.value, record.value_schema, is_key=False)
    return b"\n".join(parts)


def forms_of(value: Any) -> list[bytes]:
    """How a planted value may stand in bytes."""
    if isinstance(value, int):
        zigzag, varint = value << 1, bytearray()
        while zigzag > 0x7F:
            varint.append(zigzag & 0x7F | 0x80)
            zigzag >>= 7
        return [
            str(value).encode(),
            bytes((*varint, zigzag)),
            value.to_bytes(8, "big"),
            ums.datetime_text(value * 1000).encode(),
        ]
    data = value if isinstance(value, bytes) else str(value).encode()
    # Base64 depends on where the value begins; the first six bytes that are left tell planted values apart.
    return [data, data.hex().encode(), *(base64.b64encode(data[cut:])[:8] for cut in range(3))]


def leaks(record: SourceRecord, names: set[str]) -> list[str]:
    data = encoded(record)
    return [name for name in names if any(form in data for form in forms_of(PLANTED[name]))]


@settings(max_examples=100, deadline=None)
@given(NAMES, TYPES, st.sampled_from(sorted(SCYLLA_FORMS)))
def test_no_form_of_scylla_shows_a_masked_value(names: set[str], options: dict[str, str], form: str) -> None:
    try:
        records = scylla_records(form, rules(names, options))
    except (ConfigInvalid, Skippable):
        assume(False)  # refused, so nothing comes out
    for record in records:
        assert leaks(record, names) == [], (form, options, record)


@settings(max_examples=100, deadline=None)
@given(NAMES, TYPES, st.sampled_from(sorted(CASSANDRA_FORMS)))
def test_no_form_of_cassandra_shows_a_masked_value(names: set[str], options: dict[str, str], form: str) -> None:
    try:
        records = cassandra_records(form, rules(names, options))
    except (ConfigInvalid, Skippable):
        assume(False)  # refused
    for record in records:
        assert leaks(record, names) == [], (form, options, record)


@settings(max_examples=100, deadline=None)
@given(
    NAMES,
    TYPES,
    st.sampled_from(
        [
            *(("scylla", form) for form in sorted(SCYLLA_FORMS)),
            *(("cassandra", form) for form in sorted(CASSANDRA_FORMS)),
        ]
    ),
)
def test_transforms_show_no_masked_value_either(
    names: set[str], options: dict[str, str], source: tuple[str, str]
) -> None:
    kind, form = source
    records = (scylla_records if kind == "scylla" else cassandra_records)(form, Masks())
    transform_options = {
        "columns": pattern(names),
        "mask": options["type"],
        **{name: value for name, value in options.items() if name != "type"},
    }
    pipeline = build_pipeline(
        {
            "transforms": "v,k",
            "transforms.v.type": "MaskColumns$Value",
            "transforms.k.type": "MaskColumns$Key",
            **{f"transforms.{alias}.{name}": value for alias in "vk" for name, value in transform_options.items()},
        }
    )
    for record in records:
        try:
            masked = pipeline.apply(record)
        except (Fatal, Skippable):
            continue  # refused
        assert masked is not None
        assert leaks(masked, names) == [], (source, options, masked)


@pytest.mark.parametrize("form", sorted(SCYLLA_FORMS))
def test_what_can_be_masked_is_masked_in_every_form_of_scylla(form: str) -> None:
    names = {"st", "mail", "num", "raw", "price", "place", "at"}
    plain, masked = scylla_records(form, Masks()), scylla_records(form, rules(names, {"type": "hash"}))
    assert len(plain) == len(masked)
    shown = {name for record in plain for name in leaks(record, names)}
    assert shown >= names - {"st"}, "the values were planted"
    assert not {name for record in masked for name in leaks(record, names)}


@pytest.mark.parametrize("form", ["debezium", "plain debezium", "partition-update"])
def test_what_can_be_masked_is_masked_in_the_forms_of_cassandra(form: str) -> None:
    names = {"mail", "num", "raw", "price", "place", "at"}
    plain, masked = cassandra_records(form, Masks()), cassandra_records(form, rules(names, {"type": "hash"}))
    assert {name for record in plain for name in leaks(record, names)} >= names
    assert not {name for record in masked for name in leaks(record, names)}


def test_a_cell_of_scylla_that_was_set_to_null_stays_null() -> None:
    update = scylla_records("legacy", rules({"num", "mail"}, {"type": "md5"}))[1]
    after = update.value["after"]
    assert after["num"] == {"value": None}
    assert set(after["mail"]) == {"value"}
    assert len(after["mail"]["value"]) == 32
    masked = scylla_records("legacy", rules({"num"}, {"type": "md5", "nulls": "mask"}))[1].value["after"]
    assert len(masked["num"]["value"]) == 32
    assert masked["raw"] is None, "a cell that was not written has no value to be masked"


def test_partition_updates_say_the_type_that_a_masked_column_has() -> None:
    plain = cassandra_records("partition-update", Masks())[0]
    masked = cassandra_records("partition-update", rules({"num", "mail"}, {"type": "md5"}))[0]
    assert plain.value_schema is not None
    assert masked.value_schema is not None
    row = masked.value_schema.field("rows").schema.value_schema  # type: ignore[union-attr]
    cells = {field.name: field.schema for field in row.field("cells").schema.fields}  # type: ignore[union-attr]
    assert {cells[name].parameter("cql.type") for name in ("num", "mail")} == {"text"}
    assert cells["num"].parameter("millrace.masked") == "m"
    assert masked.value["source"]["schema"] != plain.value["source"]["schema"], "another type is another definition"
    decoded = partition_update_codec.decode_update(masked.value, masked.value_schema)
    assert decoded.source.schema == masked.value["source"]["schema"]
    assert {cell.column: type(cell.value) for cell in decoded.rows[0].cells}["num"] is str
    same = cassandra_records("partition-update", rules({"mail"}, {"type": "md5"}))[0]
    assert same.value["source"]["schema"] == plain.value["source"]["schema"], "text stays text"


@pytest.mark.parametrize(
    ("names", "options", "form", "word"),
    [
        ({"pk"}, {"type": "hash"}, "partition-update", "primary key"),
        ({"ck"}, {"type": "hash"}, "partition-update", "primary key"),
        ({"tags"}, {"type": "hash"}, "partition-update", "not frozen"),
        ({"mail"}, {"type": "hash", "nulls": "mask"}, "partition-update", "nulls"),
        ({"mail"}, {"type": "hash", "salt.field": "num"}, "partition-update", "salt.field"),
        ({"pk"}, {"type": "default"}, "legacy", "one key"),
        ({"pk"}, {"type": "default"}, "ums", "one key"),
        ({"ck"}, {"type": "hash"}, "delta", "clustering"),
        ({"tags"}, {"type": "hash"}, "delta", "scylla.collections.mode"),
    ],
)
def test_what_scylla_refuses(names: set[str], options: dict[str, str], form: str, word: str) -> None:
    with pytest.raises(ConfigInvalid, match=word):
        scylla_records(form, rules(names, options))


@pytest.mark.parametrize(
    ("names", "options", "form", "word"),
    [
        ({"mail"}, {"type": "hash"}, "raw", "output.format=partition-update"),
        ({"pk"}, {"type": "hash"}, "partition-update", "primary key"),
        ({"ck"}, {"type": "hash"}, "debezium", "clustering"),
        ({"tags"}, {"type": "hash"}, "debezium", "cassandra.debezium.extended"),
    ],
)
def test_what_cassandra_refuses(names: set[str], options: dict[str, str], form: str, word: str) -> None:
    with pytest.raises(ConfigInvalid, match=word):
        cassandra_records(form, rules(names, options))


def transformed_range_deletion(clustering: str, columns: str) -> SourceRecord | None:
    """The event of a deleted range in Debezium's form, behind a transform that masks columns."""
    table = make_definition(
        "ks",
        "t",
        TABLE_ID,
        [
            CassandraColumn("pk", parse_type("text"), "partition_key", 0),
            CassandraColumn(clustering, parse_type("text"), "clustering", 0),
            CassandraColumn("mail", parse_type("text"), "regular", -1),
        ],
        cdc=True,
    )
    update = PartitionUpdate(
        source=UpdateSource(connector="cassandra", cluster="c", keyspace="ks", table="t"),
        key=("k",),
        write_time=NOW.write_time,
        ranges=(
            RangeDeletion(
                ClusteringBound(("ckckckck-planted@mail",)),
                ClusteringBound(),
                UpdateDeletion(NOW.write_time, 1_790_000_000),
            ),
        ),
    )
    builder = cassandra_builder(table, 7, cassandra_events(topic_prefix="c", output_format="debezium"))
    data = write_update(update, table, 7)
    out: list[SourceRecord] = []
    builder.update(data, 0, len(data), where(), out)
    pipeline = build_pipeline(
        {
            "transforms": "v",
            "transforms.v.type": "MaskColumns$Value",
            "transforms.v.mask": "hash",
            "transforms.v.columns": columns,
        }
    )
    return pipeline.apply(out[0])


@pytest.mark.parametrize(
    ("clustering", "columns"), [("ck", r"ks\.t\.ck"), ("MyCk", r"ks\.t\.MyCk"), ('c"k', r'ks\.t\.c"k')]
)
def test_a_range_deletion_that_names_a_masked_column_is_refused_by_the_transform(clustering: str, columns: str) -> None:
    with pytest.raises(Fatal, match="clustering column"):
        transformed_range_deletion(clustering, columns)


def test_a_range_deletion_of_another_column_passes_the_transform() -> None:
    record = transformed_range_deletion("MyCk", r'ks\.t\.(mail|"MyCk")')
    assert record is not None
    assert record.value["after"]["_range_start"]["values"][0]["name"] == '"MyCk"'


def test_an_update_without_a_schema_is_refused_by_the_transform() -> None:
    pipeline = build_pipeline(
        {
            "transforms": "v",
            "transforms.v.type": "MaskColumns$Value",
            "transforms.v.mask": "hash",
            "transforms.v.columns": ".*mail",
        }
    )
    for record in (cassandra_records("partition-update", Masks())[0], cassandra_records("raw", Masks())[0]):
        with pytest.raises(Fatal, match="has no schema"):
            pipeline.apply(SourceRecord({}, {}, "t", record.value))


CASSANDRA_LEAST = {
    "cassandra.hosts": "h",
    "topic.prefix": "shop",
    "cdc.raw.directories": "cass-1=/var/lib/cassandra/cdc_raw",
}
SCYLLA_LEAST = {"topic.prefix": "p", "scylla.cluster.ip.addresses": "127.0.0.1:9042", "scylla.table.names": "ks.t"}
GOOD = {"mask.rules": "m", "mask.m.columns": "ks.t.mail", "mask.m.type": "hash"}


@pytest.mark.parametrize(
    ("more", "names"),
    [
        (GOOD, []),
        ({**GOOD, "mask.m.type": "nonsense"}, ["mask.m.type"]),
        ({"mask.m.type": "hash"}, ["mask.m.type"]),
        ({"column.mask.with.3.chars": "ks.t.mail"}, ["column.mask.with.3.chars"]),
    ],
)
def test_rules_are_checked_by_both_connectors(more: dict[str, str], names: list[str]) -> None:
    cassandra = cassandra_config.find_problems(cassandra_config.CONFIG.parse({**CASSANDRA_LEAST, **more}))
    scylla = scylla_config.find_problems(scylla_config.CONFIG.parse({**SCYLLA_LEAST, **more}))
    assert [problem.name for problem in cassandra] == [problem.name for problem in scylla] == names


def test_the_raw_form_with_rules_is_refused_at_validation() -> None:
    config = cassandra_config.CONFIG.parse({**CASSANDRA_LEAST, **GOOD, "output.format": "partition-update-raw"})
    (problem,) = cassandra_config.find_problems(config)
    assert problem.name == "output.format"
    assert "output.format=partition-update" in problem.message
