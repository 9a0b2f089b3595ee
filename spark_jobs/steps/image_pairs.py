"""Updates with the image before them: both images decide what becomes of the change. Runs in Spark's Python tasks.

An image before an update (``b``) is the row right before its update (``u``) in the same partition of the frame.

| before | after | becomes |
| -- | -- | -- |
| passes | passes | both rows as they are |
| passes | fails | a delete with the image before |
| fails | passes | an insert |
| fails | fails | nothing |
| unknown | passes | the update |
| unknown | fails | a delete with the key |

An update that changes the key of the output is a delete of the old key and an insert of the new one, as far as they pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal
from spark_jobs.contract import KAFKA_COLUMNS, UMS_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

#: The image does not pass the conditions.
FAILS: Final = 0
#: The image passes.
PASSES: Final = 1
#: The image lacks a value that a condition reads.
UNKNOWN: Final = 2
#: No image of this row ever passes (a condition on the key fails), or an expression fails: leave the row out.
UNUSABLE: Final = 3


def pair_images(rows: DataFrame, columns: int, key: int, *, movable: bool) -> DataFrame:
    """The rows after the decisions, without their state. Lazy.

    Args:
        rows: ``columns`` columns of the table, the state, the system columns.
        columns: number of the table's columns.
        key: how many of them are the key.
        movable: whether an update may change the key of the output.
    """
    from pyspark.sql import types as t

    fields = rows.schema.fields
    nullable = [t.StructField(column.name, column.dataType, True) for column in fields[:columns]]
    return rows.mapInArrow(
        make_pairing_task(columns, key, movable=movable), t.StructType([*nullable, *fields[columns + 1 :]])
    )


def make_pairing_task(
    columns: int, key: int, *, movable: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task for ``mapInArrow``; arguments as for ``pair_images``."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        remainder: pa.RecordBatch | None = None
        for batch in batches:
            rows = batch if remainder is None else pa.concat_batches([remainder, batch])
            remainder = None
            if rows.num_rows and rows.column(rows.schema.get_field_index("ums_op_"))[-1].as_py() == "b":
                remainder, rows = rows.slice(rows.num_rows - 1), rows.slice(0, rows.num_rows - 1)
            yield decide_batch(rows, columns, key, movable=movable)
        if remainder is not None:
            yield decide_batch(remainder, columns, key, movable=movable)

    return run


def decide_batch(rows: pa.RecordBatch, columns: int, key: int, *, movable: bool = False) -> pa.RecordBatch:
    """The rows after the decisions, without their state. Pure.

    Args:
        rows: as ``pair_images`` takes them; an image before an update has its update in the same batch.
        columns: number of the table's columns.
        key: how many of them are the key.
        movable: whether an update may change the key of the output.

    Raises:
        Fatal: ``movable``, and an update comes without the image before it.
    """
    import pyarrow as pa

    names = rows.schema.names
    ops = rows.column(names.index("ums_op_")).to_pylist()
    states = rows.column(columns).to_pylist()
    keys = list(zip(*(rows.column(number).to_pylist() for number in range(key)), strict=True)) or [()] * len(ops)
    takes: list[int] = []
    new_ops: list[str] = []
    changes: list[int] = []  # the row whose order number and id count

    def emit(row: int, op: str, change: int) -> None:
        if movable and op == "d" and None in keys[row]:
            return  # no row was ever written without a key
        takes.append(row)
        new_ops.append(op)
        changes.append(change)

    row = 0
    while row < len(ops):
        paired = ops[row] == "b" and row + 1 < len(ops) and ops[row + 1] == "u"
        if paired:
            _emit_changes(row, states, emit, moved=keys[row] != keys[row + 1])
            row += 2
            continue
        op, state = ops[row], states[row]
        if movable and op == "u" and state != UNUSABLE:
            raise Fatal(_lacks_image(rows, row))
        if state == PASSES or (op == "d" and state == UNKNOWN):
            emit(row, op, row)
        elif op == "u" and state == FAILS:
            emit(row, "d", row)
        row += 1
    images = rows.take(pa.array(takes, pa.int64()))
    numbers = rows.take(pa.array(changes, pa.int64()))
    arrays, fields = [], []
    for position, name in enumerate(names):
        if position == columns:
            continue
        column = (numbers if name in UMS_COLUMNS and position > columns else images).column(position)
        arrays.append(pa.array(new_ops, column.type) if name == "ums_op_" and position > columns else column)
        fields.append(pa.field(name, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _lacks_image(rows: pa.RecordBatch, row: int) -> str:
    topic, partition, offset = (rows.column(rows.schema.names.index(name))[row].as_py() for name in KAFKA_COLUMNS)
    return (
        f"the update at {topic}-{partition} offset {offset} comes without the row before it, and a step computes the key "
        "from columns that an update may change: the old row would stay. Have the source send whole rows before a change "
        "(MySQL: binlog_row_image=full), or take the key from columns of the table's key"
    )


def _emit_changes(row: int, states: list[int], emit: Callable[[int, str, int], None], *, moved: bool) -> None:
    """Emit the rows for the image ``row`` and the update after it; ``moved``: whether their keys differ."""
    before, after = states[row], states[row + 1]
    # Whether the target may have a row under the old key. An image of the same key is unusable only if an expression failed.
    existed = before in (PASSES, UNKNOWN) or (before == UNUSABLE and not moved)
    if moved:
        if existed:
            emit(row, "d", row + 1)
        if after == PASSES:
            emit(row + 1, "i", row + 1)
    elif after == PASSES:
        if before == PASSES:
            emit(row, "b", row)
        emit(row + 1, "i" if before == FAILS else "u", row + 1)
    elif after == FAILS and existed:
        emit(row if before == PASSES else row + 1, "d", row + 1)
