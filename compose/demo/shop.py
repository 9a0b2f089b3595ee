"""The demo's shop: customers in MariaDB, orders in Scylla, payments in Cassandra, requests in a log; from a seed."""

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pymysql
import pymysql.cursors

from compose.demo.payments import KEYSPACE, PAYMENTS, Payment, Payments
from compose.demo.requests import REQUESTS, AccessLog
from compose.local.scylla.client import Emulation
from compose.local.scylla.writes import Delete, Insert, Update, Write

#: In MariaDB.
CUSTOMERS = f"{KEYSPACE}.customers"
#: In Scylla.
ORDERS = f"{KEYSPACE}.orders"
TABLES = (CUSTOMERS, ORDERS, PAYMENTS, REQUESTS)
_NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Leslie", "Tony", "Margaret")
_CITIES = ("Arezzo", "Bergen", "Cork", "Delft", "Evora")
_TAGS = ("loyal", "late", "large")
_ITEMS = ("anvil", "bellows", "chisel", "drill", "easel", "file", "gimlet")


@dataclass
class Shop:
    """Customers, their orders and payments, each in a database with change data capture.

    Attributes:
        client: Where it writes orders.
        database: Where it writes customers.
        payments: Where it writes payments.
        requests: Where it logs requests.
        seed: What happens follows from it.
        counts: Writes so far by kind.
    """

    client: Emulation
    database: "pymysql.Connection[Any]"
    payments: Payments
    requests: AccessLog
    seed: int = 7
    counts: dict[str, int] = field(default_factory=dict)
    _orders: list[tuple[int, int]] = field(default_factory=list)
    _customers: int = 0
    _noted: bool = False
    _failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        #: Of its own: the writes are the same with or without a log.
        self._browsing = random.Random(self.seed)

    def create(self) -> None:
        """Make the tables. Blocks."""
        self._run(f"CREATE DATABASE {KEYSPACE}")
        tags = ", ".join(f"'{tag}'" for tag in ("new", *_TAGS))
        self._run(
            f"CREATE TABLE {CUSTOMERS} (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL, city VARCHAR(40), "
            f"tags SET({tags}), since DATETIME NOT NULL)"
        )
        if self.client.emulated and not self.client.generations():
            self.client.new_generation()
        self.client.create_keyspace(KEYSPACE)
        self.client.create_table(
            f"CREATE TABLE {ORDERS} (customer int, number int, item text, amount int, price decimal, paid boolean, "
            "placed timestamp, PRIMARY KEY (customer, number)) WITH cdc = {'enabled': true}"
        )
        self.payments.create()

    def add_column(self) -> str:
        """Change a table while everything runs; the statement. Blocks."""
        statement = f"ALTER TABLE {ORDERS} ADD note text"
        self.client.alter_table(statement)
        self._noted = True
        return statement

    def trade(self, writes: int) -> None:
        """Do the given number of writes. Blocks."""
        for _ in range(writes):
            kind, write = self._next_write()
            if isinstance(write, Payment):
                self.payments.apply(write)
            elif isinstance(write, tuple):
                self._run(*write)
            else:
                self.client.apply(write)
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.requests.add(self._browsing, self._browsing.randrange(1, self._customers + 1))

    def trading(self, writes: int) -> threading.Thread:
        """``trade`` in a thread of its own; ``join`` it with ``finish``."""

        def run() -> None:
            try:
                self.trade(writes)
            except BaseException as error:  # noqa: BLE001 - raised again for the waiting caller
                self._failure = error

        thread = threading.Thread(target=run, name="shop")
        thread.start()
        return thread

    def finish(self, thread: threading.Thread) -> None:
        """Wait for a thread of ``trading``. Blocks.

        Raises:
            BaseException: What ended it early.
        """
        thread.join()
        if self._failure is not None:
            raise self._failure

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Read all rows of a table. Blocks."""
        if table == ORDERS:
            return self.client.base_rows(table)
        if table == PAYMENTS:
            return self.payments.rows()
        if table == REQUESTS:
            return self.requests.rows()
        return [dict(row) for row in self._run("SELECT * FROM shop.customers")]

    def _run(self, statement: str, values: tuple[object, ...] = ()) -> Sequence[dict[str, Any]]:
        with self.database.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall()

    def _next_write(self) -> tuple[str, Write | Payment | tuple[str, tuple[object, ...]]]:
        """The next write: of an order, of a payment, or a statement about a customer with its values."""
        draw = self._chance.random()
        if self._customers < 10 or draw < 0.06:
            self._customers += 1
            return "insert", (
                "INSERT INTO shop.customers VALUES (%s, %s, %s, 'new', '2026-05-28 20:26:40')",
                (self._customers, self._chance.choice(_NAMES), self._chance.choice(_CITIES)),
            )
        customer = self._chance.randrange(1, self._customers + 1)
        if draw < 0.09:
            return "update", (
                "UPDATE shop.customers SET city = %s WHERE id = %s",
                (self._chance.choice(_CITIES), customer),
            )
        if draw < 0.12:
            return "update", (
                "UPDATE shop.customers SET tags = CONCAT_WS(',', tags, %s) WHERE id = %s",
                (self._chance.choice(_TAGS), customer),
            )
        if self._orders and draw < 0.27:
            return self.payments.next(self._chance, *self._orders[self._chance.randrange(len(self._orders))])
        if draw < 0.65 or not self._orders:
            number = len(self._orders) + 1
            self._orders.append((customer, number))
            values = {
                "customer": customer,
                "number": number,
                "item": self._chance.choice(_ITEMS),
                "amount": self._chance.randrange(1, 9),
                "price": f"{self._chance.randrange(100, 9999) / 100:.2f}",
                "paid": False,
                "placed": 1_780_000_000_000 + number,
            }
            if self._noted:
                values["note"] = f"note {number}"
            return "insert", Insert(ORDERS, values)
        customer, number = self._orders[self._chance.randrange(len(self._orders))]
        key = {"customer": customer, "number": number}
        if draw < 0.90:
            return "update", Update(
                ORDERS, key, {"paid": True} if draw < 0.80 else {"amount": self._chance.randrange(1, 9)}
            )
        if draw < 0.99:
            return "delete", Delete(ORDERS, key)
        return "delete", Delete(ORDERS, {"customer": customer})
