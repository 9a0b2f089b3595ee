"""The visible part of the state: the values of a row's columns in the table's newest version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.schema import Type
from spark_jobs.materializer.contract import LiveRow
from spark_jobs.materializer.engine.rowstate import forget_cells
from spark_jobs.materializer.events.field_names import field_key, make_row_namer
from spark_jobs.materializer.events.forms import column_schema
from spark_jobs.materializer.events.json import make_image_encoder as json_images

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.schema import Schema
    from spark_jobs.materializer.engine.model import StateColumn
    from spark_jobs.materializer.engine.rowstate import Element, RowState
    from spark_jobs.materializer.events.forms import TableShape

    Assemble = Callable[[Mapping[bytes, Element]], Any]


class ImageView:
    """The static row, or rows, as the newest version shows them.

    Attributes:
        columns: what is shown, in order.
        count: how many slots the state has.
        dead: slots of columns that the table does not have any more.
        nothing: what a row without cells shows.
    """

    def __init__(self, columns: Sequence[StateColumn], slots: Sequence[int], count: int) -> None:
        """Make it.

        Args:
            columns: of the newest version.
            slots: theirs.
            count: how many there are.
        """
        self.columns = list(columns)
        self.count = count
        self.dead = tuple(sorted(set(range(count)) - set(slots)))
        self.nothing: list[Any] = [None] * len(self.columns)
        self._slots = list(slots)
        self._whole = self._slots == list(range(count))
        self._multi = [
            (index, slot, make_assembler(column))
            for index, (slot, column) in enumerate(zip(slots, columns, strict=True))
            if column.type is not None and column.type.is_multicell
        ]

    def image(self, state: RowState | None) -> list[Any]:
        """The values; a list of its own."""
        if state is None:
            return self.nothing
        values = state.values
        image = values.copy() if self._whole else [values[slot] for slot in self._slots]
        if self._multi and state.complex:
            complex_ = state.complex
            for index, slot, assemble in self._multi:
                column = complex_.get(slot)
                if column is not None:
                    image[index] = assemble(column.elements)
        return image

    def fit(self, state: RowState) -> None:
        """Give a state that is older than the newest version its slots, and take the cells of dropped columns from it."""
        missing = self.count - len(state.values)
        if missing > 0:
            state.values += [None] * missing
            state.times += [None] * missing
        if self.dead:
            forget_cells(state, self.dead)


def is_living(state: RowState, image: Sequence[Any]) -> bool:
    """Whether a row exists: it has liveness, or a regular cell that lives."""
    return (state.live is not None and not state.live[2]) or image.count(None) != len(image)


_DDL: Final = {
    Type.INT8: "tinyint",
    Type.INT16: "smallint",
    Type.INT32: "int",
    Type.INT64: "bigint",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "string",
}


def format_spark_type(schema: Schema | None) -> str:
    """Spark SQL's type of the JSON form of values (bytes are Base64)."""
    if schema is None:
        return "string"
    if schema.type is Type.ARRAY:
        return f"array<{format_spark_type(schema.value_schema)}>"
    if schema.type is Type.MAP:
        return f"map<{format_spark_type(schema.key_schema)},{format_spark_type(schema.value_schema)}>"
    if schema.type is Type.STRUCT:
        return (
            "struct<" + ",".join(f"`{field.name}`:{format_spark_type(field.schema)}" for field in schema.fields) + ">"
        )
    return _DDL[schema.type]


def live_rows(shape: TableShape) -> Callable[[Sequence[Any], int], LiveRow]:
    """The function from all values of a row, and its newest write time, to a ``LiveRow``."""
    columns = shape.columns
    schemas = [column_schema(column, "v", optional=True) for column in columns]
    types = tuple(format_spark_type(schema) for schema in schemas)
    names = [column.name for column in columns]
    floats = [
        name
        for name, schema in zip(names, schemas, strict=True)
        if schema is not None and schema.type in {Type.FLOAT32, Type.FLOAT64}
    ]
    encode, name_fields = json_images(columns), make_row_namer(columns)
    constants = dict(shape.constants)
    table = f"{constants.get('keyspace', '')}.{constants.get('table', '')}"

    def make(values: Sequence[Any], time: int) -> LiveRow:
        named_values = values if name_fields is None else name_fields(values)
        values_by_name = dict(zip(names, msgspec.json.decode(encode(named_values)).values(), strict=True))
        for name in floats:
            if values_by_name[name] is not None:
                values_by_name[name] = float(values_by_name[name])
        return LiveRow(table, values_by_name, types, time)

    return make


def make_assembler(column: StateColumn) -> Assemble:
    """Return the function that assembles a multicell column's value from its cells; its result is None if no cell is live.

    Elements are in the order of their paths, as queries show them.
    """
    kind = column.type
    if kind is not None and kind.name == "udt":
        names = [(name, field_key(position)) for position, name in enumerate(kind.field_names)]

        def fields(elements: Mapping[bytes, Element]) -> dict[str, Any] | None:
            fields_by_name = {name: element.value for name, key in names if (element := elements.get(key)) is not None}
            if all(value is None for value in fields_by_name.values()):
                return None
            return {name: fields_by_name.get(name) for name, _ in names}

        return fields
    if kind is not None and kind.name == "set":
        return lambda elements: [element.path for element in _select_living(elements)] or None
    if kind is not None and kind.name == "map":
        return lambda elements: (
            [{"key": element.path, "value": element.value} for element in _select_living(elements)] or None
        )
    return lambda elements: [element.value for element in _select_living(elements)] or None


def _select_living(elements: Mapping[bytes, Element]) -> list[Element]:
    return [element for _, element in sorted(elements.items()) if element.value is not None]
