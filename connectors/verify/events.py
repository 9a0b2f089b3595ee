"""Change events of Debezium's form, as far as a comparison of rows reads them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable


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


class _Enveloped(msgspec.Struct):
    """An event with its schema."""

    payload: RowEvent


_decode: Final = msgspec.json.Decoder(RowEvent).decode
_decode_enveloped: Final = msgspec.json.Decoder(_Enveloped).decode


def event_decoder(other: Callable[[bytes], Any], *, enveloped: bool) -> Callable[[bytes], Any]:
    """A function that reads messages in JSON: those of Debezium's form as a ``RowEvent``.

    Args:
        other: reads those of another form.
        enveloped: whether a message has its schema with it.
    """
    if enveloped:

        def decode_enveloped(data: bytes) -> Any:
            try:
                return _decode_enveloped(data).payload
            except msgspec.ValidationError:
                return other(data)

        return decode_enveloped

    def decode(data: bytes) -> Any:
        try:
            return _decode(data)
        except msgspec.ValidationError:
            return other(data)

    return decode


def is_envelope(value: Any) -> bool:
    """Whether a decoded value is a change event of Debezium's form."""
    return isinstance(value, dict) and "op" in value and isinstance(value.get("source"), dict)
