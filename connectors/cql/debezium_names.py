"""Debezium's names for CQL types that Connect has no type for, and their values: uuid, time, decimal and varint."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors import schema as connect
from connectors.schema import Schema, Type, struct

if TYPE_CHECKING:
    from collections.abc import Callable

UUID: Final = Schema(Type.STRING, optional=True, name="io.debezium.data.Uuid", version=1)
NANO_TIME: Final = Schema(Type.INT64, optional=True, name="io.debezium.time.NanoTime", version=1)
VARIABLE_SCALE_DECIMAL: Final = struct(
    "io.debezium.data.VariableScaleDecimal",
    {"scale": connect.INT32, "value": connect.BYTES},
    optional=True,
    version=1,
    doc="Variable scaled decimal",
)


class ValueForm(NamedTuple):
    """How values of a type are written.

    Attributes:
        schema: theirs.
        change: what turns a value that is not null into the form; None: it is right as it is.
    """

    schema: Schema
    change: Callable[[Any], Any] | None


def variable_scale(decimal_digits: str) -> dict[str, Any]:
    """A decimal's text as the value of ``VARIABLE_SCALE_DECIMAL``."""
    sign, digits, exponent = Decimal(decimal_digits).as_tuple()
    unscaled = int(Decimal((sign, digits, 0)))
    size = (~unscaled if sign else unscaled).bit_length() // 8 + 1
    return {"scale": -int(exponent), "value": unscaled.to_bytes(size, "big", signed=True)}


#: By ``decimal.handling.mode``; values are text, and stay what they are with ``string``.
DECIMAL_FORMS: Final = {
    "double": ValueForm(connect.OPTIONAL_FLOAT64, float),
    "string": ValueForm(connect.OPTIONAL_STRING, None),
    "precise": ValueForm(VARIABLE_SCALE_DECIMAL, variable_scale),
}
#: By ``varint.handling.mode``; values are text.
VARINT_FORMS: Final = {
    "string": ValueForm(connect.OPTIONAL_STRING, None),
    "precise": ValueForm(connect.decimal(0, optional=True), Decimal),
}


class ValueForms(NamedTuple):
    """The forms that values get; the defaults are those of the Java connector for Scylla.

    Attributes:
        decimals: ``decimal.handling.mode``.
        varints: ``varint.handling.mode``: precise or string.
        logical: whether uuids and times of the day have Debezium's names.
    """

    decimals: str = "string"
    varints: str = "string"
    logical: bool = False

    def form(self, kind: str) -> ValueForm | None:
        """The form of the CQL type ``kind``; None where these options say nothing of it."""
        if kind == "decimal":
            return DECIMAL_FORMS[self.decimals]
        if kind == "varint":
            return VARINT_FORMS[self.varints]
        if self.logical and kind in {"uuid", "timeuuid"}:
            return ValueForm(UUID, None)
        return ValueForm(NANO_TIME, None) if self.logical and kind == "time" else None
