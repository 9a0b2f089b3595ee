"""The transform, the predicate and the converter against Millrace's checks."""

from millrace_example.connector import PARTITION, ROCKET
from millrace_example.converter import BarConverter
from millrace_example.transform import Below, Stamp

from connectors.api import SourceRecord
from worker.testing import check_converter, check_predicate, check_transform


def record(left: int) -> SourceRecord:
    """One number of a countdown."""
    return SourceRecord(PARTITION, {"left": left}, "launch", {"left": left}, ROCKET)


def test_stamp() -> None:
    """The header says what it shall."""
    first, second = check_transform(Stamp, {"text": "seen"}, [record(3), record(2)])
    assert first is not None
    assert second is not None
    assert [header.value for header in first.headers] == [f"seen by {Stamp.version}"]
    assert second.value == {"left": 2}


def test_below() -> None:
    """The limit is left out."""
    assert check_predicate(Below, {"limit": "3"}, [record(3), record(2)]) == [False, True]


def test_bars() -> None:
    """One field, so no bar."""
    assert check_converter(BarConverter, {}, [(ROCKET, {"left": 7})], reads_back=False) == [b"7"]
