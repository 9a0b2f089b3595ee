"""Dates: formats, time zones, fractions, years that are not there."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.logs.rules.dates import date_reader
from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.records import LineOrigin, StepFailed


def milliseconds(*parts: int, thousandths: int = 0) -> int:
    year, month, day, hour, minute, second = (*parts, 0, 0, 0)[:6]
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    return int(moment.timestamp()) * 1000 + thousandths


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss,SSS", "2026-11-26 17:29:00,123", milliseconds(2026, 11, 26, 17, 29, thousandths=123)),
        ("ISO8601", "2026-11-26T17:29:00.5Z", milliseconds(2026, 11, 26, 17, 29, thousandths=500)),
        ("ISO8601", "2026-11-26T17:29:00.123456789+01:00", milliseconds(2026, 11, 26, 16, 29, thousandths=123)),
        ("ISO8601", "20261126", milliseconds(2026, 11, 26)),
        ("dd/MMM/yyyy:HH:mm:ss Z", "26/Nov/2026:17:29:00 -0530", milliseconds(2026, 11, 26, 22, 59)),
        ("EEE MMM d HH:mm:ss z yyyy", "Thu Nov 26 17:29:00 UTC 2026", milliseconds(2026, 11, 26, 17, 29)),
        ("d.M.yy h:mm a", "6.1.26 12:05 am", milliseconds(2026, 1, 6, 0, 5)),
        ("yyyy-MM-dd'T'HH:mm:ss''", "2026-11-26T17:29:60'", milliseconds(2026, 11, 26, 17, 30)),
        ("UNIX", "1795714140.25", 1_795_714_140_250),
        ("UNIX", 1_795_714_140, 1_795_714_140_000),
        ("UNIX_MS", "1795714140250", 1_795_714_140_250),
    ],
)
def test_formats(pattern: str, text: str | int, expected: int) -> None:
    assert date_reader([pattern], "UTC").read(text) == expected


def test_a_zone_with_summer_time() -> None:
    read = date_reader(["yyyy-MM-dd HH:mm"], "Europe/Berlin").read
    assert read("2026-07-01 12:00") == milliseconds(2026, 7, 1, 10)
    assert read("2026-12-01 12:00") == milliseconds(2026, 12, 1, 11)


def test_the_first_format_that_fits_counts() -> None:
    reader = date_reader(["yyyy-MM-dd", "dd.MM.yyyy", "UNIX"], "UTC")
    assert [reader.read(text) for text in ("2026-11-26", "26.11.2026", "0")] == [
        milliseconds(2026, 11, 26),
        milliseconds(2026, 11, 26),
        0,
    ]
    with pytest.raises(StepFailed, match="'26/11' is no date of the form yyyy-MM-dd or dd"):
        reader.read("26/11")


def test_a_date_without_year_is_the_last_one_before_the_line_was_read() -> None:
    reader = date_reader(["MMM d HH:mm:ss"], "UTC")
    assert reader.with_origin
    january = LineOrigin(timestamp=milliseconds(2027, 1, 1, 0, 5))
    assert reader.read("Dec 31 23:59:59", january) == milliseconds(2026, 12, 31, 23, 59, 59)
    assert reader.read("Jan  1 00:04:00", january) == milliseconds(2027, 1, 1, 0, 4)


def test_a_zone_may_be_in_the_next_year_already() -> None:
    """Where the sun rises first, January comes while it is still December in UTC."""
    reader = date_reader(["MMM d HH:mm:ss"], "Asia/Shanghai")
    origin = LineOrigin(timestamp=milliseconds(2026, 12, 31, 16, 0, 9))
    assert reader.read("Jan  1 00:00:05", origin) == milliseconds(2026, 12, 31, 16, 0, 5)
    assert reader.read("Dec 31 23:59:59", origin) == milliseconds(2026, 12, 31, 15, 59, 59)


@pytest.mark.parametrize(
    ("read", "leap"),
    [((2025, 1, 5), 2024), ((2024, 2, 1), 2020), ((2024, 2, 29), 2024), ((2027, 12, 31), 2024), ((2103, 6, 1), 2096)],
)
def test_february_29_without_year_is_the_last_one(read: tuple[int, int, int], leap: int) -> None:
    reader = date_reader(["MMM d HH:mm:ss"], "UTC")
    origin = LineOrigin(timestamp=milliseconds(*read, 12))
    assert reader.read("Feb 29 10:00:00", origin) == milliseconds(leap, 2, 29, 10)
    with pytest.raises(StepFailed, match="'Feb 30 10:00:00' is no date: day is out of range"):
        reader.read("Feb 30 10:00:00", origin)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59.999-00:01", "9999-12-31T23:59:60"])
def test_a_zone_leads_to_no_other_year_than_1_to_9999(text: str) -> None:
    with pytest.raises(StepFailed, match="is no date of the years 1 to 9999"):
        date_reader(["ISO8601"], "UTC").read(text)


@pytest.mark.parametrize("text", ["2026-02-30 00:00:00,000", "2026-11-26 17:29:00,12", "2026-11-26 17:29:00,1234", ""])
def test_no_dates(text: str) -> None:
    with pytest.raises(StepFailed):
        date_reader(["yyyy-MM-dd HH:mm:ss,SSS"], "UTC").read(text)


@pytest.mark.parametrize(
    ("format_name", "value"),
    [
        ("UNIX", 1e308),
        ("UNIX", 10**30),
        ("UNIX", "9999999999999999"),
        ("UNIX_MS", -1e17),
        ("ISO8601", 10**20),
        ("MMM d HH:mm", -(10**20)),
    ],
)
def test_a_number_beyond_all_calendars_is_no_date(format_name: str, value: float | str) -> None:
    reader = date_reader([format_name], "UTC")
    with pytest.raises(StepFailed, match="no date"):
        reader.read(value, LineOrigin()) if reader.with_origin else reader.read(value)


@given(st.lists(st.integers(31_536_000_000, 4_102_444_800_000), min_size=1, max_size=5))
def test_remembered_dates_are_those_of_their_text(times: list[int]) -> None:
    read = date_reader(["yyyy-MM-dd HH:mm:ss.SSS"], "UTC").read
    for expected in times * 2:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=expected)
        text = moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{expected % 1000:03d}"
        assert read(text) == expected
        assert read(f" {text} ") == expected


@pytest.mark.parametrize("formats", [[], ["yyyy yyyy"], ["yyyy"], ["HHq"]])
def test_wrong_formats_are_refused(formats: list[str]) -> None:
    with pytest.raises(OperatorOptionInvalid):
        date_reader(formats, "UTC")
