"""Maven version ranges of ``plugin.version``."""
from __future__ import annotations

import pytest

from connectors.errors import ConfigInvalid
from worker.transforms.versions import version_key, version_matches


@pytest.mark.parametrize(("wanted", "version", "matches"), [
    (None, "1", True), ("latest", "1", True), ("4.1.2", "4.1.2", True), ("4.1", "4.1.2", False), ("4.1", "4.1.0", True),
    ("[4.1.2]", "4.1.2", True), ("[4.0,5.0)", "4.1.2", True), ("[4.0,5.0)", "5.0", False), ("(4.1.2,)", "4.1.2", False),
    ("[4.1.2,)", "4.1.2", True), ("(,4.1.2]", "4.1.2", True), ("(,4.1.2)", "4.1.2", False), ("(,1],[4,)", "4.1", True),
    ("(,1],[4,)", "3", False), ("[3.5.0,4)", "3.5.0.Final", True), ("(,)", "x", True), ("[2.10,)", "2.9", False),
])
def test_ranges(wanted: str | None, version: str, matches: bool) -> None:
    assert version_matches(wanted, version) is matches


@pytest.mark.parametrize("wanted", ["[1", "(1)", "[1,2", "[]", "1,2]", "[1,2]x"])
def test_nonsense_is_refused(wanted: str) -> None:
    with pytest.raises(ConfigInvalid, match="no version range"):
        version_matches(wanted, "1")


def test_order_is_mavens() -> None:
    ordered = ["1.0-alpha1", "1.0-beta2", "1.0-M1", "1.0-RC1", "1.0-SNAPSHOT", "1.0", "1.0-sp1", "1.0-jre8", "1.0.1", "1.2",
               "1.10", "2"]
    assert sorted(set(ordered), key=version_key) == ordered
    assert version_key("1.0") == version_key("1") == version_key("1.0.0.Final")
