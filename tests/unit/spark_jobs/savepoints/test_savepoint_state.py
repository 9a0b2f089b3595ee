"""Decisions about the materializer's state in a savepoint: which buckets, which changelog, and the position of new buckets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectors.errors import Fatal
from spark_jobs.materializer.config import BucketOptions, EngineFactory, Marker, MarkerOwner
from spark_jobs.materializer.engine.model import MergeOptions
from spark_jobs.materializer.state.savepoint import (
    LAYOUT,
    SavedBucket,
    SavedState,
    SavedStates,
    check_buckets,
    check_target,
    joined_marker,
    read_saved,
)


def saved(*, count: int = 2, buckets: int = 0) -> SavedState:
    return SavedState(
        folder="state-1",
        files=["a.parquet"],
        count=count,
        buckets=buckets,
        partitioner="bucket",
        content={0: SavedBucket(5, -7), 1: SavedBucket(6, 1 << 60)},
    )


def marker(following: int = 0, **fields: Any) -> Marker:
    values: dict[str, Any] = {
        "next": following,
        "sequence": following * 10,
        "topic": "in",
        "topic_id": "i",
        "partitions": 2,
        "owner": MarkerOwner(4, "r"),
        "output_id": "o",
    }
    return Marker(**values | fields)


def job(buckets: int = 3) -> BucketOptions:
    return BucketOptions(
        job="j",
        owner=MarkerOwner(0, ""),
        client={},
        group="g",
        input_topic="in",
        input_id="i",
        partitions=5,
        output_topic="out",
        output_id="o",
        changelog_topic="c",
        changelog_id="c",
        state_dir="/nowhere",
        engine=EngineFactory(MergeOptions(topic="out", name="j")),
        buckets=buckets,
    )


def test_the_description_survives_the_manifest() -> None:
    states = SavedStates(layout=LAYOUT, topics={"in": saved(), "other": saved(buckets=2)}, buckets=4, records=22)
    text = msgspec.json.encode(msgspec.to_builtins(states, str_keys=True))
    assert read_saved(msgspec.json.decode(text), "d") == states


@pytest.mark.parametrize("state", [{"layout": LAYOUT + 1}, {}, {"layout": LAYOUT}])
def test_another_or_an_incomplete_description_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(Fatal, match=r"layout|can't be read"):
        read_saved(state, "d")


def test_rows_go_to_other_buckets_only_where_their_number_changes() -> None:
    assert not check_buckets(saved(count=2), 0, 2, "in")
    assert check_buckets(saved(count=2), 2, 2, "in"), "buckets by key are others than those of input partitions"
    assert check_buckets(saved(count=2), 3, 5, "in")
    assert not check_buckets(saved(count=3, buckets=3), 3, 5, "in")
    assert check_buckets(saved(count=3, buckets=3), 4, 5, "in")
    with pytest.raises(Fatal, match=r"has 2 buckets.*in has 5 now: set materializer.buckets"):
        check_buckets(saved(count=2), 0, 5, "in")
    with pytest.raises(Fatal, match="can't go back"):
        check_buckets(saved(count=3, buckets=3), 0, 3, "in")


def test_a_changelog_takes_one_savepoint() -> None:
    check_target({}, "a", "c")
    check_target({0: marker(savepoint="a", restoring=True), 1: marker(savepoint="a")}, "a", "c")
    with pytest.raises(Fatal, match=r"c has the state of the savepoint b already.*materializer.changelog.topic"):
        check_target({0: marker(savepoint="a"), 1: marker(savepoint="b")}, "a", "c")
    with pytest.raises(Fatal, match="of a job that did not start from this savepoint"):
        check_target({0: marker()}, "a", "c")


def test_new_buckets_begin_where_the_partitions_ended_and_number_on() -> None:
    joined = joined_marker({0: marker(7), 1: marker(9, sequence=1000)}, saved(), job(), "a")
    assert (joined.positions, joined.sequence, joined.buckets) == ({0: 7, 1: 9}, 1000, 3)
    assert (joined.savepoint, joined.owner.epoch, joined.restoring) == ("a", 0, False)
    by_key = {bucket: marker(buckets=2, positions={0: 7, 1: 9}) for bucket in range(2)}
    assert joined_marker(by_key, saved(buckets=2), job(), "a").positions == {0: 7, 1: 9}


def test_buckets_that_do_not_agree_are_refused() -> None:
    with pytest.raises(Fatal, match="no marker"):
        joined_marker({}, saved(), job(), "a")
    with pytest.raises(Fatal, match="rebuild --output"):
        joined_marker({0: marker(), 1: marker(output_id="other")}, saved(), job(), "a")
    with pytest.raises(Fatal, match="rebuild --output"):
        joined_marker({0: marker(replay="00")}, saved(), job(), "a")
    different = {0: marker(buckets=2, positions={0: 7}), 1: marker(buckets=2, positions={0: 8})}
    with pytest.raises(Fatal, match="middle of a batch"):
        joined_marker(different, saved(buckets=2), job(), "a")
