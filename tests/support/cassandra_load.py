"""A seeded load of CQL statements of every kind for a real Cassandra: input for the log, its readers and the merge.

Nothing here talks to a server: ``Workload`` gives CQL strings, ``plain_row`` makes rows from different readers comparable.
"""

# ruff: noqa: S608 - statements are what this makes
from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: Columns of the main table by name; the key is ``(pk), c1, c2`` with c2 in descending order.
COLUMNS: Final = {
    "v": "text",
    "n": "bigint",
    "b": "blob",
    "d": "decimal",
    "x": "double",
    "at": "timestamp",
    "id": "uuid",
    "f": "frozen<pair>",
    "l": "list<text>",
    "s": "set<int>",
    "m": "map<text, bigint>",
    "u": "pair",
    "tu": "tuple<int, text>",
    "fl": "frozen<list<int>>",
}
STATIC: Final = {"st": "text", "sn": "int", "ss": "set<text>"}
#: Columns whose values are sets, and those that are maps.
SETS: Final = frozenset({"s", "ss"})
MAPS: Final = frozenset({"m"})
_BASE_US: Final = 1_700_000_000_000_000


class Statement(NamedTuple):
    """One statement; ``may_fail``: whether the server may rightly refuse it (a place in a list that is not there)."""

    text: str
    may_fail: bool = False


class Workload:
    """Statements for two tables of a keyspace: ``t`` with everything, ``o`` together with it in batches.

    Args:
        seed: what all follows from.
        keyspace: it must exist.
        partitions: of each table; few, so that writes meet.
        ttls: seconds that some cells live; empty: all stay.
        lwt: whether there are conditional statements, which cost several round trips between nodes.
        cdc: whether both tables are captured.
    """

    def __init__(
        self,
        seed: int,
        keyspace: str,
        *,
        partitions: int = 4,
        ttls: tuple[int, ...] = (3600,),
        lwt: bool = True,
        cdc: bool = True,
    ) -> None:
        self._chance = random.Random(seed)
        self._partitions = partitions
        self._ttls = ttls
        self._lwt = lwt
        self.keyspace = keyspace
        self.table = f"{keyspace}.t"
        self.other = f"{keyspace}.o"
        self._cdc = str(cdc).lower()

    @property
    def ddl(self) -> list[str]:
        """The statements that create the types and tables."""
        columns = ", ".join(
            [
                *(f"{name} {kind}" for name, kind in COLUMNS.items()),
                *(f"{name} {kind} static" for name, kind in STATIC.items()),
            ]
        )
        return [
            f"CREATE TYPE {self.keyspace}.pair (a int, z text)",
            (
                f"CREATE TABLE {self.table} (pk int, c1 int, c2 text, {columns}, PRIMARY KEY (pk, c1, c2)) "
                f"WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC) AND cdc = {self._cdc}"
            ),
            f"CREATE TABLE {self.other} (pk int PRIMARY KEY, v text, n int) WITH cdc = {self._cdc}",
        ]

    def statements(self, count: int) -> Iterator[Statement]:
        """Yield ``count`` statements, one after the other."""
        for _ in range(count):
            yield self.statement()

    def statement(self) -> Statement:
        """The next one."""
        kind = self._chance.random()
        if kind < 0.12:
            return self._batch()
        if self._lwt and kind < 0.2:
            return Statement(self._conditional())
        return self._change(self._chance.randrange(self._partitions))

    # -- parts of statements

    def _change(self, pk: int, *, plain: bool = False) -> Statement:
        """A statement of one partition; ``plain``: it may be part of a batch (no time of its own, never refused)."""
        makers: list[Callable[[int, str], str]] = [
            self._insert,
            self._insert,
            self._insert,
            self._update,
            self._update,
            self._collections,
            self._collections,
            self._static,
            self._delete_row,
            self._delete_columns,
            self._delete_range,
            self._delete_range,
        ]
        if self._chance.random() < 0.04:
            return Statement(self._delete_partition(pk, "" if plain else self._time()))
        if not plain and self._chance.random() < 0.04:
            return Statement(
                f"UPDATE {self.table} SET l[{self._chance.randrange(3)}] = {self._letter()} WHERE {self._row(pk)}",
                may_fail=True,
            )
        return Statement(self._chance.choice(makers)(pk, "" if plain else self._time()))

    def _time(self) -> str:
        """A time in the past for one in six: write times come out of order and meet."""
        chance = self._chance
        return f"TIMESTAMP {_BASE_US + chance.randrange(4)}" if chance.random() < 0.16 else ""

    def _using(self, time: str) -> str:
        parts = [time] if time else []
        # Not both: what an expired cell does at an equal time depends on when it was read.
        if not time and self._ttls and self._chance.random() < 0.2:
            parts.append(f"TTL {self._chance.choice(self._ttls)}")
        return f" USING {' AND '.join(parts)}" if parts else ""

    def _row(self, pk: int) -> str:
        return f"pk = {pk} AND c1 = {self._chance.randrange(4)} AND c2 = {self._letter()}"

    def _letter(self) -> str:
        return f"'{self._chance.choice('abc')}'"

    def _value(self, name: str) -> str:
        """A literal for a column; null for some."""
        chance = self._chance
        if chance.random() < 0.15:
            return "null"
        number, letter = chance.randrange(5), self._letter()
        pair = f"{{a: {chance.choice(['null', str(number)])}, z: {letter}}}"
        return {
            "v": chance.choice([letter, "''", "'ein längerer Text mit ü und 漢字'"]),
            "n": str(chance.choice([number, -1 << 62])),
            "b": chance.choice(["0x", "0x00ff", "0xabcdef"]),
            "d": chance.choice(["1.10", "-0.001", str(number)]),
            "x": chance.choice(["0.5", "-1e300", str(number)]),
            "at": str(1_700_000_000_000 + number),
            "id": f"00000000-0000-4000-8000-00000000000{number}",
            "f": pair,
            "u": pair,
            "l": f"[{letter}, {self._letter()}]",
            "s": f"{{{number}, 7}}",
            "m": f"{{{letter}: {number}, 'z': 9}}",
            "tu": f"({number}, {letter})",
            "fl": f"[{number}, {number}]",
            "st": letter,
            "sn": str(number),
            "ss": f"{{{letter}}}",
        }[name]

    def _choose_names(self, names: Mapping[str, str]) -> list[str]:
        chosen = [name for name in names if self._chance.random() < 0.5]
        return chosen or [self._chance.choice(list(names))]

    def _insert(self, pk: int, time: str, condition: str = "") -> str:
        names = self._choose_names(COLUMNS) if self._chance.random() < 0.9 else []
        if self._chance.random() < 0.15:
            names += self._choose_names(STATIC)
        values = [str(pk), str(self._chance.randrange(4)), self._letter(), *(self._value(name) for name in names)]
        return (
            f"INSERT INTO {self.table} ({', '.join(['pk', 'c1', 'c2', *names])}) VALUES ({', '.join(values)})"
            f"{condition}{self._using(time)}"
        )

    def _update(self, pk: int, time: str) -> str:
        changes = ", ".join(f"{name} = {self._value(name)}" for name in self._choose_names(COLUMNS))
        return f"UPDATE {self.table}{self._using(time)} SET {changes} WHERE {self._row(pk)}"

    def _collections(self, pk: int, time: str) -> str:
        letter, number = self._letter(), self._chance.randrange(5)
        changes = self._chance.sample(
            [f"l = l + [{letter}]", f"s = s + {{{number}}}", f"m = m + {{{letter}: {number}}}", f"u.a = {number}"], 2
        )
        other = self._chance.choice(
            [
                f"l = [{letter}] + l",
                f"s = s - {{{number}, 7}}",
                f"m = m - {{{letter}}}",
                f"m[{letter}] = {number}",
                "u.z = null",
                f"u.z = {letter}",
                f"m[{letter}] = null",
                "l = null",
                f"s = {{{number}}}",
            ]
        )
        if all(other[0] != change[0] for change in changes):
            changes.append(other)
        return f"UPDATE {self.table}{self._using(time)} SET {', '.join(changes)} WHERE {self._row(pk)}"

    def _static(self, pk: int, time: str) -> str:
        using = self._using(time)
        if self._chance.random() < 0.2:
            columns = ", ".join(self._choose_names(STATIC))
            return f"DELETE {columns} FROM {self.table}{f' USING {time}' if time else ''} WHERE pk = {pk}"
        if self._chance.random() < 0.3:
            return f"UPDATE {self.table}{using} SET ss = ss {self._chance.choice('+-')} {{{self._letter()}}} WHERE pk = {pk}"
        changes = ", ".join(f"{name} = {self._value(name)}" for name in self._choose_names(STATIC))
        return f"UPDATE {self.table}{using} SET {changes} WHERE pk = {pk}"

    def _delete(self, columns: str, time: str, where: str) -> str:
        return f"DELETE {columns}FROM {self.table}{f' USING {time}' if time else ''} WHERE {where}"

    def _delete_row(self, pk: int, time: str) -> str:
        return self._delete("", time, self._row(pk))

    def _delete_columns(self, pk: int, time: str) -> str:
        names = [f"m[{self._letter()}]"] if self._chance.random() < 0.2 else self._choose_names(COLUMNS)[:3]
        return self._delete(f"{', '.join(names)} ", time, self._row(pk))

    def _delete_partition(self, pk: int, time: str) -> str:
        return self._delete("", time, f"pk = {pk}")

    def _delete_range(self, pk: int, time: str) -> str:
        chance = self._chance
        low = chance.randrange(4)
        where = chance.choice(
            [
                f"c1 = {low}",
                f"c1 > {low}",
                f"c1 <= {low}",
                f"c1 >= {low} AND c1 < {low + 2}",
                f"c1 > {low} AND c1 <= {low + 1}",
                f"c1 = {low} AND c2 > {self._letter()}",
                f"c1 = {low} AND c2 <= {self._letter()}",
                f"c1 IN ({low}, {(low + 2) % 4})",
            ]
        )
        return self._delete("", time, f"pk = {pk} AND {where}")

    def _conditional(self) -> str:
        chance = self._chance
        pk = chance.randrange(self._partitions)
        return chance.choice(
            [
                self._insert(pk, "", " IF NOT EXISTS"),
                f"UPDATE {self.table} SET v = {self._value('v')} WHERE {self._row(pk)} IF EXISTS",
                f"UPDATE {self.table} SET n = {chance.randrange(9)}, u.a = 1 WHERE {self._row(pk)} IF n != 3",
                f"UPDATE {self.table} SET sn = {chance.randrange(9)} WHERE pk = {pk} IF sn = null",
                f"DELETE FROM {self.table} WHERE {self._row(pk)} IF EXISTS",
                (
                    f"BEGIN BATCH {self._insert(pk, '', ' IF NOT EXISTS')}; "
                    f"UPDATE {self.table} SET sn = {chance.randrange(9)} WHERE pk = {pk}; APPLY BATCH"
                ),
            ]
        )

    def _batch(self) -> Statement:
        """Statements of one partition in both tables (one mutation of two updates), or of several."""
        chance = self._chance
        pk, spread = chance.randrange(self._partitions), chance.random() < 0.3
        parts = [
            self._change(chance.randrange(self._partitions) if spread else pk, plain=True).text
            for _ in range(chance.choice([1, 2, 2, 3]))
        ]
        if chance.random() < 0.6:
            parts.insert(
                chance.randrange(len(parts) + 1),
                chance.choice(
                    [
                        f"INSERT INTO {self.other} (pk, v, n) VALUES ({pk}, {self._letter()}, {chance.randrange(9)})",
                        f"UPDATE {self.other} SET n = {chance.randrange(9)} WHERE pk = {pk}",
                        f"DELETE FROM {self.other} WHERE pk = {pk}",
                    ]
                ),
            )
        # A batch with a time of its own has none in its statements; TTLs are theirs.
        head = chance.choice(["BEGIN BATCH", "BEGIN UNLOGGED BATCH"])
        return Statement(f"{head} {'; '.join(parts)}; APPLY BATCH")


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row in one form, whether it came from SELECT (``connectors.cql.values``) or out of JSON.

    Without nulls and empty collections, which a table does not tell apart; maps as dicts, sets sorted, blobs as Base64.
    """
    plain = {name: _plain(name, value) for name, value in row.items()}
    return {name: value for name, value in plain.items() if value not in (None, [], {})}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if name in MAPS and isinstance(value, list):
        return {entry["key"]: entry["value"] for entry in value}
    if name in SETS and isinstance(value, list):
        return sorted(value)
    if isinstance(value, dict):
        return {key: field for key, field in value.items() if field is not None}
    return value
