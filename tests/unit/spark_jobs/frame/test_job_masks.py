"""Masks of jobs: what is refused, rows in Arrow, the materializer's events, bad records."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import md5
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from connectors.cql.types import parse_type
from connectors.errors import Fatal
from connectors.formats.masks.masking import parse_rules
from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateRow
from spark_jobs.config import job_files as config
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.rows.masked_frames import NoRecords, mask_batch, schema_of
from spark_jobs.rows.masks import column_masks, table_names
from spark_jobs.sources.records.columns import arrow_type
from spark_jobs.sources.records.kinds import sample_of
from tests.support.materializer import Bench, Column, Written
from tests.support.materializer import source as update_source

MASK = {"mask.rules": "m", "mask.m.columns": r"(.*\.)?(shop|ks)\.(customers|t)\.(mail|num)", "mask.m.type": "md5"}
JOB = {
    "name": "j",
    "kafka.bootstrap.servers": "b:9092",
    "source.topics": "t",
    "source.format": "debezium",
    "sink.type": "console",
}
COLUMNS: dict[str, tuple[t.DataType, Any]] = {
    "id": (t.LongType(), 918_273_645_546),
    "mail": (t.StringType(), "planted@mail"),
    "short": (t.ShortType(), 12_345),
    "part": (t.DoubleType(), 77_615_141.3121),
    "price": (t.DecimalType(38, 4), Decimal("77615141.3121")),
    "raw": (t.BinaryType(), b"planted-raw"),
    "day": (t.DateType(), date(1987, 6, 5)),
    "yes": (t.BooleanType(), True),
    "at": (t.TimestampType(), datetime(1987, 6, 5, 4, 3, 2, 1, tzinfo=UTC)),
    "tags": (t.ArrayType(t.StringType()), ["planted-tag"]),
    "map": (t.MapType(t.StringType(), t.StringType()), [("k", "planted-map")]),
    "place": (t.StructType([t.StructField("street", t.StringType())]), {"street": "planted-street"}),
}


def complaints(**more: str) -> list[str]:
    checked, problems = config.check_job({**JOB, **{name.replace("__", "."): value for name, value in more.items()}})
    assert (checked is None) == bool(problems)
    return [problem.name for problem in problems]


def test_rules_are_options_of_every_job() -> None:
    assert complaints(**MASK) == []
    assert complaints(**{**MASK, "mask.m.type": "nonsense"}) == ["mask.m.type"]
    assert complaints(**{"mask.rule": "m"}) == ["mask.rule"]
    assert complaints(**{"column.mask.with.3.chars": "a.b.c"}) == ["column.mask.with.3.chars"]


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"source.format": "partition-update"}, "source.format"),
        ({"sink.console.content": "records"}, "sink.console.content"),
        ({"sink.type": "kafka", "sink.kafka.topic": "o", "sink.kafka.content": "records"}, "sink.kafka.content"),
    ],
)
def test_what_shows_records_as_they_are_is_refused(more: dict[str, str], name: str) -> None:
    assert complaints(**more) == []
    assert complaints(**more, **MASK) == [name]


def test_a_sink_of_ones_own_gets_no_raw_records() -> None:
    with pytest.raises(Fatal, match=r"Batch.raw"):
        NoRecords().select("value")


@pytest.mark.parametrize(
    ("namespace", "names"),
    [
        ("shop.customers", {"shop.customers"}),
        ("mysql.db.shop.customers.0.0.0", {"shop.customers"}),
        ("prefix.shop.customers", {"prefix.shop.customers", "shop.customers"}),
    ],
)
def test_names_of_tables(namespace: str, names: set[str]) -> None:
    assert names <= set(table_names(namespace))


def batch() -> pa.RecordBatch:
    fields = [pa.field(name, arrow_type(kind)) for name, (kind, _) in COLUMNS.items()]
    return pa.RecordBatch.from_arrays(
        [pa.array([value, None], field.type) for field, (_, value) in zip(fields, COLUMNS.values(), strict=True)],
        schema=pa.schema(fields),
    )


@settings(max_examples=150, deadline=None)
@given(
    st.sets(st.sampled_from(sorted(COLUMNS)), min_size=1),
    st.sampled_from(
        [
            {"type": "default"},
            {"type": "hash"},
            {"type": "md5", "nulls": "mask"},
            {"type": "murmur32"},
            {"type": "hash", "salt.field": "id"},
            {"type": "regex", "regex": "(?s).+", "replacement": "gone"},
        ]
    ),
)
def test_masked_columns_hold_nothing_of_their_values_whatever_their_type(
    names: set[str], options: dict[str, str]
) -> None:
    masks = parse_rules(
        {
            "mask.rules": "m",
            "mask.m.columns": rf"shop\.customers\.({'|'.join(names)})",
            **{f"mask.m.{name}": value for name, value in options.items()},
        },
        debezium=False,
    )
    masked_columns = column_masks(
        [(name, schema_of(kind), False) for name, (kind, _) in COLUMNS.items()], ("shop.customers",), masks
    )
    assert set(masked_columns) == names
    types = {
        name: t.StringType() if str(masked_columns[name].schema.type).lower().endswith("string") else COLUMNS[name][0]
        for name in names
    }
    plain = batch()
    masked = mask_batch(plain, masked_columns, types)
    for name in COLUMNS:
        before, after = plain.column(name).to_pylist(), masked.column(name).to_pylist()
        if name not in names:
            assert before == after
            continue
        assert after[0] != before[0]
        assert after[0] is not None
        assert "planted" not in str(after[0])
        assert (after[1] is None) is ("nulls" not in options)


def test_a_key_column_may_only_be_hashed() -> None:
    for kind, works in (("md5", True), ("default", False)):
        masks = parse_rules({**MASK, "mask.m.type": kind}, debezium=False)
        columns = [("mail", schema_of(t.StringType()), True)]
        if works:
            assert set(column_masks(columns, ("shop.customers",), masks)) == {"mail"}
        else:
            with pytest.raises(Fatal, match="one key"):
                column_masks(columns, ("shop.customers",), masks)


TABLE = [
    Column("pk", parse_type("text"), "partition_key", 0),
    Column("mail", parse_type("text"), "regular"),
    Column("num", parse_type("bigint"), "regular"),
    Column("other", parse_type("int"), "regular"),
]


@pytest.mark.parametrize(
    ("output", "columns"),
    [
        ("debezium", r"ks\.t\.(mail|num)"),
        ("ums", r"ks\.t\.(mail|num)"),
        ("yelp", r"ks\.t\.(mail|num)"),
        ("debezium", r"ks\.t\.(pk|mail|num)"),
        ("ums", r"ks\.t\.(pk|mail|num)"),
        ("yelp", r"ks\.t\.(pk|mail|num)"),
    ],
)
def test_the_materializers_events_are_masked_and_its_merge_is_not(output: str, columns: str) -> None:
    written = Written(TABLE)
    bench = Bench(
        output_format=output,
        input_schemas=(written.text,),
        masks=tuple(sorted({**MASK, "mask.m.columns": columns}.items())),
    )

    def update(time: int, **cells: Any) -> PartitionUpdate:
        return PartitionUpdate(
            source=update_source(),
            key=("planted-key",),
            write_time=time,
            rows=(
                UpdateRow(
                    (),
                    CellStamp(time),
                    None,
                    tuple(Cell(name, None, value, CellStamp(time)) for name, value in cells.items()),
                ),
            ),
        )

    emitted: list[Any] = []
    for offset, change in enumerate(
        (
            update(1_000, mail="planted@mail", num=918_273_645_546, other=1),
            update(2_000, mail="planted@mail2", other=2),
            update(3_000, num=None),
        )
    ):
        bench.engine.apply(written.record(change, offset), bench.store, emitted)
    data = b"\n".join((record.key or b"") + (record.value or b"") for record in emitted)
    assert len(emitted) == 3
    for plain in (b"planted@mail", b"918273645546", *((b"planted-key",) if "pk" in columns else ())):
        assert plain not in data
    for value in ("planted@mail", "planted@mail2", "918273645546", *(("planted-key",) if "pk" in columns else ())):
        assert md5(value.encode(), usedforsecurity=False).hexdigest().encode() in data


def test_bad_records_of_a_job_with_masks_show_nothing(caplog: pytest.LogCaptureFixture) -> None:
    tolerant = DeadLetters("j", tolerant=True, masked=True)
    tolerant.report("t", 0, 1, b"planted", b"planted", ValueError("planted is no number"))
    assert "t-0 offset 1" in caplog.text
    assert "planted" not in caplog.text
    with pytest.raises(Fatal, match="t-0 offset 1") as caught:
        DeadLetters("j", tolerant=False, masked=True).report("t", 0, 1, None, b"planted", "planted is no number")
    assert "planted" not in str(caught.value)
    with caplog.at_level(logging.ERROR):
        tolerant.report("t", 0, 2, None, b"masked row", Fatal("the target refuses it"), stage="TASK_PUT")
    assert "the target refuses it" in caplog.text


@pytest.mark.parametrize(
    ("data", "encoding", "sample"),
    [
        (b"\0\0\0\0\7planted", "avro", b"\0\0\0\0\7"),
        (b"planted", "bytes", b"null"),
        (b'{"id":"planted"}', "json", b'{"id": null}'),
        (b'{"schema":{"a":1},"payload":{"id":"planted"}}', "json", b'{"schema":{"a":1},"payload":{"id": null}}'),
        (b'{ "payload": {"id":"planted"}, "schema": {"a": 1}}', "json", b'{"schema":{"a": 1},"payload":{"id": null}}'),
    ],
)
def test_what_a_checkpoint_keeps_of_a_record_has_no_values(data: bytes, encoding: str, sample: bytes) -> None:
    assert sample_of(data, encoding) == sample
