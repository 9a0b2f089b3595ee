"""The demo's shop: two tables, and what happens in it. Everything follows from a seed."""

import random
import threading
from dataclasses import dataclass, field
from typing import Any

from compose.local.scylla.client import Emulation
from compose.local.scylla.writes import Append, Delete, Insert, Update, Write

KEYSPACE = "shop"
CUSTOMERS = f"{KEYSPACE}.customers"
ORDERS = f"{KEYSPACE}.orders"
TABLES = (CUSTOMERS, ORDERS)
_NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Leslie", "Tony", "Margaret")
_CITIES = ("Arezzo", "Bergen", "Cork", "Delft", "Evora")
_ITEMS = ("anvil", "bellows", "chisel", "drill", "easel", "file", "gimlet")


@dataclass
class Shop:
    """Customers and their orders in a database with change data capture.

    Attributes:
        client: Where it writes.
        seed: What happens follows from it.
        counts: Writes so far by kind.
    """

    client: Emulation
    seed: int = 7
    counts: dict[str, int] = field(default_factory=dict)
    _orders: list[tuple[int, int]] = field(default_factory=list)
    _customers: int = 0
    _noted: bool = False
    _failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def create(self) -> None:
        """Make the keyspace and its tables. Blocks."""
        if self.client.emulated and not self.client.generations():
            self.client.new_generation()
        self.client.create_keyspace(KEYSPACE)
        self.client.create_table(
            f"CREATE TABLE {CUSTOMERS} (id int PRIMARY KEY, name text, city text, tags set<text>, since timestamp) "
            "WITH cdc = {'enabled': true}")
        self.client.create_table(
            f"CREATE TABLE {ORDERS} (customer int, number int, item text, amount int, price decimal, paid boolean, "
            "placed timestamp, PRIMARY KEY (customer, number)) WITH cdc = {'enabled': true}")

    def add_column(self) -> str:
        """Change a table while everything runs; the statement. Blocks."""
        statement = f"ALTER TABLE {ORDERS} ADD note text"
        self.client.alter_table(statement)
        self._noted = True
        return statement

    def trade(self, writes: int) -> None:
        """So many writes. Blocks."""
        for _ in range(writes):
            kind, write = self._next()
            self.client.apply(write)
            self.counts[kind] = self.counts.get(kind, 0) + 1

    def trading(self, writes: int) -> threading.Thread:
        """``trade`` in a thread of its own; ``join`` it with ``finish``."""
        def run() -> None:
            try:
                self.trade(writes)
            except BaseException as error:  # noqa: BLE001 - told to whoever waits
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
        """What the table holds now. Blocks."""
        return self.client.base_rows(table)

    def _next(self) -> tuple[str, Write]:
        draw = self._chance.random()
        if self._customers < 10 or draw < 0.06:
            self._customers += 1
            return "insert", Insert(CUSTOMERS, {
                "id": self._customers, "name": self._chance.choice(_NAMES), "city": self._chance.choice(_CITIES),
                "tags": {"new"}, "since": 1_780_000_000_000})
        customer = self._chance.randrange(1, self._customers + 1)
        if draw < 0.12:
            change: Any = {"tags": Append({self._chance.choice(("loyal", "late", "large"))})}
            if draw < 0.09:
                change = {"city": self._chance.choice(_CITIES)}
            return "update", Update(CUSTOMERS, {"id": customer}, change)
        if draw < 0.62 or not self._orders:
            number = len(self._orders) + 1
            self._orders.append((customer, number))
            values = {"customer": customer, "number": number, "item": self._chance.choice(_ITEMS),
                      "amount": self._chance.randrange(1, 9), "price": f"{self._chance.randrange(100, 9999) / 100:.2f}",
                      "paid": False, "placed": 1_780_000_000_000 + number}
            if self._noted:
                values["note"] = f"note {number}"
            return "insert", Insert(ORDERS, values)
        customer, number = self._orders[self._chance.randrange(len(self._orders))]
        key = {"customer": customer, "number": number}
        if draw < 0.90:
            return "update", Update(ORDERS, key, {"paid": True} if draw < 0.80 else {"amount": self._chance.randrange(1, 9)})
        if draw < 0.99:
            return "delete", Delete(ORDERS, key)
        return "delete", Delete(ORDERS, {"customer": customer})
