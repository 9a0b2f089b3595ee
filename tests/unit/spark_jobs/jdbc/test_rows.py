"""Rows in Arrow: reduction, COPY text and literals, read back by parsers written here from the manuals."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.sinks.jdbc.rows import (
    at_offset_boundary,
    clock_text,
    copy_buffer,
    has_nanoseconds,
    literal_rows,
    select_newest,
    split_statements,
    to_hexadecimal,
    uuid_text,
    with_uuids,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = st.text(st.characters(codec="utf-8")) | st.text("\\\n\r\t'\"NxX.0,()\0", max_size=8)
ROWS = st.lists(
    st.tuples(
        st.none() | TEXT,
        st.none() | st.binary(max_size=9),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.booleans(),
    ),
    max_size=12,
)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


def placed(offsets: list[int], **columns: pa.Array) -> pa.Table:
    return pa.table(
        {
            **columns,
            "kafka_topic_": pa.array(["t"] * len(offsets), pa.string()),
            "kafka_partition_": pa.array([0] * len(offsets), pa.int32()),
            "kafka_offset_": pa.array(offsets, pa.int64()),
        }
    )


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    kinds = (pa.string(), pa.binary(), pa.int64(), pa.bool_())
    return pa.table(
        {
            name: pa.array([row[number] for row in rows], kind)
            for number, (name, kind) in enumerate(zip("abcd", kinds, strict=True))
        }
    )


def unescaped(field: str) -> str | None:
    """A field of COPY's text format. Source: PostgreSQL's manual, COPY."""
    if field == "\\N":
        return None
    result, letters = "", iter(field)
    for letter in letters:
        result += _ESCAPED[next(letters)] if letter == "\\" else letter
    return result


@settings(deadline=None)  # the first call loads libraries
@given(ROWS, st.integers(0, 3))
def test_copy_text_reads_back(rows: list[tuple[Any, ...]], skipped: int) -> None:
    data = table(rows).slice(skipped)
    text = copy_buffer(data, list("abcd")).to_pybytes().decode()
    lines = text.split("\n")
    assert lines.pop() == ""
    assert "\r" not in text
    read = [tuple(unescaped(field) for field in line.split("\t")) for line in lines]
    assert read == [
        (
            a,
            None if b is None else "\\x" + b.hex(),
            None if c is None else str(c),
            None if d is None else str(d).lower(),
        )
        for a, b, c, d in rows[skipped:]
    ]


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(4 * 10**15), 4 * 10**15), max_size=8),
    st.integers(0, 2),
)
def test_times_of_the_day_as_text(values: list[int | None], skipped: int) -> None:
    read: list[int | None] = []
    for text in clock_text(pa.array(values, pa.int64()).slice(skipped)).to_pylist():
        if text is None:
            read.append(None)
            continue
        hours, minutes, seconds = text.lstrip("-").split(":")
        assert (len(minutes), len(seconds), len(hours) >= 2, int(minutes) < 60) == (2, 9, True, True)
        micros = (int(hours) * 60 + int(minutes)) * 60 * 10**6 + int(seconds.replace(".", ""))
        read.append(-micros if text.startswith("-") else micros)
    assert read == [
        None if value is None else abs(value) // 1000 * (-1 if value < 0 else 1) for value in values[skipped:]
    ]


@given(st.lists(st.none() | st.uuids() | st.text("0aA-{}", max_size=40), max_size=8), st.integers(0, 2), st.data())
def test_a_uuid_has_one_spelling(values: list[UUID | str | None], skipped: int, data: st.DataObject) -> None:
    forms: list[Callable[[UUID], str]] = [
        str,
        lambda value: str(value).upper(),
        lambda value: value.hex,
        lambda value: "{" + str(value).upper() + "}",
    ]
    spellings = [data.draw(st.sampled_from(forms))(value) if isinstance(value, UUID) else value for value in values]
    for kind in (pa.string(), pa.large_string()):
        spelled = uuid_text(pa.array(spellings, kind).slice(skipped)).to_pylist()
        for value, text in zip(values[skipped:], spelled, strict=True):
            if isinstance(value, UUID) or value is None:
                assert text == (None if value is None else str(value))
            else:
                assert text in {value, _spelled(value)}


def _spelled(text: str) -> str | None:
    digits = "".join(value for value in text.lower() if value not in "-{}")
    return str(UUID(digits)) if len(digits) == 32 else None


def test_the_newest_row_of_a_uuid_in_two_spellings_is_kept() -> None:
    upper = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
    rows = placed([0, 1, 2], id=pa.array([upper, upper.lower(), None]), ums_id_=pa.array([1, 2, 3], pa.int64()))
    kept = select_newest(with_uuids(rows, ["id"]), ["id"])
    assert kept.select(["id", "ums_id_"]).to_pylist() == [
        {"id": upper.lower(), "ums_id_": 2},
        {"id": None, "ums_id_": 3},
    ]


def literals(text: str) -> list[list[Any]]:
    """Rows of literals as MySQL's lexer reads them with backslash escapes on. Source: MariaDB's manual, string literals."""
    rows: list[list[Any]] = []
    position = 0
    while position < len(text):
        assert text[position] == "(", text[position:]
        position += 1
        row: list[Any] = []
        while True:
            value, position = _literal(text, position)
            row.append(value)
            position += 1
            if text[position - 1] == ")":
                break
            assert text[position - 1] == ","
        rows.append(row)
        assert text[position : position + 1] in (",", "")
        position += 1
    return rows


def _literal(text: str, position: int) -> tuple[Any, int]:
    if text.startswith("x'", position):
        end = text.index("'", position + 2)
        return binascii.unhexlify(text[position + 2 : end]), end + 1
    if text[position] == "'":
        position += 1
        value = ""
        while text[position] != "'":
            if text[position] == "\\":
                position += 1
                value += "\0" if text[position] == "0" else text[position]
            else:
                value += text[position]
            position += 1
        return value, position + 1
    end = min(index for index in (text.find(",", position), text.find(")", position)) if index >= 0)
    word = text[position:end]
    return (None if word == "NULL" else int(word)), end


@settings(deadline=None)  # the first call loads libraries
@given(ROWS, st.integers(1, 200), st.integers(0, 3))
def test_literals_read_back_whatever_the_size_of_statements(
    rows: list[tuple[Any, ...]], limit: int, skipped: int
) -> None:
    parts = list(split_statements(literal_rows(table(rows).slice(skipped), list("abcd")), limit))
    read = [row for part in parts for row in literals(part.decode())]
    assert read == [[a, b, c, None if d is None else int(d)] for a, b, c, d in rows[skipped:]]
    assert all(len(part) <= limit or len(literals(part.decode())) == 1 for part in parts)


@settings(deadline=None)  # the first call loads libraries
@given(st.lists(st.none() | st.binary(max_size=6)), st.integers(0, 2), st.integers(0, 5))
def test_hexadecimal(values: list[bytes | None], start: int, length: int) -> None:
    column = pa.array(values, pa.binary()).slice(start, length)
    assert to_hexadecimal(column).to_pylist() == [
        None if value is None else value.hex() for value in column.to_pylist()
    ]


@settings(deadline=None)  # the first call loads libraries
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "ab"]), st.integers(0, 2), st.integers(0, 3))), st.randoms())
def test_the_newest_row_of_each_key_in_key_order(rows: list[tuple[str, int, int]], chance: Any) -> None:
    full = [(*row, offset) for offset, row in enumerate(rows)]
    chance.shuffle(full)
    data = placed(
        [row[3] for row in full],
        k=pa.array([row[0] for row in full], pa.string()),
        l=pa.array([row[1] for row in full], pa.int32()),
        ums_id_=pa.array([row[2] for row in full], pa.int64()),
    )
    best: dict[tuple[str, int], tuple[int, int]] = {}
    for key, other, version, offset in full:
        best[key, other] = max(best.get((key, other), (-1, 0)), (version, offset))
    newest = select_newest(data, ["k", "l"]).to_pylist()
    assert [((row["k"], row["l"]), (row["ums_id_"], row["kafka_offset_"])) for row in newest] == sorted(best.items())


def test_the_newest_row_of_keys_with_structs_and_arrays() -> None:
    """Clustering columns of Cassandra may be user-defined types and frozen collections."""
    structs = [{"a": 1}, {"a": None}, None, {"a": 1}, {"a": None}, None]
    data = placed(
        list(range(6)),
        k=pa.array([1] * 6, pa.int32()),
        s=pa.array(structs, pa.struct([("a", pa.int32())])),
        l=pa.array([[1, 2]] * 6, pa.list_(pa.int32())),
        ums_id_=pa.array([9, 8, 7, 1, 2, 7], pa.int64()),
    )
    newest = select_newest(data, ["k", "s", "l"])
    assert newest.schema == data.schema
    assert sorted((row["kafka_offset_"], row["s"], row["l"]) for row in newest.to_pylist()) == [
        (offset, structs[offset], [1, 2]) for offset in (0, 1, 5)
    ]


@settings(deadline=None)  # the first call loads libraries
@given(st.lists(st.integers(0, 4)))
def test_records_are_cut_between_offsets(offsets: list[int]) -> None:
    offsets.sort()
    cut = at_offset_boundary(placed(offsets))
    assert offsets[cut:] == [offset for offset in offsets if offset == offsets[-1]]


def test_years_of_more_than_four_digits() -> None:
    days = [0, None, 8_000_000, 36_000_000, -800_000]
    dates = pa.table({"d": pa.array(days, pa.date32())})
    assert bytes(copy_buffer(dates, ["d"])).decode().split("\n") == [
        "1970-01-01", "\\N", "23873-04-04", "100534-08-27", "-0221-09-04", "",
    ]  # fmt: skip
    infinity = 9_223_372_036_825_200_000  # as Debezium has PostgreSQL's
    times = pa.table({"t": pa.array([0, infinity], pa.timestamp("us", "UTC"))})
    zoned, plain = bytes(copy_buffer(times, ["t"])).decode(), literal_rows(times, ["t"]).to_pylist()
    assert zoned == "1970-01-01 00:00:00.000000Z\n294247-01-10 04:00:25.200000Z\n"
    assert plain == ["('1970-01-01 00:00:00.000000'),", "('294247-01-10 04:00:25.200000'),"]


def test_nan_is_one_key() -> None:
    rows = placed(
        [1, 2, 3, 4, 5],
        k=pa.array([float("nan"), 1.0, float("nan"), None, None], pa.float64()),
        ums_id_=pa.array([1, 2, 3, 4, 5]),
    )
    assert select_newest(rows, ["k"]).column("ums_id_").to_pylist() == [2, 3, 5]


def test_times_of_a_day_with_nanoseconds() -> None:
    assert has_nanoseconds(pa.array([0, 1000, 1001, -1, None])).to_pylist() == [False, False, True, True, False]
