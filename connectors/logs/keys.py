"""Keys of records by a template of columns. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.errors import ConfigInvalid
from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.operators.writing import Set
from connectors.logs.rules.plans import AddFields
from connectors.logs.rules.records import ORIGIN_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.logs.rules.records import LineOrigin, Record
    from connectors.schema import Schema

_KEY = "key"


def make_keys(
    template: str | None, schemas: Mapping[str, Schema], id_column: str
) -> dict[str, Callable[[Record, LineOrigin], str]]:
    """Functions that make the key of a row, for the tables that have all columns of the template.

    Args:
        template: as of the operator ``set``; None for no keys.
        schemas: table -> its columns.
        id_column: the column that all tables have in addition.

    Raises:
        ConfigInvalid: it is no template.
    """
    if not template:
        return {}
    try:
        plan = Set(fields={_KEY: template}).make_plan()
    except OperatorOptionInvalid as error:
        raise ConfigInvalid(error.message) from None
    if not isinstance(plan, AddFields):
        raise TypeError(f"the operator set makes {type(plan).__name__}")
    compute = plan.compute

    def make(row: Record, origin: LineOrigin) -> str:
        return str(compute(row, origin)[0])

    return {
        table: make
        for table, schema in schemas.items()
        if all(
            source == id_column or source in ORIGIN_FIELDS or schema.field(str(source)) is not None
            for source in plan.sources
        )
    }
