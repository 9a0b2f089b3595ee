"""The fast path of the contract: rows of a source to bytes for Kafka, without a ``SourceRecord`` for each.

``TaskContext.wire`` is None unless the runtime can do without records: a task that finds it there asks for a ``RowWriter`` per
table, lets its generated code build what the writer's forms say, and puts the bytes into ``Batch.encoded``. A connector never
knows which bytes a converter makes: a ``RowForm`` gives it expressions for generated code and the values behind them.
Whatever is unusual stays in ``Batch.records``; ``EncodedBatch.after`` keeps the order of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from connectors.api import Header, SourceRecord
    from connectors.schema import Schema

#: A member whose value differs from row to row.
ROW: Final = "row"
#: A member whose value all rows of one call share: an argument of ``RowForm.constants``.
EVENT: Final = "event"


class Fixed(NamedTuple):
    """A member that has the same value in all records."""

    value: Any


class Items(NamedTuple):
    """A member that is an array of structs, see ``RowForm.array``: how often the members of these change."""

    shape: Shape


#: How often the members of a struct change, by their names; a mapping stands for a struct that is built separately.
Shape = Mapping[str, "Literal['row', 'event'] | Fixed | Items | Shape"]


class Encoding(NamedTuple):
    """Keys or values of one table: their schema (a struct) and how often each member changes."""

    schema: Schema
    shape: Shape


class RowForm(Protocol):
    """How the runtime wants the keys or the values of one table, as parts of generated code.

    ``path`` says where in the struct: () is the struct itself, ``("source", "row")`` the member ``row`` of its ``source``.

    Attributes:
        names: what the expressions refer to; add them to the globals of the generated code when all expressions are there.
        constants: makes the parts that the rows of an event share, of the members marked ``EVENT`` in the order of ``events``.
        events: the paths of these members.
        unpack: names that the result of ``constants`` is assigned to before the loop over the rows; "" where there are none.
    """

    names: dict[str, Any]
    constants: Callable[..., tuple[Any, ...]]
    events: tuple[tuple[str, ...], ...]
    unpack: str

    def unscaled(self, path: tuple[str, ...]) -> bool:
        """Whether a decimal there is given as the bytes of its unscaled value (``unscaled_bytes``), not as a Decimal."""

    def leaf(self, path: tuple[str, ...], name: str, *, nullable: bool = True, checked: bool = False) -> str:
        """The expression of a member marked ``ROW``.

        Args:
            path: the member.
            name: the variable with the value as a ``SourceRecord`` would have it (see ``unscaled`` for decimals).
            nullable: whether the value may be None.
            checked: whether the value may be something else than its schema says; costs more, and raises then.
        """

    def build(self, path: tuple[str, ...], members: Mapping[str, str]) -> str:
        """The expression of a struct: ``members`` are the expressions of those marked ``ROW`` and of structs in it.

        A struct in it may be "None" if its schema is optional. Structs in it are built before it.

        Raises:
            ValueError: records of this kind (with these "None") can't be encoded so.
        """

    def array(self, path: tuple[str, ...], elements: Sequence[str]) -> str:
        """The expression of an array marked ``Items``; it counts as a struct that is built before the one it is in.

        Args:
            path: the member.
            elements: at least one: expressions of ``build(path)``, or variables with what these have made.
        """

    def encode(self, rows: list[Any]) -> list[bytes]:
        """The bytes of structs that expressions of ``build(())`` have made, or of keys that are no structs.

        Call it per event: a few rows fit into the cache.

        Raises:
            Exception: a value can't be encoded: hand over the event's rows as records, for which that is reported.
        """


class RowWriter(Protocol):
    """The agreement with the runtime about one table.

    Attributes:
        topic: where the records go.
        key: the form of keys; None: they are null.
        value: the form of values; a tombstone is None instead of bytes.
        shared: members of the values, marked ``EVENT``, that headers show: for ``EncodedBatch.shared``.
    """

    topic: str
    shared: tuple[tuple[str, ...], ...]
    key: RowForm | None
    value: RowForm


class Wire(Protocol):
    """Makes writers; belongs to one task."""

    async def writer(
        self,
        topic: str,
        key: Encoding | Schema | None,
        value: Encoding,
        headers: Sequence[Header] = (),
        *,
        shares: bool = False,
    ) -> RowWriter | None:
        """A writer for records of a topic; None: only records will do.

        Args:
            topic: the topic.
            key: the keys; a schema: they are no structs, and ``encode`` takes them as they are; None: they are null.
            value: the values.
            headers: those of each record.
            shares: whether the connector hands over ``EncodedBatch.shared``.

        Raises:
            Fatal: a service that a converter needs refuses this client.
        """


class EncodedBatch(msgspec.Struct, gc=False):
    """Records of one topic as bytes, in the order of the source; a part of a ``Batch``, whose ``offsets`` are theirs too.

    Attributes:
        writer: of the records' table.
        after: how many of ``Batch.records`` come before them.
        keys: of each record; None: all are null.
        values: of each record; None for a tombstone.
        records: makes all of them again as ``SourceRecord``s, each with its own position. Called only for records that can't be
            sent, and by ``fast.path=verify``; until the batch is delivered.
        timestamps: of each record, see ``SourceRecord``; None: none has one.
        shared: the values of ``RowWriter.shared``, the same for all these records.
    """

    writer: RowWriter
    after: int
    keys: list[bytes] | None
    values: list[bytes | None]
    records: Callable[[], list[SourceRecord]]
    timestamps: list[int | None] | None = None
    shared: tuple[Any, ...] = ()


def unscaled_bytes(number: int) -> bytes:
    """The shortest big-endian two's complement, as ``java.math.BigInteger`` has it."""
    return number.to_bytes(((number if number >= 0 else ~number).bit_length() >> 3) + 1, "big", signed=True)
