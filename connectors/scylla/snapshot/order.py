"""The position of a row in its partition, so that a snapshot can resume behind a row that does not exist any more. Pure.

A position is a string that sorts as the server sorts clustering keys: "" for the static cells, which come first, else
hexadecimal digits. It is known only for types whose order is certain, and of long keys only the start: a wrong position would
lose rows; one that is not known makes the rows of a partition come again.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.scylla.model import ScyllaColumn
    from connectors.scylla.snapshot.rows import SnapshotRow

#: Characters of the hash of a row's key; the first half is its partition's.
DIGEST_CHARS: Final = 32
PARTITION_CHARS: Final = 16
#: Between the hash of a row's key and its place; without it the place is not known.
ORDER_SEPARATOR: Final = "."
#: Bytes of a place at most, since it is saved.
_MOST: Final = 64


def _order_number(value: int) -> bytes:
    return (value + (1 << 63)).to_bytes(8)


def _order_bytes(value: bytes) -> bytes:
    # Shorter ones first, whatever column comes next: the end sorts before all that may follow.
    return value.replace(b"\0", b"\0\xff") + b"\0\0"


def _order_string(value: str) -> bytes:
    return _order_bytes(value.encode())


def _order_timeuuid(value: str) -> bytes:
    # By time; the rest is compared as signed bytes.
    number = uuid.UUID(value)
    return number.time.to_bytes(8) + bytes(byte ^ 0x80 for byte in number.bytes[8:])


_FORMS: Final[dict[str, Callable[[Any], bytes]]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "timestamp", "date", "time", "boolean"), _order_number),
    **dict.fromkeys(("text", "varchar", "ascii"), _order_string),
    "blob": _order_bytes,
    "timeuuid": _order_timeuuid,
}
_COMPLEMENT: Final = bytes(range(255, -1, -1))


def place_of(clustering: Sequence[ScyllaColumn]) -> Callable[[Sequence[Any]], str | None] | None:
    """The function that gives the place of a row with given values of the clustering columns, None if it is not known.

    Returns:
        None: there are types whose order is not certain.
    """
    if not all(column.type.name in _FORMS for column in clustering):
        return None
    forms = [(_FORMS[column.type.name], column.reversed) for column in clustering]

    def encode_order(values: Sequence[Any]) -> str | None:
        result = b""
        try:
            for (form, backwards), value in zip(forms, values, strict=True):
                part = form(value)
                result += part.translate(_COMPLEMENT) if backwards else part
        except (TypeError, ValueError, AttributeError, OverflowError):
            return None  # an empty value of a type that has none, or a cell that can't be decoded
        return result[:_MOST].hex()

    return encode_order


class Seek:
    """Finds what comes after the row that was sent last, in pages read from the beginning of its token.

    Args:
        token: the row's.
        row: the row: hash of its key and its place, as in ``SnapshotRow.digest``.
    """

    def __init__(self, token: int, row: str) -> None:
        #: The row is gone and it is unknown what came after it: all rows of the token have to be sent again.
        self.lost = False
        self._token = token
        self._row = row[:DIGEST_CHARS]
        _, order_key, self._row_order = row.partition(ORDER_SEPARATOR)
        self._sure = bool(order_key)
        self._last = ""
        #: Whether rows of its partition were met, or only its static cells; and other partitions before.
        self._rows = False
        self._seen = False
        self._others = False

    def rest(self, items: list[SnapshotRow], *, has_more: bool) -> list[SnapshotRow] | None:
        """Return the rows of the next page that have to be sent.

        Args:
            items: the page.
            has_more: whether another page follows.

        Returns:
            None: nothing so far, look in the next page; or ``lost``.
        """
        stop = next((at for at, item in enumerate(items) if item.token != self._token), len(items))
        for at in range(stop):
            if items[at].digest[:DIGEST_CHARS] == self._row:
                return items[at + 1 :]
        after = None
        for at in range(stop):
            item = items[at]
            if item.digest[:PARTITION_CHARS] != self._row[:PARTITION_CHARS]:
                # Partitions with the same token.
                if self._seen:
                    stop = at
                    break
                self._others = True
                continue
            self._seen = True
            if item.static:
                continue
            self._rows = True
            _, order_key, row_order = item.digest.partition(ORDER_SEPARATOR)
            # Beginnings of long keys may be equal; they never go back, or the server sorts in another way than is thought.
            self._sure = self._sure and bool(order_key) and row_order != self._row_order and row_order >= self._last
            self._last = row_order
            if after is None and row_order > self._row_order:
                after = at
        if after is not None and self._sure:
            return items[after:]
        if has_more and stop == len(items):
            return None
        self.lost = not self._sure if self._rows else self._others and not self._seen
        return None if self.lost else items[stop:]
