"""Writes rows to ClickHouse in a task: Arrow over HTTP, in halves where a value is refused."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.namespaces import find_identity
from spark_jobs.sinks.clickhouse.answers import DATA, code_of, error_of, words_of
from spark_jobs.sinks.clickhouse.columns import SOURCE_TABLE, quote_name, system_columns
from spark_jobs.sinks.clickhouse.config import PREFIX
from spark_jobs.sinks.clickhouse.limits import find_changed
from spark_jobs.sinks.jdbc.rows import python_values
from spark_jobs.sinks.shared.model import WriteCounts
from spark_jobs.sinks.shared.task import NUMBER, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.sinks.clickhouse.config import ClickHouseSettings
    from spark_jobs.sinks.shared.model import Refuse, RowTable, SinkRow

#: A null in a column that has none is an error, not silently the type's default.
_INSERT: Final = {"input_format_null_as_default": "0", "async_insert": "0", "wait_end_of_query": "1"}
#: Characters of a value in a message.
_SHOWN: Final = 100
_ARROW: Final = {"Content-Type": "application/vnd.apache.arrow.stream"}


class ClickHouseClient:
    """See ``shared.model.ArrowClient``.

    Args:
        settings: the sink's.
        table: the rows' table.
        types: of those columns that are not as the sink would make them.
    """

    def __init__(self, settings: ClickHouseSettings, table: RowTable, types: Mapping[str, str]) -> None:
        self._settings = settings
        self._table = table
        self._types = types
        self._requests = settings.requests()
        self._names = (*table.columns, *system_columns(settings))
        target = f"{quote_name(settings.database)}.{quote_name(settings.table.of_table(table.namespace))}"
        self._query = f"INSERT INTO {target} ({', '.join(map(quote_name, self._names))}) FORMAT ArrowStream"

    def write(self, rows: pa.Table, refuse: Refuse) -> WriteCounts:
        """See ``ArrowClient.write``."""
        refused: list[tuple[SinkRow, str]] = []
        done = WriteCounts()
        if not self._settings.append:
            rows = self._with_keys(rows, refused)
        rows = self._without_changed(rows, refused)
        waiting = [rows] if rows.num_rows else []
        while waiting:
            part = waiting.pop()
            content = write_stream(self._select_columns(part))
            # The same content is written once as long as the table remembers it; another content, as after a reload with other
            # steps, never takes its place.
            token = blake2b(content, digest_size=16).hexdigest()
            parameters = {"query": self._query, "insert_deduplication_token": token, **_INSERT}
            answer = self._requests.exchange("POST", f"/?{urlencode(parameters)}", content, _ARROW)
            done.requests += 1
            code = code_of(answer)
            if not code:
                done.rows += part.num_rows
            elif code not in DATA:
                raise error_of(answer, self._requests.where)
            elif part.num_rows == 1:
                refused.append((self._to_rows(part)[0], words_of(answer, self._requests.where)))
            else:
                half = part.num_rows // 2
                waiting += [part.slice(half), part.slice(0, half)]
        refuse(refused)
        return done

    def close(self) -> None:
        """See ``ArrowClient.close``."""
        self._requests.close()

    def _with_keys(self, rows: pa.Table, refused: list[tuple[SinkRow, str]]) -> pa.Table:
        """The rows without those whose key has a null that the table can't have, which are refused."""
        for name in self._table.keys:
            lost = find_lost_nulls(rows.column(name))
            if lost is None:
                continue
            reason = (
                f"the column {name} of its key has a null array, map or struct in it, which ClickHouse keeps as empty"
            )
            refused += [(row, reason) for row in self._to_rows(rows.filter(lost))]
            rows = rows.filter(pc.invert(lost))
        lacking: Any = None
        for name in self._table.keys:
            column = rows.column(name)
            if column.null_count:
                nulls = pc.is_null(column)
                lacking = nulls if lacking is None else pc.or_(lacking, nulls)
        if lacking is None:
            return rows
        for row in self._to_rows(rows.filter(lacking)):
            names = ", ".join(name for name in self._table.keys if row.values[name] is None)
            refused.append((row, f"the column {names} of its key ({PREFIX}key.columns) is null"))
        return rows.filter(pc.invert(lacking))

    def _without_changed(self, rows: pa.Table, refused: list[tuple[SinkRow, str]]) -> pa.Table:
        """The rows without those with a value that the table's column would change, which are refused."""
        for name, kind in self._types.items():
            changed = find_changed(rows.column(name).combine_chunks(), kind)
            if changed is None:
                continue
            for row in self._to_rows(rows.filter(changed)):
                value = repr(row.values[name])[:_SHOWN]
                refused.append((row, f"the column {name} is {kind} there, which would change its value {value}"))
            rows = rows.filter(pc.invert(changed))
        return rows

    def _select_columns(self, rows: pa.Table) -> pa.Table:
        """The columns to write, by ClickHouse's names."""
        deleted = pc.equal(rows.column("ums_op_"), "d")
        computed = {
            "ums_deleted_": lambda: deleted.cast(pa.uint8()),
            "ums_active_": lambda: pc.invert(deleted).cast(pa.uint8()),
            "kafka_number_": lambda: rows.column(NUMBER),
            SOURCE_TABLE: lambda: pa.repeat(pa.scalar(find_identity(self._table.namespace)), rows.num_rows),
        }
        values = [without_null_structs(column) for column in rows.columns[: len(self._table.columns)]]
        computed_columns = [
            computed[name]() if name in computed else rows.column(name) for name in self._names[len(values) :]
        ]
        return pa.Table.from_arrays([*values, *computed_columns], names=list(self._names))

    def _to_rows(self, rows: pa.Table) -> list[SinkRow]:
        return rows_of(rows, self._table.columns)


def find_lost_nulls(column: pa.ChunkedArray) -> pa.Array | None:
    """A mask of the values in which an array, a map or a struct is null; None if no value has one. Pure."""
    if not pa.types.is_nested(column.type):
        return None
    lost = [value is not None and _loses_null(value, column.type) for value in python_values(column)]
    return pa.array(lost, pa.bool_()) if any(lost) else None


def _loses_null(value: Any, kind: pa.DataType) -> bool:
    """Whether a value is a null that its type can't have in ClickHouse, or has one in it."""
    if not pa.types.is_nested(kind):
        return False
    if value is None:
        return True
    if pa.types.is_struct(kind):
        return any(_loses_null(part, kind.field(name).type) for name, part in value.items())
    if pa.types.is_map(kind):
        return any(_loses_null(key, kind.key_type) or _loses_null(item, kind.item_type) for key, item in value)
    return any(_loses_null(item, kind.value_type) for item in value)


def without_null_structs(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with structs of nulls in place of structs that are null, since a tuple can't be null. Pure."""
    if not (pa.types.is_struct(column.type) and column.null_count):
        return column
    return pa.chunked_array([_fill_nulls(chunk) for chunk in column.chunks], column.type)


def _fill_nulls(structs: pa.Array) -> pa.Array:
    if not pa.types.is_struct(structs.type):
        return structs
    # Parts of a null are null.
    parts = [_fill_nulls(part) for part in structs.flatten()]
    return pa.StructArray.from_arrays(parts, fields=list(structs.type))


def write_stream(rows: pa.Table) -> pa.Buffer:
    """Rows in Arrow's form for streams. Pure."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()
