"""The same merge in Spark's own ``transformWithState``: a map state per partition of the table, RocksDB, the row API.

It is given its input decoded and writes its output nowhere, so what it is measured at is the stateful merge alone.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StringType, StructField, StructType

from spark_jobs.spark.session import build_session
from tests.support.update_load import changes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.update_topic import Load

_INPUT = StructType(
    [
        StructField("pk", LongType()),
        StructField("ck", IntegerType()),
        StructField("wt", LongType()),
        StructField("ins", BooleanType()),
        StructField("del", BooleanType()),
        StructField("vals", StringType()),
    ]
)
_OUTPUT = StructType(
    [StructField("op", StringType()), StructField("before", StringType()), StructField("after", StringType())]
)
_FILES = 5


class Merge(StatefulProcessor):
    """Last write wins per column, as ``Model`` does it."""

    def init(self, handle: Any) -> None:
        """Called by Spark once per partition."""
        self._rows = handle.getMapState(
            "rows", StructType([StructField("ck", IntegerType())]), StructType([StructField("blob", BinaryType())])
        )

    def handleInputRows(self, key: Any, rows: Iterator[Any], timer: Any) -> Iterator[Row]:  # noqa: N802 - Spark's name
        """All updates of one partition of the table."""
        del timer
        for row in rows:
            name = (row.ck,)
            state: list[Any] = (
                json.loads(bytes(self._rows.getValue(name)[0])) if self._rows.containsKey(name) else [-1, -1, {}]
            )
            before = _shown(key[0], row.ck, state)
            if row["del"]:
                state[0] = max(state[0], row.wt)
            if row.ins:
                state[1] = max(state[1], row.wt)
            for column, value in json.loads(row.vals).items():
                old = state[2].get(column)
                if old is None or row.wt > old[0]:
                    state[2][column] = [row.wt, value]
            after = _shown(key[0], row.ck, state)
            self._rows.updateValue(name, (json.dumps(state).encode(),))
            if before != after:
                yield Row(op="c" if before is None else "d" if after is None else "u", before=before, after=after)

    def close(self) -> None:
        """Called by Spark at the end."""


def _shown(pk: int, ck: int, state: list[Any]) -> str | None:
    live = {name: value for name, (at, value) in state[2].items() if at > state[0] and value is not None}
    return json.dumps({"pk": pk, "ck": ck, **live}) if live or state[1] > state[0] else None


class _Progress(StreamingQueryListener):
    def __init__(self) -> None:
        self.samples: list[tuple[float, int]] = []
        self.done = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Called by Spark."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Called by Spark after each batch."""
        if event.progress.numInputRows:
            self.samples.append((time.monotonic(), event.progress.numInputRows))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Called by Spark."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Called by Spark."""
        del event
        self.done.set()


def run_peer(load: Load, folder: Path) -> float:
    """Its rows/s after the first batch; prints them."""
    source = folder / "peer-input"
    source.mkdir()
    lines = [
        json.dumps(
            {
                "pk": change.pk,
                "ck": change.ck,
                "wt": change.write_time,
                "ins": change.insert,
                "del": change.delete,
                "vals": json.dumps(change.values),
            }
        )
        for change in changes(load.updates, partitions=load.partitions, seed=load.seed)
    ]
    share = -(-len(lines) // _FILES)
    for number in range(_FILES):
        (source / f"{number}.json").write_text("\n".join(lines[number * share : (number + 1) * share]))
    spark = build_session(
        "peer",
        master="local[2]",
        conf={
            "spark.sql.shuffle.partitions": str(load.buckets),
            "spark.driver.memory": "1g",
            "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",  # noqa: E501
        },
    )
    progress = _Progress()
    spark.streams.addListener(progress)
    try:
        frame = spark.readStream.schema(_INPUT).option("maxFilesPerTrigger", 1).json(str(source))
        merged = frame.groupBy("pk").transformWithState(
            statefulProcessor=Merge(), outputStructType=_OUTPUT, outputMode="Update", timeMode="None"
        )
        query = (
            merged.writeStream.format("noop")
            .option("checkpointLocation", str(folder / "peer-checkpoint"))
            .outputMode("update")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress.done.wait(30)
    finally:
        spark.stop()
    (begin, _), (end, _) = progress.samples[0], progress.samples[-1]
    rows = sum(count for _, count in progress.samples[1:])
    rate = rows / max(end - begin, 1e-9)
    print(
        f"\ntransformWithState, {load.updates:,} updates over {load.partitions:,} partitions: {rate:,.0f} rows/s after the "
        f"first of {len(progress.samples)} batches",
        flush=True,
    )
    return rate
