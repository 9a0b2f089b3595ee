"""Maven version ranges of ``plugin.version``."""

from __future__ import annotations

import pytest

from connectors.errors import ConfigInvalid
from worker.transforms.java.versions import in_range, not_found, range_problem, version_key, version_matches


@pytest.mark.parametrize(
    ("version_range", "version", "matches"),
    [
        (None, "1", True),
        ("latest", "1", True),
        ("4.1.2", "4.1.2", True),
        ("4.1", "4.1.2", False),
        ("4.1", "4.1.0", True),
        ("[4.1.2]", "4.1.2", True),
        ("[4.0,5.0)", "4.1.2", True),
        ("[4.0,5.0)", "5.0", False),
        ("(4.1.2,)", "4.1.2", False),
        ("[4.1.2,)", "4.1.2", True),
        ("(,4.1.2]", "4.1.2", True),
        ("(,4.1.2)", "4.1.2", False),
        ("(,1],[4,)", "4.1", True),
        ("(,1],[4,)", "3", False),
        ("[3.5.0,4)", "3.5.0.Final", True),
        ("(,)", "x", True),
        ("[2.10,)", "2.9", False),
    ],
)
def test_ranges(version_range: str | None, version: str, matches: bool) -> None:
    assert version_matches(version_range, version) is matches


@pytest.mark.parametrize(
    ("version_range", "complaint"),
    [
        ("[1", "Unbounded range: [1"),
        ("(1)", "Single version must be surrounded by []: (1)"),
        ("[1,2", "Unbounded range: [1,2"),
        ("1,2]", "Only fully-qualified sets allowed in multiple set scenario: [1,2]]"),
        ("[2,1]", "Range defies version ordering: [2,1]"),
        ("[1,2]x", "Only fully-qualified sets allowed in multiple set scenario: [1,2]x"),
        ("[1,3],[2,4]", "Ranges overlap: [1,3],[2,4]"),
    ],
)
def test_nonsense_is_refused_in_mavens_words(version_range: str, complaint: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        version_matches(version_range, "1")
    assert str(caught.value) == range_problem(version_range) == not_found("a.B", version_range, ["1"]) == complaint
    assert not in_range(version_range, "1")


@pytest.mark.parametrize(
    ("version_range", "shown"),
    [("2", "[2,2]"), ("", "[,]"), (" [ 2 , 3 ] ", "[2,3]"), ("(,1),[2,)", "(,1),[2,)"), ("bogus[", "[bogus[,bogus[]")],
)
def test_a_range_that_nothing_meets(version_range: str, shown: str) -> None:
    assert range_problem(version_range) is None
    assert not_found("a.B", version_range, ["1", "1.5"]) == (
        f"Plugin a.B not found that matches the version range {shown}, available versions: [1, 1.5]"
    )


def test_order_is_mavens() -> None:
    ordered = [
        "1.0-alpha1",
        "1.0-beta2",
        "1.0-M1",
        "1.0-RC1",
        "1.0-SNAPSHOT",
        "1.0",
        "1.0-sp1",
        "1.0-jre8",
        "1.0.1",
        "1.2",
        "1.10",
        "2",
    ]
    assert sorted(set(ordered), key=version_key) == ordered
    assert version_key("1.0") == version_key("1") == version_key("1.0.0.Final")
