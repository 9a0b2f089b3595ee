"""SimpleDateFormat's patterns: the strings are Java's, as recorded from its answers."""

from __future__ import annotations

import pytest

from connectors.errors import ConfigInvalid, Skippable
from worker.transforms.java.date_format import JavaDateFormat, days_of, to_civil

INSTANT = 1_700_000_000_123  # 2023-11-14T22:13:20.123Z, a Tuesday


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2023-11-14T22:13:20.123Z"),
        ("EEE, d MMM yy h:m a", "Tue, 14 Nov 23 10:13 PM"),
        ("EEEE dd. MMMM G", "Tuesday 14. November AD"),
        ("D DDDD u F", "318 0318 2 2"),
        ("k K S SSSSS", "22 10 123 00123"),
        ("z zzzz Z X", "UTC Coordinated Universal Time +0000 Z"),
        ("''yyyy''", "'2023'"),
        ("'o''clock' hh", "o'clock 10"),
        ("LLL L", "Nov 11"),
        ("y yyyyy", "2023 02023"),
        ("", ""),
    ],
)
def test_format(pattern: str, text: str) -> None:
    assert JavaDateFormat(pattern).format(INSTANT) == text


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (-1, "1969-12-31 23:59:59.999 AD"),
        (-12_219_292_800_000, "1582-10-15 00:00:00.000 AD"),
        (-12_219_292_800_001, "1582-10-04 23:59:59.999 AD"),
        (-62_135_769_600_000, "0001-01-01 00:00:00.000 AD"),
        (-62_135_769_600_001, "0001-12-31 23:59:59.999 BC"),
        (253_402_300_800_000, "10000-01-01 00:00:00.000 AD"),
    ],
)
def test_the_calendar_is_java_s(millis: int, text: str) -> None:
    pattern = JavaDateFormat("yyyy-MM-dd HH:mm:ss.SSS G")
    assert pattern.format(millis) == text
    assert pattern.parse(text) == millis


@pytest.mark.parametrize(
    ("pattern", "text", "millis"),
    [
        ("yyyy-MM-dd", "2023-11-14 and more", 1_699_920_000_000),
        ("yyyy-MM-dd", "2023-13-32", 1_706_745_600_000),
        ("yyyy-MM-dd", " 2023- 11--1", 1_698_624_000_000),
        ("yyyyMMddHHmm", "202311142213", 1_699_999_980_000),
        ("HH:mm:ss.SSS", "00:00:00.12345", 12_345),
        ("hh a", "12 am", 0),
        ("HH hh a", "05 11 pm", 82_800_000),
        ("MMM d, yyyy", "nov 14, 2023", 1_699_920_000_000),
        ("yyyy-DDD", "2024-366", 1_735_603_200_000),
        ("yyyy-MM-dd'T'HHXXX", "2023-11-14T22+01:30", 1_699_993_800_000),
        ("HH z", "01 GMT-2:00", 10_800_000),
        ("HH Z", "01 +0100", 0),
        ("H", "9999999999", 1_410_065_407 * 3_600_000),
    ],
)
def test_parse(pattern: str, text: str, millis: int) -> None:
    assert JavaDateFormat(pattern).parse(text) == millis


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd", "14.11.2023"),
        ("yyyy-MM-dd", "2023-11-"),
        ("MMM", "Foo"),
        ("HH z", "01 PST"),
        ("X", "z"),
        ("XXX", "+0100"),
        ("a", " AM"),
        ("EEE yyyy", "Tue 2023"),
    ],
)
def test_texts_that_do_not_match(pattern: str, text: str) -> None:
    with pytest.raises(Skippable, match="Could not parse timestamp: value"):
        JavaDateFormat(pattern).parse(text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-bb", "Illegal pattern character 'b'"),
        ("YYYY", "'Y'"),
        ("ww", "'w'"),
        ("W", "'W'"),
        ("XXXX", "invalid ISO 8601 format: length=4"),
        ("'a", "Unterminated quote"),
        ("T", "Illegal pattern character 'T'"),
    ],
)
def test_patterns_that_are_none(pattern: str, text: str) -> None:
    with pytest.raises(ConfigInvalid) as refusal:
        JavaDateFormat(pattern)
    assert text in str(refusal.value)


def test_two_digit_years_lie_around_today() -> None:
    pattern = JavaDateFormat("yy")
    year = to_civil(pattern.parse("00") // 86_400_000)[0]
    assert year in (2000, 2100)
    assert to_civil(JavaDateFormat("yy").parse("7") // 86_400_000)[0] == 7  # one digit is the year itself
    assert to_civil(JavaDateFormat("yyyy").parse("23") // 86_400_000)[0] == 23


def test_days_and_dates_are_inverse() -> None:
    for days in range(-800_000, 800_000, 97):
        assert days_of(*to_civil(days)) == days
