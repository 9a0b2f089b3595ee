"""Change events of Debezium's form, as far as a comparison of rows reads them. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


#: The most digits that a double is written with.
_DOUBLE_DIGITS: Final = 17


class RowChange(NamedTuple):
    """A change of a row, as a message of a flow's topics says it.

    Attributes:
        namespace: the table, as the flow's job names it.
        key: the row's key.
        row: the row afterwards; None: it is gone.
        order: the order number of the change; None: the message has none, and its offset counts.
    """

    namespace: str
    key: dict[str, Any]
    row: dict[str, Any] | None
    order: int | None = None


class EventSource(msgspec.Struct, gc=False):
    """Where an event is from: its table, and its place in the binlog."""

    db: Any = None
    table: Any = None
    file: Any = None
    pos: Any = None


class RowEvent(msgspec.Struct, gc=False):
    """The statement of an event about a row; a member that it lacks is None."""

    op: Any
    source: EventSource
    before: Any = None
    after: Any = None

    @classmethod
    def of(cls, value: dict[str, Any]) -> Self:
        """A decoded value that ``is_envelope``."""
        find = value["source"].get
        source = EventSource(find("db"), find("table"), find("file"), find("pos"))
        return cls(value["op"], source, value.get("before"), value.get("after"))


#: The fields of an event that a ``RowEvent`` has; None: all of the field.
ROW_EVENT_FIELDS: Final[Mapping[str, Mapping[str, None] | None]] = {
    **dict.fromkeys(RowEvent.__struct_fields__),
    "source": dict.fromkeys(EventSource.__struct_fields__),
}


class _Enveloped(msgspec.Struct):
    """An event with its schema."""

    payload: RowEvent


def read_fraction(text: str) -> float | Decimal:
    """A number with a point or an exponent: one with more digits than doubles are written with is a decimal."""
    if len(text) > _DOUBLE_DIGITS:
        number = Decimal(text)
        if len(number.as_tuple().digits) > _DOUBLE_DIGITS and number != float(text):
            return number
    return float(text)


def read_exact_fraction(text: str) -> float | Decimal:
    """As ``read_fraction``, where decimals are numbers, too: one that is not what its double is written as is a decimal."""
    number = float(text)
    return number if Decimal(text) == Decimal(repr(number)) else Decimal(text)


def event_decoder(
    other: Callable[[bytes], Any], read_number: Callable[[str], float | Decimal], *, enveloped: bool
) -> Callable[[bytes], Any]:
    """A function that reads messages in JSON: those of Debezium's form as a ``RowEvent``.

    Args:
        other: reads those of another form.
        read_number: reads a number with a point or an exponent.
        enveloped: whether a message has its schema with it.
    """
    decode_event = msgspec.json.Decoder(_Enveloped if enveloped else RowEvent, float_hook=read_number).decode

    def decode(data: bytes) -> Any:
        try:
            event: Any = decode_event(data)
        except msgspec.ValidationError:
            return other(data)
        return event.payload if enveloped else event

    return decode


def is_envelope(value: Any) -> bool:
    """Whether a decoded value is a change event of Debezium's form."""
    return isinstance(value, dict) and "op" in value and isinstance(value.get("source"), dict)
