from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from connectors.errors import Fatal
from spark_jobs.sinks.kafka.partitioners import check_partition, list_partitioners, load_partitioner

if TYPE_CHECKING:
    from pathlib import Path


def test_partitioner_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_spread.py").write_text(
        "def by_length(key, value, topic, partitions):\n    return len(key) % partitions\n"
    )
    package = tmp_path / "acme_spread-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-spread\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[millrace.partitioners]\nby-length = acme_spread:by_length\nbroken = acme_absent:f\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert list_partitioners() == ["broken", "by-length"]
    assert load_partitioner("by-length")(b"abcd", None, "t", 3) == 1
    with pytest.raises(Fatal, match=r"broken \(acme_absent:f\) can't be imported"):
        load_partitioner("broken")
    with pytest.raises(Fatal, match=r"no installed package has an entry point other .* round-robin, broken, by-length"):
        load_partitioner("other")


@pytest.mark.parametrize("wrong", [-1, 3, None, True, 1.0])
def test_results_that_are_no_partition(wrong: object) -> None:
    assert check_partition("mine", 2, "t", 3) == 2
    with pytest.raises(Fatal, match="which has the partitions 0 to 2"):
        check_partition("mine", wrong, "t", 3)
