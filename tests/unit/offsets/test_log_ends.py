"""A reader's error about a topic that it could not read to its end."""

from __future__ import annotations

import pytest

from offsets.log import behind_at


@pytest.mark.parametrize(
    ("positions", "ends", "words"),
    [
        ({0: 5}, {0: 7}, "partition 0 is read up to 5 of 7"),
        ({0: 7, 3: 1}, {0: 7, 3: 2}, "partition 3 is read up to 1 of 2"),
        ({}, {2: 4, 1: 9, 0: 0}, "partition 1 is read up to 0 of 9, and 1 more are behind"),
        ({0: 7}, {0: 7}, "it has been read just now"),
    ],
)
def test_which_partitions_are_behind(positions: dict[int, int], ends: dict[int, int], words: str) -> None:
    assert behind_at(positions, ends) == words
