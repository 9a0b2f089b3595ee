"""The system columns of decoded rows (``ums_*`` and ``kafka_*``) as Arrow arrays. Runs in Python workers; no Spark calls."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectors.formats.order_number import BY_WRITE_TIME, MEMBERS, binlog_number, choose_micros, order_number
from spark_jobs.rows.shards import NUMBERS
from spark_jobs.sources.records.columns import arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import Column

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
#: Columns of a task's input that rows take over.
KAFKA_FIELDS: Final = ["topic", "partition", "offset", "timestamp"]
SYSTEM_TYPES: Final = (
    ("ums_id_", pa.int64()),
    ("ums_ts_", TIMESTAMP),
    ("ums_op_", pa.string()),
    ("ums_uid_", pa.string()),
    ("kafka_topic_", pa.string()),
    ("kafka_partition_", pa.int32()),
    ("kafka_offset_", pa.int64()),
)
_order_members: Final = attrgetter(*MEMBERS)
_binlog_members: Final = attrgetter("connector", "ums_id", "lsn", "file", "pos", "row")


def system_arrays(
    records: pa.RecordBatch, ops: Sequence[str], sources: Sequence[Any], firsts: Sequence[bool] | None = None
) -> list[pa.Array]:
    """The arrays of ``SYSTEM_TYPES`` for rows that come from ``records`` one to one.

    Args:
        records: ``KAFKA_FIELDS`` of the records.
        ops: what each row says: i, u, d, or b for the image before an update.
        sources: the position and times that each change's source gives.
        firsts: whether a row is the first of two of its record; None: no row is.
    """
    kinds = pa.array(ops, pa.string())
    return position_arrays(records, _order_numbers(sources, records), _change_times(sources, records), kinds, firsts)


def position_arrays(
    records: pa.RecordBatch,
    numbers: pa.Array,
    times: pa.Array,
    kinds: pa.Array,
    firsts: Sequence[bool] | None = None,
) -> list[pa.Array]:
    """As ``system_arrays``.

    Args:
        records: see there.
        numbers: ``ums_id_``.
        times: ``ums_ts_`` in µs.
        kinds: ``ums_op_``.
        firsts: see there.
    """
    topic, partition, offset = (records.column(name) for name in ("topic", "partition", "offset"))
    uid = pc.binary_join_element_wise(topic, partition.cast(pa.string()), offset.cast(pa.string()), "-")
    if firsts is not None:
        uid = pc.if_else(pa.array(firsts, pa.bool_()), pc.binary_join_element_wise(uid, kinds, "-"), uid)
    return [numbers, times.view(TIMESTAMP), kinds, uid, topic, partition, offset]


def row_schema(columns: Sequence[Column], *, separate: bool) -> pa.Schema:
    """The schema of a table's rows.

    Args:
        columns: the table's.
        separate: whether rows begin with the numbers of their shard.
    """
    numbers = [(name, pa.int64()) for name in NUMBERS] if separate else []
    return pa.schema([*numbers, *((column.name, arrow_type(column.type)) for column in columns), *SYSTEM_TYPES])


def _order_numbers(sources: Sequence[Any], records: pa.RecordBatch) -> pa.Array:
    """``ums_id_``: the order number of the source's position; Kafka's offset where the source gives none."""
    positions = _binlog_numbers(sources)
    if positions is not None:
        return pa.array(positions, pa.int64())
    numbers = [order_number(*_order_members(source)) for source in sources]
    if None in numbers:
        offsets = records.column("offset")
        if numbers.count(None) == len(numbers):
            return offsets
        numbers = [
            offset if number is None else number for number, offset in zip(numbers, offsets.to_pylist(), strict=True)
        ]
    return pa.array(numbers, pa.int64())


def _binlog_numbers(sources: Sequence[Any]) -> list[int] | None:
    """The order numbers of changes that all stand in one binlog file; None for others.

    Raises:
        ValueError: see ``binlog_number``.
    """
    if not sources or not sources[0].file:
        return None
    connectors, ids, lsns, files, positions, rows = map(list, zip(*map(_binlog_members, sources), strict=True))
    nothing = [None] * len(ids)
    if ids != nothing or lsns != nothing or None in positions or len(set(files)) > 1:
        return None
    if not set(BY_WRITE_TIME).isdisjoint(connectors):
        return None
    sums = [position + (row or 0) for position, row in zip(positions, rows, strict=True)]
    binlog_number(files[0], min(sums))
    base = binlog_number(files[0], max(sums)) - max(sums)
    return [base + total for total in sums]


def _change_times(sources: Sequence[Any], records: pa.RecordBatch) -> pa.Array:
    """``ums_ts_`` in µs; Kafka's time where the source gives none."""
    times = [source.ts_us for source in sources]
    if None in times:
        kafka_times = records.column("timestamp").cast(pa.int64()).to_pylist()
        own_times = [choose_micros(source.ts_us, source.ts_ns, source.ts_ms) for source in sources]
        times = [kafka_time if time is None else time for time, kafka_time in zip(own_times, kafka_times, strict=True)]
    return pa.array(times, pa.int64())
