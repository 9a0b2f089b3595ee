"""Keys and values of source offsets: the same logical partition always gets the very same key bytes.

Kafka compacts by key bytes, and Connect finds an offset by them. Java writes a partition's fields in the order of its
``HashMap``, so one logical partition can have more than one spelling; a spelling that is in the log already is used again, and
a new partition is spelled as Java would.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import Fatal, Skippable
from offsets.records import decode_offset, decode_offset_key, java_json, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: A source partition or a source offset.
Position = dict[str, Any]

_SORTED: Final = orjson.OPT_SORT_KEYS
_PRIMITIVES: Final = (str, int, float, bytes)
#: ``HashMap``'s first capacity, and how full it gets before it doubles.
_CAPACITY: Final = 16
_LOAD: Final = 0.75


def position_problem(position: object) -> str | None:
    """Return what is wrong with a source partition or offset, as Connect's ``OffsetUtils`` would say, or None."""
    if not isinstance(position, dict):
        return "Offsets must be specified as a Map"
    for name, value in position.items():
        if not isinstance(name, str):
            return f"Offsets may only use String keys, but {name!r} is a {type(name).__name__}"
        if value is not None and not isinstance(value, _PRIMITIVES):
            return (
                f"Offsets may only contain primitive types as values, but field {name} contains {type(value).__name__}"
            )
    return None


def java_hash(string: str) -> int:
    """Java's ``String.hashCode`` as an unsigned 32-bit number."""
    code = 0
    units = string.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return code


def java_order(names: Iterable[str]) -> tuple[str, ...]:
    """``names`` in the order in which Java's ``HashMap`` iterates over them after they were put in the given order."""
    listed = tuple(names)
    capacity = _CAPACITY
    while len(listed) > capacity * _LOAD:
        capacity *= 2

    def bucket(name: str) -> int:
        code = java_hash(name)
        return (code ^ code >> 16) & capacity - 1

    return tuple(sorted(listed, key=bucket))


def to_canonical(position: Position) -> bytes:
    """A spelling that is the same for every order of fields; numbers 1 and 1.0 differ, as in Java.

    Raises:
        Fatal: the position holds what Connect could not store.
    """
    try:
        return orjson.dumps(position, default=_to_plain, option=_SORTED)
    except orjson.JSONEncodeError as error:
        raise Fatal(
            f"source position {position!r} can't be stored: {position_problem(position) or error}. Use a flat mapping "
            "of strings to strings, 64-bit integers, floats, booleans, bytes and null"
        ) from error


def encode_key(connector: str, partition: Position, saved_keys: Mapping[bytes, bytes] | None = None) -> bytes:
    """The record key of an offset: the one in ``saved_keys`` (canonical form -> key) if there is one, else Java's spelling.

    Raises:
        Fatal: the partition holds what Connect could not store.
    """
    form = to_canonical(partition)
    saved_key = saved_keys.get(form) if saved_keys else None
    if saved_key is not None:
        return saved_key
    plain = orjson.loads(form)  # bytes have become base64 text here, as Java writes them
    return java_json([connector, {name: plain[name] for name in java_order(partition)}])


def encode_offset(offset: Position | None) -> bytes | None:
    """The record value of an offset; None resets.

    Raises:
        Fatal: the offset holds what Connect could not store.
    """
    if offset is None:
        return None
    try:
        return java_json(offset)
    except Skippable:
        return java_json(orjson.loads(to_canonical(offset)))  # with bytes as base64, or a good complaint


def _to_plain(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    raise TypeError(f"type {type(value).__name__}")


class OffsetIndex:
    """The offsets of one connector, and the key for each partition. Used by the task host at every commit; never blocks.

    Args:
        connector: its name.
        pairs: raw keys and values from the offsets topic (``OffsetStore.raw``); a later pair wins over an earlier one of the
            same partition, so those of a connector's own offsets topic go after those of the worker's.
    """

    def __init__(self, connector: str, pairs: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.connector = connector
        self._pairs: list[tuple[bytes, bytes]] | None = list(pairs)
        self._keys: dict[bytes, bytes] = {}
        self._values: dict[bytes, bytes | Position] = {}
        self._by_identity: dict[int, tuple[Position, bytes]] = {}
        self._orders: dict[tuple[str, ...], tuple[str, ...]] = {}

    def __len__(self) -> int:
        self._build_index()
        return len(self._values)

    def get(self, partition: Position) -> Position | None:
        """The saved offset of ``partition``, or None.

        Raises:
            Fatal: what is saved is not an offset; a silent restart from scratch would lose or repeat data.
        """
        self._build_index()
        return self._read_offset(to_canonical(partition))

    def items(self) -> list[tuple[Position, Position]]:
        """All saved (partition, offset) pairs.

        Raises:
            Fatal: as ``get``.
        """
        self._build_index()
        pairs = []
        for form in list(self._values):
            offset = self._read_offset(form)
            if offset is not None:
                pairs.append((parse_json(form), offset))
        return pairs

    def put(self, partition: Position, offset: Position | None) -> None:
        """Remember what has become durable, so that ``get`` and ``items`` are current; None forgets."""
        self._build_index()
        form = to_canonical(partition)
        if offset is None:
            self._values.pop(form, None)
        else:
            self._values[form] = offset

    def key_for(self, partition: Position) -> bytes:
        """The record key for ``partition``: 0.1 us for a dict seen before, about 1 us for an equal one.

        Raises:
            Fatal: the partition holds what Connect could not store.
        """
        hit = self._by_identity.get(id(partition))
        if hit is not None and hit[0] is partition:
            return hit[1]
        self._build_index()
        form = to_canonical(partition)
        key = self._keys.get(form)
        if key is None:
            key = self._keys[form] = self._spell_key(form, partition)
        # A connector that makes a new dict per record would fill this: it is only worth keeping for few objects per partition.
        if len(self._by_identity) > 4 * len(self._keys) + 64:
            self._by_identity.clear()
        self._by_identity[id(partition)] = (partition, key)
        return key

    def _spell_key(self, form: bytes, partition: Position) -> bytes:
        names = tuple(partition)
        order = self._orders.get(names)
        if order is None:
            order = self._orders[names] = java_order(names)
        plain = orjson.loads(form)
        return java_json([self.connector, {name: plain[name] for name in order}])

    def _build_index(self) -> None:
        if self._pairs is None:
            return
        pairs, self._pairs = self._pairs, None
        for key, value in pairs:
            form = to_canonical(decode_offset_key(key)[1])
            self._keys[form] = key
            self._values[form] = value

    def _read_offset(self, form: bytes) -> Position | None:
        saved = self._values.get(form)
        if not isinstance(saved, bytes):
            return saved
        try:
            offset = decode_offset(saved)
        except Skippable as error:
            raise Fatal(
                f"the saved offset of partition {form.decode()} of connector {self.connector!r} is unreadable "
                f"({error}): set or delete it with PATCH or DELETE /connectors/{{name}}/offsets"
            ) from error
        self._values[form] = offset
        return offset
