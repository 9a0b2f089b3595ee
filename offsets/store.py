"""The offsets topic: the latest offset of every source partition of every connector."""

from __future__ import annotations

import asyncio
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, Skippable
from offsets.log import CompactedLog
from offsets.positions import OffsetIndex, Position, encode_offset, to_canonical
from offsets.records import decode_offset, decode_offset_key
from offsets.unreadable import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aiokafka import AIOKafkaProducer

    from offsets.fetch import FetchedRecord, Isolation

_NULL: Final = b"null"
#: Offsets decoded before the event loop gets its turn: about 5 ms.
_SLICE: Final = 1000
_BY_TIME: Final = itemgetter(1)
#: Each transaction of each task in the cluster writes here, and each worker reads it: not one by one.
_GATHER_S: Final = 0.1


class OffsetTable:
    """Folds records of the offsets topic: connector -> key bytes -> (time, value bytes). JSON values stay undecoded."""

    def __init__(self) -> None:
        self._connectors: dict[str, dict[bytes, tuple[int, bytes]]] = {}
        self._owners: dict[bytes, dict[bytes, tuple[int, bytes]]] = {}
        self.unreadable = Unreadable("offsets")

    def __len__(self) -> int:
        return len(self._owners)

    def apply(self, records: Iterable[FetchedRecord]) -> None:
        """Fold records of one partition in, in order. Blocks for 0.4 us a record; never raises for a record's content."""
        last: dict[bytes | None, FetchedRecord] = {}
        for record in records:
            last[record.key] = record
        owners = self._owners
        for key, record in last.items():
            value = record.value
            owner = owners.get(key) if key is not None else None
            if key is None or owner is None:
                try:
                    connector, _ = decode_offset_key(key)
                except Skippable as error:
                    self.unreadable.add(key, error)
                    continue
                owner = self._connectors.setdefault(connector, {})
            if value is None or value == _NULL:
                if key is not None and owner.pop(key, None) is not None:
                    del owners[key]
            elif key is not None:
                owners[key] = owner
                owner[key] = (record.timestamp, value)

    def connectors(self) -> list[str]:
        """Connectors that have offsets."""
        return [name for name, offsets in self._connectors.items() if offsets]

    def raw(self, connector: str) -> list[tuple[bytes, bytes]]:
        """Key and value bytes, oldest first: where one partition has two spellings, the later one counts."""
        offsets = self._connectors.get(connector, {})
        return [(key, value) for key, (_, value) in sorted(offsets.items(), key=_BY_TIME)]


def plan_write(
    connector: str,
    saved_pairs: Sequence[tuple[bytes, bytes]],
    changes: Sequence[tuple[Position, Position | None]],
) -> list[tuple[bytes, bytes | None]]:
    """The records that set or reset offsets.

    A partition that is in the log under several spellings gets all of them changed: one left alone would come back.

    Raises:
        Fatal: a position that can't be stored.
    """
    spellings: dict[bytes, list[bytes]] = {}
    for key, _ in saved_pairs:
        spellings.setdefault(to_canonical(decode_offset_key(key)[1]), []).append(key)
    index = OffsetIndex(connector, saved_pairs)
    planned: list[tuple[bytes, bytes | None]] = []
    for partition, offset in changes:
        value = encode_offset(offset)
        planned += [(key, value) for key in spellings.get(to_canonical(partition)) or [index.key_for(partition)]]
    return planned


class OffsetStore:
    """Follows the offsets topic and answers from memory.

    Args:
        topic: an existing compacted topic.
        client: aiokafka client arguments.
        isolation: ``read_committed`` when exactly once is on.
        producer: further aiokafka producer arguments.
    """

    def __init__(
        self,
        topic: str,
        client: Mapping[str, Any],
        *,
        isolation: Isolation = "read_committed",
        producer: Mapping[str, Any] | None = None,
    ) -> None:
        self._table = OffsetTable()
        self._log = CompactedLog(
            topic, client, self._take_records, isolation=isolation, producer=producer, gather_s=_GATHER_S
        )

    def renew(self, arguments: Mapping[str, Any]) -> None:
        """Log in with the credentials among ``arguments`` from the next connection on."""
        self._log.renew(arguments)

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._log.topic

    @property
    def unreadable(self) -> Unreadable:
        """Records that made no sense."""
        return self._table.unreadable

    @property
    def connected(self) -> bool:
        """Whether the follower has a working connection now."""
        return self._log.connected

    @property
    def lost(self) -> bool:
        """Whether the topic was deleted, recreated or emptied: see ``CompactedLog.lost``."""
        return self._log.lost

    async def start(self, deadline_s: float = 60.0) -> None:
        """Read the topic to its end, and follow it.

        Raises:
            Retriable: not within ``deadline_s``.
        """
        await self._log.start(deadline_s)

    async def stop(self) -> None:
        """Stop; takes at most a few seconds."""
        await self._log.stop()

    async def read_to_end(self, deadline_s: float = 30.0, *, open_transactions: bool = False) -> None:
        """Wait until what is in the topic now is visible here; with ``open_transactions``, also what is behind those.

        See ``CompactedLog.read_to_end``.

        Raises:
            Retriable: not within ``deadline_s``.
        """
        await self._log.read_to_end(deadline_s, open_transactions=open_transactions)

    def connectors(self) -> list[str]:
        """Connectors that have offsets."""
        return self._table.connectors()

    def raw(self, connector: str) -> list[tuple[bytes, bytes]]:
        """Raw JSON keys and values of a connector, oldest first; cheap to hand to ``OffsetIndex`` in another process."""
        return self._table.raw(connector)

    def connector_offsets(self, connector: str) -> list[tuple[Position, Position]]:
        """(partition, offset) of a connector; blocks for about 3 us each. Unreadable ones are left out and counted."""
        positions: dict[bytes, tuple[Position, Position]] = {}
        self._decode_pairs(self._table.raw(connector), positions)
        return list(positions.values())

    async def positions(self, connector: str) -> list[tuple[Position, Position]]:
        """The same, giving the event loop its turn every few milliseconds: for connectors with very many."""
        decoded: dict[bytes, tuple[Position, Position]] = {}
        pairs = self._table.raw(connector)
        for start in range(0, len(pairs), _SLICE):
            self._decode_pairs(pairs[start : start + _SLICE], decoded)
            await asyncio.sleep(0)
        return list(decoded.values())

    def _decode_pairs(
        self, pairs: Sequence[tuple[bytes, bytes]], decoded: dict[bytes, tuple[Position, Position]]
    ) -> None:
        for key, value in pairs:
            partition = decode_offset_key(key)[1]
            try:
                decoded[to_canonical(partition)] = (partition, decode_offset(value))
            except (Skippable, Fatal) as error:
                self._table.unreadable.add(key, error)

    async def write(
        self,
        connector: str,
        changes: Sequence[tuple[Position, Position | None]],
        deadline_s: float = 30.0,
        *,
        producer: AIOKafkaProducer | None = None,
    ) -> None:
        """Set offsets, or reset them with None, and wait until the change is visible here.

        With ``producer`` (in a transaction that the caller has started) this does not wait: the change becomes visible with the
        commit.

        Raises:
            Retriable: not acknowledged, or not read back, within ``deadline_s`` each.
            Fatal: a position that can't be stored.
        """
        await self._log.send_all(
            plan_write(connector, self._table.raw(connector), changes), deadline_s, producer=producer
        )
        if producer is None:
            await self._log.read_to_end(deadline_s, open_transactions=True)

    def _take_records(self, partition: int, records: Iterable[FetchedRecord]) -> None:
        del partition
        self._table.apply(records)
