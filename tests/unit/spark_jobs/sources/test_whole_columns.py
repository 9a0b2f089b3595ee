"""Columns that are made at once hold what their values hold one by one."""

from __future__ import annotations

import base64
import re
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Skippable
from connectors.formats.order_number import MEMBERS, order_number
from connectors.schema import decimal
from spark_jobs.sources.records.columns import make_array_builder, make_value_fixer
from spark_jobs.sources.records.reader import EnvelopeSource
from spark_jobs.sources.records.system_columns import system_arrays
from spark_jobs.sources.types import spark_type
from worker.converters.javatext import integer_bytes

UNSCALED = st.one_of(
    st.integers(-(10**6), 10**6),
    st.integers(-(10**38) + 1, 10**38 - 1),
    st.sampled_from([10**38 - 1, 1 - 10**38, 10**38, -(10**38), 1 << 127, -(1 << 127), 1 << 200]),
)
STRINGS = st.one_of(st.none(), UNSCALED.map(lambda number: base64.b64encode(integer_bytes(number)).decode()))
NUMBERS = st.one_of(st.none(), st.integers(-1000, 1000), st.just(""), st.just("no Base64"), st.just('","'))


@given(st.one_of(st.lists(STRINGS), st.lists(st.one_of(STRINGS, NUMBERS))), st.integers(0, 4))
def test_decimals_of_a_column_are_those_of_its_values(values: list[Any], scale: int) -> None:
    schema = decimal(scale, optional=True)
    kind = spark_type(schema)
    fix = make_value_fixer(schema, "c")
    assert fix is not None
    try:
        expected = [None if value is None else fix(value) for value in values]
        array = pa.array(expected, pa.decimal128(38, scale))
    except (Skippable, ValueError) as error:
        with pytest.raises((Skippable, ValueError), match=re.escape(str(error))):
            make_array_builder(schema, kind, "c")(values)
        return
    built = make_array_builder(schema, kind, "c")(values)
    built.validate(full=True)
    assert built.equals(array)


SOURCES = st.builds(
    EnvelopeSource,
    connector=st.sampled_from([None, "mysql", "mysql", "mysql", "scylla"]),
    ums_id=st.sampled_from([None, None, None, 7]),
    lsn=st.sampled_from([None, None, None, 9]),
    file=st.sampled_from(["b.000003", "b.000003", "b.000003", "b.000004", "b", "", None]),
    pos=st.sampled_from([4, 500, 10**12 - 1, None, -1]),
    row=st.sampled_from([None, 0, 1]),
    ts_us=st.sampled_from([None, 11]),
)
#: As a batch of MySQL's has them.
REGULAR = st.builds(
    EnvelopeSource,
    connector=st.just("mysql"),
    file=st.just("b.000003"),
    pos=st.integers(4, 10**6),
    row=st.one_of(st.none(), st.integers(0, 3)),
)


@given(st.one_of(st.lists(REGULAR, min_size=1), st.lists(SOURCES, min_size=1)))
def test_order_numbers_of_a_batch_are_those_of_its_changes(sources: list[EnvelopeSource]) -> None:
    count = len(sources)
    records = pa.RecordBatch.from_arrays(
        [
            pa.array(["t"] * count),
            pa.array([3] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array([5] * count, pa.timestamp("us", tz="UTC")),
        ],
        names=["topic", "partition", "offset", "timestamp"],
    )
    try:
        numbers = [order_number(*attrgetter(*MEMBERS)(source)) for source in sources]
    except ValueError:
        with pytest.raises(ValueError, match="no order number"):
            system_arrays(records, ["i"] * count, sources)
        return
    expected = [offset if number is None else number for offset, number in enumerate(numbers)]
    assert system_arrays(records, ["i"] * count, sources)[0].to_pylist() == expected
