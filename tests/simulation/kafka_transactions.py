"""Transactional producers of the modelled Kafka: epochs, and transactions with their markers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

INVALID_EPOCH: Final = 47
INVALID_STATE: Final = 48
INVALID_MAPPING: Final = 49
CONCURRENT: Final = 51
#: A broker's answer to a producer whose transaction it could not ask about: "not enough replicas", which all clients retry.
RETRY_WRITE: Final = 19

Partition = tuple[str, int]


@dataclass
class Transaction:
    """A transactional id and its transaction."""

    name: str
    producer: int
    epoch: int
    timeout_s: float
    #: Empty, Ongoing, Commit, Abort (markers are being written), Committed, Aborted.
    state: str = "Empty"
    partitions: set[Partition] = field(default_factory=set)
    expires: asyncio.TimerHandle | None = None


class Transactions:
    """All transactional ids, on whichever brokers coordinate them.

    Args:
        write_markers: called to write the markers of a transaction that has been decided; calls ``finish`` when they are there.
        schedule: called when a transaction begins, to make its timeout.
    """

    def __init__(
        self,
        write_markers: Callable[[Transaction], None],
        schedule: Callable[[Transaction], asyncio.TimerHandle],
    ) -> None:
        self.by_name: dict[str, Transaction] = {}
        self._write_markers = write_markers
        self._schedule = schedule
        self._producers = 1000

    def new_producer(self) -> int:
        """A producer id."""
        self._producers += 1
        return self._producers

    def init(self, name: str, timeout_s: float) -> tuple[int, int, int]:
        """An InitProducerId request: error code, producer, epoch."""
        transaction = self.by_name.get(name)
        if transaction is None:
            transaction = self.by_name[name] = Transaction(name, self.new_producer(), 0, timeout_s)
            return 0, transaction.producer, transaction.epoch
        if transaction.state in ("Commit", "Abort"):
            return CONCURRENT, -1, -1
        transaction.epoch += 1
        if transaction.state == "Ongoing":
            self._decide(transaction, commit=False)
            return CONCURRENT, -1, -1
        transaction.state, transaction.timeout_s = "Empty", timeout_s
        return 0, transaction.producer, transaction.epoch

    def _check(self, name: str, producer: int, epoch: int) -> tuple[int, Transaction | None]:
        transaction = self.by_name.get(name)
        if transaction is None or transaction.producer != producer:
            return INVALID_MAPPING, None
        return (0, transaction) if epoch == transaction.epoch else (INVALID_EPOCH, None)

    def add(self, name: str, producer: int, epoch: int, partitions: set[Partition]) -> int:
        """An AddPartitionsToTxn request; returns the error code."""
        error, transaction = self._check(name, producer, epoch)
        if transaction is None:
            return error
        if transaction.state in ("Commit", "Abort"):
            return CONCURRENT
        if transaction.state != "Ongoing":
            transaction.state = "Ongoing"
            transaction.partitions = set()
            transaction.expires = self._schedule(transaction)
        transaction.partitions |= partitions
        return 0

    def end(self, name: str, producer: int, epoch: int, *, commit: bool) -> int:
        """An EndTxn request; returns the error code."""
        error, transaction = self._check(name, producer, epoch)
        if transaction is None:
            return error
        if transaction.state == "Ongoing":
            self._decide(transaction, commit=commit)
            return 0
        expected_states = ("Commit", "Committed") if commit else ("Abort", "Aborted")
        if transaction.state == expected_states[0]:
            return CONCURRENT
        return 0 if transaction.state == expected_states[1] else INVALID_STATE

    def expire(self, transaction: Transaction, epoch: int) -> None:
        """A transaction has been open for too long: it is aborted, and its producer is fenced."""
        if transaction.state == "Ongoing" and transaction.epoch == epoch:
            transaction.epoch += 1
            self._decide(transaction, commit=False)

    def _decide(self, transaction: Transaction, *, commit: bool) -> None:
        if transaction.expires is not None:
            transaction.expires.cancel()
            transaction.expires = None
        transaction.state = "Commit" if commit else "Abort"
        self._write_markers(transaction)

    @staticmethod
    def finish(transaction: Transaction) -> None:
        """All markers are written."""
        transaction.state = "Committed" if transaction.state == "Commit" else "Aborted"
        transaction.partitions = set()

    def check_write(self, name: str, producer: int, epoch: int, partition: Partition) -> int:
        """The error code for a producer that writes to a partition; 0: it has added it to its open transaction."""
        error, transaction = self._check(name, producer, epoch)
        if transaction is None:
            return error
        if transaction.state in ("Commit", "Abort"):
            return RETRY_WRITE
        return 0 if partition in transaction.partitions else INVALID_STATE
