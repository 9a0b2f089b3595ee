"""The Spark task of a ``python`` step: gives a user's function the inserts and updates of an Arrow batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, MillraceError
from spark_jobs.sources.records.columns import arrow_type
from spark_jobs.steps.failures import REASON, RowFailure
from spark_jobs.steps.lookup.values import spark_type
from spark_jobs.steps.python.code import make_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from spark_jobs.steps.python.code import UserCode

_OP: Final = "ums_op_"
_SHOWN: Final = 500


@dataclass(frozen=True, slots=True)
class PythonTask:
    """The function for ``mapInArrow``. Picklable.

    Attributes:
        step: the name of the step.
        code: the user's.
        options: of the user's class.
        names: of the table's columns, in order.
        outputs: (name, type) of the columns that the function gives.
        positions: where each of them goes: an index of the table's columns, or after them.
        guarded: whether bad rows get a reason in a column of its own; else the first one fails the task.
    """

    step: str
    code: UserCode
    options: Mapping[str, str]
    names: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]
    positions: tuple[int, ...]
    guarded: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with the function's columns."""
        function = make_instance(self.code.load(), self.options)
        for batch in batches:
            yield self.answer(batch, function)

    def answer(self, rows: pa.RecordBatch, function: Callable[[Any], Any]) -> pa.RecordBatch:
        """The rows with the function's columns; null for deletes and for images before updates.

        Raises:
            RowFailure: the function fails for a row, and rows are not guarded.
            Fatal: it gives something else than the declared columns.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        count = len(self.names)
        ops = rows.column(rows.schema.get_field_index(_OP))
        is_given = pc.is_in(ops, pa.array(["i", "u"]))
        named = pa.RecordBatch.from_arrays(rows.columns, [*self.names, *rows.schema.names[count:]])
        chosen = named.filter(is_given)
        results, reasons = self._compute_results(chosen, function)
        # The n-th row that was given has the n-th result; the others take nulls.
        result_rows = pc.if_else(
            is_given, pc.subtract(pc.cumulative_sum(is_given.cast(pa.int64())), 1), pa.scalar(None, pa.int64())
        )
        arrays = list(rows.columns[:count])
        for position, result in zip(self.positions, results, strict=True):
            values = result.take(result_rows)
            if position < count:
                arrays[position] = values
            else:
                arrays.append(values)
        names = [f"c{number}" for number in range(len(arrays))]
        if self.guarded:
            arrays.append(reasons.take(result_rows))
            names.append(REASON)
        return pa.RecordBatch.from_arrays([*arrays, *rows.columns[count:]], [*names, *rows.schema.names[count:]])

    def _compute_results(self, rows: pa.RecordBatch, function: Callable[[Any], Any]) -> tuple[list[pa.Array], pa.Array]:
        """The function's columns for ``rows``, and for each row why it is bad; rows without a reason are good."""
        import pyarrow as pa

        kinds = [arrow_type(spark_type(kind)) for _, kind in self.outputs]
        if not rows.num_rows:
            return [pa.nulls(0, kind) for kind in kinds], pa.nulls(0, pa.string())
        try:
            return self._call_function(rows, function, kinds), pa.nulls(rows.num_rows, pa.string())
        except MillraceError:
            raise
        except Exception as error:
            message = f"{self.code.where}: {type(error).__name__}: {str(error)[:_SHOWN]}"
            if not self.guarded:
                raise RowFailure(message) from error
            if rows.num_rows == 1:
                return [pa.nulls(1, kind) for kind in kinds], pa.array([message])
        # Which rows are to blame is found by halves.
        middle = rows.num_rows // 2
        halves = [self._compute_results(part, function) for part in (rows.slice(0, middle), rows.slice(middle))]
        columns = [pa.concat_arrays([left, right]) for left, right in zip(halves[0][0], halves[1][0], strict=True)]
        return columns, pa.concat_arrays([halves[0][1], halves[1][1]])

    def _call_function(
        self, rows: pa.RecordBatch, function: Callable[[Any], Any], kinds: list[pa.DataType]
    ) -> list[pa.Array]:
        import pyarrow as pa

        result = function(rows)
        columns = []
        for (name, _), kind in zip(self.outputs, kinds, strict=True):
            try:
                column = result[name] if isinstance(result, dict) else result.column(name)
            except (KeyError, AttributeError) as error:
                raise Fatal(
                    f"step {self.step}: {self.code.where} gives no column {name}: return a dict of columns, a RecordBatch or "
                    f"a Table with {', '.join(output for output, _ in self.outputs)}"
                ) from error
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            column = column.cast(kind) if isinstance(column, pa.Array) else pa.array(column, kind)
            if len(column) != rows.num_rows:
                raise Fatal(
                    f"step {self.step}: {self.code.where} gives {len(column)} values in the column {name} for "
                    f"{rows.num_rows} rows: return one for each row, in the same order (a step of type filter leaves rows out)"
                )
            columns.append(column)
        return columns
