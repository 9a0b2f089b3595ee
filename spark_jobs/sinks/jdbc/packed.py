"""Rows that come as record batches of Arrow's (``contract.Packed``), brought into the form in which tasks write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_jobs.sinks.jdbc import plan as plans
from spark_jobs.sinks.jdbc.config import INSERT, SPLIT
from spark_jobs.sinks.jdbc.rows import POSITION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import pyarrow as pa

    from spark_jobs.contract import Packed
    from spark_jobs.sinks.jdbc.config import JdbcSettings

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def system_columns(chosen: JdbcSettings) -> tuple[str, ...]:
    """The columns that follow a table's own in the rows that tasks load."""
    present = (*plans.table_system(chosen), *(plans.SPLIT_SYSTEM if chosen.mode == SPLIT else ()))
    extra_names = [name for name in ("ums_uid_", "ums_active_") if name in present]
    return ("ums_id_", "ums_ts_", "ums_op_", *extra_names, *POSITION)


def write_unpacked(packed: Packed, columns: int, chosen: JdbcSettings, writer: Task) -> Task:
    """``unpacked_for`` a writer that takes rows as ``sink.projected`` gives them.

    Args:
        packed: rows of a table.
        columns: how many columns the table has itself.
        chosen: the sink's settings.
        writer: writes rows.
    """
    # The image before an update is history only.
    left_out = () if chosen.mode == INSERT else ("b",)
    version = "ums_id_" if chosen.position == "ums_id" else "kafka_offset_"
    return unpacked_for(writer, packed, columns, system_columns(chosen), left_out, version=version)


def unpacked_for(
    writer: Task,
    packed: Packed,
    columns: int,
    system: Sequence[str],
    left_out: Collection[str] = (),
    *,
    version: str = "ums_id_",
) -> Task:
    """The function for ``mapInArrow`` over ``packed.frame`` that unpacks rows and gives them to ``writer``.

    Args:
        writer: takes the table's columns as c0, c1 ..., then those of ``system``.
        packed: rows of a table.
        columns: how many columns the table has itself.
        system: system columns that follow; ``ums_active_`` is computed.
        left_out: rows of these operations (``ums_op_``) are not written.
        version: the column that is given as ``ums_id_``.
    """
    unpack = packed.unpack  # the frame itself can't go to tasks

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        others = pa.array(left_out, pa.string())
        for unpacked in unpack(batches):
            skipped = pc.is_in(unpacked.column("ums_op_"), value_set=others)
            batch = unpacked.filter(pc.invert(skipped)) if pc.any(skipped).as_py() else unpacked
            named: dict[str, Any] = {name: batch.column(name) for name in batch.schema.names[columns:]}
            named["ums_id_"] = named[version]
            named["ums_active_"] = pc.not_equal(named["ums_op_"], "d").cast(pa.int8())
            yield pa.RecordBatch.from_arrays(
                [*batch.columns[:columns], *(named[name] for name in system)],
                names=[*(f"c{number}" for number in range(columns)), *system],
            )

    return lambda batches: writer(rows(batches))
