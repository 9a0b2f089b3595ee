"""Cases for the sinks of table formats, beyond the conformance kit: each suite runs these on its format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from connectors.errors import Fatal
from spark_jobs.contract import Column, SchemaRefused, TableSchema
from spark_jobs.testing import Supports, change
from spark_jobs.testing.kit import Kit, key_column
from tests.support.packed_rows import pack_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from spark_jobs.testing import SinkTarget

SLOW = ["killed_at_every_step"]
REAL_DELETE_CASES = ["delete", "delete_then_insert_in_one_batch", "older_after_delete", "every_type_of_key", *SLOW]
INSERT_CASES = ["replay", "schema_evolution", "type_widening", "many_rows", *SLOW]
INSERTS = Supports(upsert=False, ordering=False, remembers_deletes=False, transactions=True)


@dataclass
class Lakes:
    """One format under test.

    Attributes:
        spark: the session.
        target: makes a target with options (without the sink's prefix).
        foreign: lets another program commit to a table: its schema, and whether rows of it are written again or one is added.
        files: how many data files a table has.
        prefix: of the sink's options.
    """

    spark: SparkSession
    target: Callable[..., SinkTarget]
    foreign: Callable[[SinkTarget, TableSchema], None]
    files: Callable[[SinkTarget, TableSchema], int]
    prefix: str

    def kit(self, **options: str) -> Kit:
        """A job with options."""
        return Kit(self.target(**options), self.spark)


def inserts_are_exactly_once_by_offset(lakes: Lakes) -> None:
    """A lost checkpoint brings other batches over the same offsets: what is in is left out, in part, too."""
    kit = lakes.kit(mode="insert")
    kit.target.supports = type(kit.target.supports)(upsert=False, ordering=False, remembers_deletes=False)
    table = kit.table("offsets")
    first = kit.write((table, [change("i", 10 + n, id=n, name="a") for n in range(6)]))
    second = kit.write((table, [change("b", 20, id=1, name="a"), change("u", 20, id=1, name="b")]))
    kit.restart()
    merged = type(first)(
        0,
        [(table, [row for _, rows in (first.tables + second.tables) for row in rows])],
        {
            where: (0, max(first.ranges.get(where, (0, 0))[1], second.ranges.get(where, (0, 0))[1]))
            for where in first.ranges
        },
    )
    assert kit.write_batch(merged) == 0
    kit.expect(table, "one batch over all offsets comes with a lost checkpoint")
    more = kit.batch((table, [change("i", 30, id=9, name="z")]))
    both = type(first)(
        1,
        [(table, [row for _, rows in (merged.tables + more.tables) for row in rows])],
        {where: (0, more.ranges.get(where, merged.ranges[where])[1]) for where in merged.ranges},
    )
    assert kit.write_batch(both) == 1
    kit.expect(table, "a batch of which only the end is new")
    frames = kit.batch((table, [change("i", 40, id=10, name="p"), change("d", 41, id=0)])).frames(lakes.spark)
    packed = [
        # Without rows of Spark's, they can only come out of the record batches.
        replace(part, packed=pack_rows(part.frame, part.schema), frame=part.frame.limit(0))
        for part in frames.changes()
    ]
    assert kit.sink.write(replace(frames, changes=lambda: packed)) == 2
    kit.expect(table, "rows come as record batches")


def remembered_deletes_are_forgotten_after_the_retention(lakes: Lakes) -> None:
    """A real delete leaves a line in the side table, and no row in the table."""
    kit = lakes.kit(**{"delete.mode": "real"})
    table = kit.table("side")
    kit.write((table, [change("i", 10 + n, id=n, name="a") for n in range(4)]))
    kit.write((table, [change("d", 20, id=1), change("d", 21, id=7)]))
    kit.expect(table)
    side = TableSchema(f"{table.namespace}_ums", (table.columns[0], Column("ums_id_", LongType())))
    assert sorted((row["id"], row["ums_id_"]) for row in kit.target.rows(side)) == [(1, 20), (7, 21)]
    kit.write((table, [change("u", 15, id=1, name="late"), change("i", 16, id=7, name="late")]))
    kit.expect(table, "older changes come after the deletes")
    kit.write((table, [change("i", 30, id=1, name="again")]))
    kit.expect(table, "a newer insert comes after the delete")


def a_foreign_commit_is_no_loss(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, table_class: type[Any], mode: str
) -> None:
    """Another program commits between the tasks and the commit of a batch: the batch is merged again, nothing is lost."""
    kit = lakes.kit(mode=mode)
    if mode == "insert":
        kit.target.supports = type(kit.target.supports)(upsert=False, ordering=False, remembers_deletes=False)
    table = kit.table("foreign")
    kit.write((table, [change("i", 10 + n, id=n, name="a") for n in range(8)]))
    kit.write((table, [change("i" if mode == "insert" else "u", 20 + n, id=n, name="b") for n in range(0, 8, 2)]))
    commit, left = table_class.commit, [2]

    def meddled(self: Any, new: Any) -> None:
        if left[0]:
            left[0] -= 1
            lakes.foreign(kit.target, table)
        commit(self, new)

    monkeypatch.setattr(table_class, "commit", meddled)
    kit.write((table, [change("u", 30 + n, id=n, name="c") for n in range(4)]))
    monkeypatch.undo()
    assert not left[0]
    assert kit.sink.context.metrics[f"{lakes.prefix.split('.')[1]}_conflicts_total"] == 2
    kit.expect(table, "after foreign commits")


def files_stay_few(lakes: Lakes, mode: str) -> None:
    """Small files are merged: with upsert by the batches themselves, with insert between batches; old ones are deleted."""
    options = {"mode": mode, "compact.files": "4", "retention.ms": "0", "expire.interval.ms": "0", "buckets": "1"}
    kit = lakes.kit(**options)
    if mode == "insert":
        kit.target.supports = type(kit.target.supports)(upsert=False, ordering=False, remembers_deletes=False)
    table = kit.table("few")
    for number in range(10):
        kit.write((table, [change("i", 10 + number, id=number, name="a")]))
        kit.sink.idle()
    assert lakes.files(kit.target, table) <= 5
    kit.expect(table)


def types_that_no_type_holds_are_refused(lakes: Lakes) -> None:
    """A column that turns from text into a number stops the batch with both types; nothing of it is written."""
    kit = lakes.kit()
    table = kit.table("refused")
    kit.write((table, [change("i", 10, id=1, name="a")]))
    other = TableSchema(table.namespace, (table.columns[0], Column("name", IntegerType())))
    with pytest.raises(SchemaRefused, match=r"column name is string .* and int in new rows"):
        kit.write((other, [change("i", 20, id=2, name=5)]))
    wider = TableSchema(table.namespace, (key_column("id", StringType()), *table.columns[1:]))
    with pytest.raises(SchemaRefused, match=r"column id is int .* string in new rows"):
        kit.write((wider, [change("i", 21, id="x", name="a")]))
    assert [row["id"] for row in kit.target.rows(table)] == [1]


def other_keys_and_modes_are_refused(lakes: Lakes) -> None:
    """A table that was made for another key or mode is not written."""
    kit = lakes.kit()
    table = kit.table("other")
    kit.write((table, [change("i", 10, id=1, name="a")]))
    keyed = TableSchema(table.namespace, (table.columns[0], key_column("name", StringType()), table.columns[2]))
    with pytest.raises(SchemaRefused, match=r"its key is \(id\), and that of the source is \(id, name\)"):
        kit.write((keyed, [change("i", 20, id=2, name="b")]))
    inserting = kit.make(**{f"{lakes.prefix}mode": "insert"})
    inserting.open()
    with pytest.raises(Fatal, match="it was made for upserts"):
        inserting.write(kit.batch((table, [change("i", 30, id=3, name="c")])).frames(lakes.spark))
    bare = TableSchema("shop.bare", (Column("a", StringType()),))
    assert f"Name it in {lakes.prefix}key.columns" in kit.sink.refusal(bare)
    assert "name of a column of the sink" in kit.sink.refusal(
        TableSchema("shop.bare", (key_column("id", LongType()), Column("ums_id_", LongType())))
    )


def nested_columns_grow(lakes: Lakes) -> None:
    """A struct gets a further field; older rows have null in it. Integer keys may become longer."""

    def schema(*names: str, key: Any) -> TableSchema:
        kind = StructType([StructField(name, StringType()) for name in names])
        return TableSchema("conformance.nested", (key_column("id", key), Column("s", kind)))

    kit = lakes.kit()
    kit.write((schema("a", key=IntegerType()), [change("i", 10 + n, id=n, s={"a": "x"}) for n in range(6)]))
    last = schema("a", "b", key=LongType())
    kit.write((last, [change("u", 20, id=1, s={"a": "y", "b": "z"}), change("i", 21, id=2**40, s=None)]))
    rows = {row["id"]: row["s"] for row in kit.target.rows(last)}
    assert rows[1] == {"a": "y", "b": "z"}
    assert rows[3] == {"a": "x", "b": None}
    assert rows[2**40] is None
    assert len(rows) == 7


def nested_key(kind: Any) -> TableSchema:
    """A table whose key has a number and a column of a nested type."""
    return TableSchema(
        "conformance.nestedkey", (key_column("k", IntegerType()), key_column("c", kind), Column("v", LongType()))
    )


def keys_may_be_nested(lakes: Lakes) -> None:
    """A row is known by a struct or an array in its key, also by nulls in it; a delete of it is remembered."""
    struct = StructType([StructField("a", IntegerType()), StructField("b", StringType())])
    for kind, keys in (
        (struct, [{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": 2, "b": None}]),
        (ArrayType(IntegerType()), [[1], [1, 2], []]),
    ):
        kit = lakes.kit(**{"delete.mode": "real", "buckets": "1"})
        table = replace(nested_key(kind), namespace=f"conformance.by{kind.typeName()}")
        kit.write((table, [change("i", 10, k=1, c=key, v=number) for number, key in enumerate(keys)]))
        kit.write(
            (
                table,
                [
                    change("u", 20, k=1, c=keys[0], v=10),
                    change("u", 21, k=1, c=keys[0], v=11),
                    change("d", 22, k=1, c=keys[1], v=1),
                    change("i", 23, k=2, c=keys[1], v=2),
                ],
            )
        )
        kit.write((table, [change("u", 15, k=1, c=keys[1], v=5)]))
        rows = [(row["k"], row["c"], row["v"]) for row in kit.target.rows(table)]
        assert sorted(rows, key=lambda row: row[2]) == [(1, keys[2], 2), (2, keys[1], 2), (1, keys[0], 11)]


def check_names_the_option(kit: Kit, prefix: str) -> None:
    """A table that a job made with other options is complained of before the first batch."""
    kit.write((kit.table("fixed"), [change("i", 10, id=1, name="a")]))
    assert kit.kind.check(kit.config()) == []
    (complaint,) = kit.kind.check(kit.config(**{f"{prefix}mode": "insert"}))
    assert complaint.startswith(f"{prefix}table: the table ")
    (complaint,) = kit.kind.check(kit.config(**{f"{prefix}key.columns": "name"}))
    assert complaint.startswith(f"{prefix}key.columns: the key of the table ")
