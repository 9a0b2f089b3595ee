"""The demo's payments, in Cassandra: rows that come, change and go, one at a time and a customer's all at once."""

# ruff: noqa: S608  # the names in statements are this module's
import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from compose.local.cassandra import CassandraNode
from compose.local.cassandra_cluster import execute_cql
from compose.local.scylla.cells.codec import encode_cell
from compose.local.scylla.wire import WireConnection
from connectors.cql.types import CqlType
from connectors.cql.values import make_decoder

KEYSPACE = "shop"
#: In Cassandra.
PAYMENTS = f"{KEYSPACE}.payments"
_TYPES = {name: CqlType(kind) for name, kind in (
    ("customer", "int"), ("number", "int"), ("method", "text"), ("amount", "decimal"), ("refunded", "boolean"),
    ("received", "timestamp"))}  # fmt: skip
_METHODS = ("card", "cash", "invoice", "voucher")


class Payment(NamedTuple):
    """A write: the statement, and the columns that its markers stand for with their values."""

    statement: str
    values: dict[str, Any]


@dataclass
class Payments:
    """The table.

    Attributes:
        node: Where it is.
    """

    node: CassandraNode
    _connection: WireConnection = field(init=False)
    _payment_keys: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._connection = WireConnection(self.node.address)

    def create(self) -> None:
        """Make keyspace and table. Blocks."""
        columns = ", ".join(f"{name} {kind.name}" for name, kind in _TYPES.items())
        execute_cql(self.node.address,
                f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
                f"CREATE TABLE {PAYMENTS} ({columns}, PRIMARY KEY (customer, number)) WITH cdc = true")  # fmt: skip

    def next(self, chance: random.Random, customer: int, number: int) -> tuple[str, Payment]:
        """The next write, of an order or of one of the payments before, with its kind."""
        draw = chance.random()
        if draw < 0.6 or not self._payment_keys:
            self._payment_keys.append((customer, number))
            values = {"customer": customer, "number": number, "method": chance.choice(_METHODS),
                      "amount": f"{chance.randrange(100, 9999) / 100:.2f}", "refunded": False,
                      "received": 1_780_000_000_000 + len(self._payment_keys)}  # fmt: skip
            return "insert", Payment(f"INSERT INTO {PAYMENTS} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
                                     values)  # fmt: skip
        customer, number = self._payment_keys[chance.randrange(len(self._payment_keys))]
        key = {"customer": customer, "number": number}
        if draw < 0.85:
            return "update", Payment(f"UPDATE {PAYMENTS} SET refunded = ? WHERE customer = ? AND number = ?",
                                     {"refunded": True, **key})  # fmt: skip
        if draw < 0.97:
            return "delete", Payment(f"DELETE FROM {PAYMENTS} WHERE customer = ? AND number = ?", key)
        return "delete", Payment(f"DELETE FROM {PAYMENTS} WHERE customer = ?", {"customer": customer})

    def apply(self, payment: Payment) -> None:
        """Write it. Blocks."""
        self._connection.execute(
            payment.statement, [encode_cell(_TYPES[name], value) for name, value in payment.values.items()]
        )

    def rows(self) -> list[dict[str, Any]]:
        """Read all rows of the table. Blocks."""
        decode = {name: make_decoder(kind) for name, kind in _TYPES.items()}
        return [
            {name: decode[name](cell) if cell is not None else None for name, cell in row.items()}
            for row in self._connection.query(f"SELECT * FROM {PAYMENTS}")
        ]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
