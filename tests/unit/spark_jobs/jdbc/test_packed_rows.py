"""Rows that come as Arrow batches are given to the task that loads them with the columns that Spark's projection gives."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps

from connectors.options import ConfigDef, ConfigKey, ConfigType
from spark_jobs.contract import Packed
from spark_jobs.sinks.jdbc.config import CONFIG_DEF, parse_settings
from spark_jobs.sinks.jdbc.packed import write_unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

POSITION = ["kafka_topic_", "kafka_partition_", "kafka_offset_"]
ROWS = pa.RecordBatch.from_pydict(
    {
        "id": [1, 2, 3],
        "a.b": ["x", None, "z"],
        "ums_id_": [100, 101, 102],
        "ums_ts_": [1, 2, 3],
        "ums_op_": ["i", "b", "d"],
        "ums_uid_": ["t-0-7", "t-0-8-b", "t-0-8"],
        "kafka_topic_": ["t"] * 3,
        "kafka_partition_": [0] * 3,
        "kafka_offset_": [7, 8, 8],
    }
)


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def load(**options: str) -> list[dict[str, Any]]:
    """The rows that a writer gets, from a function that went to a task and back."""
    frame_keys = [
        ConfigKey(name="guarantee", type=ConfigType.STRING, doc="-", default=None),
        ConfigKey(name="errors.tolerance", type=ConfigType.STRING, doc="-", default="none"),
    ]
    config = ConfigDef([*frame_keys, *CONFIG_DEF.keys.values()]).parse(
        {"sink.jdbc.url": "jdbc:postgresql://127.0.0.1/d", "sink.jdbc.user": "u", **options}
    )
    # A frame of Spark's can't be pickled, as a lock can't.
    packed = Packed(cast("Any", threading.Lock()), unpacked)
    task = pickle.loads(dumps(write_unpacked(packed, 2, parse_settings(config), unpacked)))  # type: ignore[no-untyped-call]  # noqa: S301 - our own
    return [row for batch in task(iter([ROWS])) for row in batch.to_pylist()]


def test_images_before_an_update_are_left_out_and_a_delete_is_not_active() -> None:
    rows = load()
    assert [list(row) for row in rows] == [["c0", "c1", "ums_id_", "ums_ts_", "ums_op_", "ums_active_", *POSITION]] * 2
    assert [(row["c0"], row["c1"], row["ums_op_"], row["ums_active_"]) for row in rows] == [
        (1, "x", "i", 1),
        (3, "z", "d", 0),
    ]


def test_a_history_keeps_all_images() -> None:
    rows = load(**{"sink.jdbc.mode": "insert"})
    assert [list(row) for row in rows] == [["c0", "c1", "ums_id_", "ums_ts_", "ums_op_", "ums_uid_", *POSITION]] * 3
    assert [row["ums_uid_"] for row in rows] == ["t-0-7", "t-0-8-b", "t-0-8"]


@pytest.mark.parametrize(("position", "versions"), [("ums_id", [100, 102]), ("kafka", [7, 8])])
def test_versions_are_those_of_the_chosen_position(position: str, versions: list[int]) -> None:
    assert [row["ums_id_"] for row in load(**{"sink.jdbc.position": position})] == versions
