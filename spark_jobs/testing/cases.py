"""The cases that need only the sink and its running server: the expected content of the target after given changes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types

from spark_jobs.contract import Column, TableSchema
from spark_jobs.testing.batches import Change, change, struct_of
from spark_jobs.testing.kit import key_column
from spark_jobs.testing.model import RuleBroken
from spark_jobs.testing.target import Unsupported

if TYPE_CHECKING:
    from spark_jobs.testing.kit import Kit

_FIRST: Final = (
    change("i", 10, id=1, name="a", amount=1.0),
    change("i", 11, id=2, name="b", amount=2.0),
    change("i", 12, id=3, name="c"),
    change("u", 13, id=1, name="a2", amount=1.5),
    change("b", 14, id=3, name="c"),
    change("u", 14, id=3, name="c2", amount=3.0),
)


def replay_batch(kit: Kit) -> None:
    """A batch that is written again, by the same sink or by one that was started again, changes nothing."""
    if kit.guarantee == "none":
        raise Unsupported("the sink promises nothing after a crash (guarantee none)")
    table = kit.table("replay")
    data = kit.write((table, _FIRST))
    kit.expect(table, "a batch is written")
    kit.write_batch(data)
    kit.expect(table, "the same sink wrote the batch again")
    kit.restart()
    kit.write_batch(data)
    kit.expect(table, "a new sink of the job wrote the batch again")
    later = kit.write((table, [change("u", 20, id=2, name="b2", amount=2.5), change("i", 21, id=4, name="d")]))
    kit.restart()
    kit.write_batch(later)
    kit.expect(table, "a later batch was written, and written again")


def older_after_newer(kit: Kit) -> None:
    """An older change that comes after a newer one of its key, in one batch or a later one, changes nothing."""
    table = kit.table("older")
    kit.write(
        (
            table,
            [
                change("u", 20, id=1, name="new"),
                change("i", 10, id=1, name="old"),
                change("i", 11, id=2, name="old"),
                change("u", 21, id=2, name="new"),
            ],
        )
    )
    kit.expect(table, "older and newer changes in one batch")
    kit.write(
        (
            table,
            [change("u", 15, id=1, name="late"), change("u", 12, id=2, name="late"), change("i", 13, id=3, name="c")],
        )
    )
    kit.expect(table, "older changes in a later batch")


def delete_rows(kit: Kit) -> None:
    """A delete removes its row, and no other; of it the key alone may be known."""
    table = kit.table("delete")
    kit.write((table, _FIRST))
    kit.write((table, [change("d", 20, id=1), change("d", 21, id=2, name="b", amount=2.0)]))
    kit.expect(table)


def delete_of_an_unknown_key(kit: Kit) -> None:
    """A delete of a key that the target does not have is no error, and makes no row; also as a table's first change."""
    table = kit.table("unknown")
    kit.write((table, [change("d", 9, id=7)]))
    kit.expect(table, "the first change of a table is a delete")
    kit.write((table, [change("d", 10, id=99), change("i", 11, id=1, name="a")]))
    kit.expect(table)


def delete_then_insert_in_one_batch(kit: Kit) -> None:
    """Of a delete and an insert of one key in one batch the later one counts."""
    table = kit.table("again")
    kit.write((table, [change("i", 10, id=1, name="first", amount=1.0), change("i", 11, id=2, name="b")]))
    kit.write(
        (
            table,
            [
                change("d", 20, id=1),
                change("i", 21, id=1, name="second"),
                change("u", 22, id=2, name="b2"),
                change("d", 23, id=2),
                change("i", 24, id=3, name="short"),
                change("d", 25, id=3),
                change("d", 26, id=4),
                change("i", 27, id=4, name="d"),
                change("d", 28, id=4),
                change("i", 29, id=4, name="d2"),
            ],
        )
    )
    kit.expect(table)


def older_after_delete(kit: Kit) -> None:
    """An older change that comes after a delete does not bring the row back; a newer insert does."""
    table = kit.table("deleted")
    data = kit.write(
        (table, [change("i", 10, id=1, name="a"), change("i", 11, id=2, name="b"), change("i", 12, id=3, name="c")])
    )
    kit.write((table, [change("d", 20, id=1), change("d", 21, id=2)]))
    kit.restart()
    kit.write_batch(data)
    kit.expect(table, "changes from before the delete come again")
    kit.write((table, [change("u", 15, id=1, name="late"), change("i", 30, id=2, name="new")]))
    kit.expect(table, "another older change, and an insert that is newer than the delete")


def nulls_and_absent_columns(kit: Kit) -> None:
    """A null replaces the value that was there; a column that a row's version lacks is null, and so are all in an empty row."""
    table = kit.table("nulls")
    kit.write((table, [change("i", 10, id=1, name="a", amount=1.0), change("i", 11, id=2, name="b", amount=2.0)]))
    kit.write((table, [change("u", 20, id=1, name="a2"), change("u", 21, id=2), change("i", 22, id=3)]))
    kit.expect(table)
    kit.write((table, [change("u", 30, id=1, name="", amount=0.0), change("u", 31, id=3, name="c")]))
    kit.expect(table, "empty text and zero are not null")


def absent_column(kit: Kit) -> None:
    """A column that the source has dropped stays in the target: new rows have null in it, and nothing fails."""
    table = kit.table("absent")
    kit.write((table, [change("i", 10, id=1, name="a", amount=1.0)]))
    narrow = TableSchema(table.namespace, tuple(column for column in table.columns if column.name != "amount"))
    kit.write((narrow, [change("i", 20, id=2, name="b"), change("u", 21, id=1, name="a2")]))
    kit.expect(narrow)
    (row,) = [column for column in kit.target.rows(table) if column["id"] == 2]
    if row.get("amount") is not None:
        raise RuleBroken(f"expected null in the column that the new row lacks, actual {row['amount']!r}")


def several_tables_and_empty_batches(kit: Kit) -> None:
    """A batch may hold several tables, a table without a change, or no table at all."""
    first_table, two, idle = kit.table("one"), kit.table("two"), kit.table("idle")
    kit.write((first_table, _FIRST), (idle, []), (two, [change("i", 10, id=1, name="z")]))
    kit.write()
    kit.write((two, [change("i", 11, id=2, name="y")]), (first_table, [change("i", 20, id=9, name="x")]))
    kit.expect(first_table)
    kit.expect(two)
    kit.sink.idle()


_INSTANT: Final = datetime(2026, 5, 6, 7, 8, 9, 123456, UTC)
_TYPES: Final[dict[str, tuple[types.DataType, tuple[Any, ...]]]] = {
    "byte": (types.ByteType(), (-128, 127, 0)),
    "short": (types.ShortType(), (-32768, 32767, 1)),
    "integer": (types.IntegerType(), (-(2**31), 2**31 - 1, 2)),
    "long": (types.LongType(), (-(2**63), 2**63 - 1, 3)),
    "float": (types.FloatType(), (-1.5, 16777216.0, 0.25)),
    "double": (types.DoubleType(), (-1e300, 0.1, 1e-300)),
    "decimal": (
        types.DecimalType(38, 9),
        (Decimal("-12345678901234567890123456789.123456789"), Decimal("0.000000001"), Decimal("1.5")),
    ),
    "boolean": (types.BooleanType(), (True, False, True)),
    "string": (
        types.StringType(),
        ("", "quotes ' \" ` and \\ % {} $1", "lines\n\ttabs\r\n, \u00e9\u4f60\U0001f600 \u202eright"),
    ),
    "binary": (types.BinaryType(), (b"", b"\x00\xff\xfe\\'\n", bytes(range(256)))),
    "date": (types.DateType(), (date(1901, 2, 3), date(2261, 12, 31), date(1970, 1, 1))),
    "timestamp": (
        types.TimestampType(),
        (datetime(1901, 2, 3, 4, 5, 6, 7, UTC), datetime(2261, 1, 1, tzinfo=UTC), _INSTANT),
    ),
    "timestamp_ntz": (
        types.TimestampNTZType(),
        (
            datetime(1901, 2, 3, 4, 5, 6, 7),  # noqa: DTZ001 - no zone
            datetime(2261, 1, 1),  # noqa: DTZ001 - no zone
            _INSTANT.replace(tzinfo=None),
        ),
    ),
    "array": (types.ArrayType(types.IntegerType()), ([], [1, None, 3], [2**31 - 1])),
    "map": (types.MapType(types.StringType(), types.StringType()), ({}, {"a": "b", "\u00e9": None}, {"a.b": "c d"})),
    "struct": (
        struct_of(("city", "zip code")),
        ({"city": "Z\u00fcrich", "zip code": "8001"}, {"city": None, "zip code": ""}, {"city": "'", "zip code": None}),
    ),
}


def every_type(kit: Kit) -> None:
    """Every type of column arrives with its value: smallest, largest, usual, and null."""
    kinds = {name: column_type for name, column_type in _TYPES.items() if name not in kit.target.unsupported_types}
    table = kit.table(
        "types", key_column("id", types.LongType()), *(Column(f"c_{name}", kind) for name, (kind, _) in kinds.items())
    )
    rows = [
        Change("i", 10 + number, {"id": number, **{f"c_{name}": values[number] for name, (_, values) in kinds.items()}})
        for number in range(3)
    ]
    kit.write((table, [*rows, change("i", 20, id=3)]))
    kit.expect(table)


def every_type_of_key(kit: Kit) -> None:
    """A key may be of several columns, of text, whole numbers, dates and bytes; letters of either case are different keys."""
    columns = (
        key_column("k_text", types.StringType(), 40),
        key_column("k_long", types.LongType()),
        key_column("k_date", types.DateType()),
        Column("v", types.StringType()),
    )
    table = kit.table("keys", *columns)
    keys = [
        (text_key, number, day)
        for text_key in ("a", "A", "a ", "\u00e9", "\U0001f600", "a/b?c=d&e%20", "")
        for number, day in ((0, date(2026, 1, 1)), (-(2**63), date(1970, 1, 1)))
    ]
    changes = [
        change("i", 10 + number_of_key, k_text=text_key, k_long=number, k_date=day, v=str(number_of_key))
        for number_of_key, (text_key, number, day) in enumerate(keys)
    ]
    kit.write((table, changes))
    kit.expect(table)
    kit.write(
        (
            table,
            [
                Change("u", 100 + number_of_key, {**row_change.values, "v": "new"})
                for number_of_key, row_change in enumerate(changes[::2])
            ],
        )
    )
    kit.expect(table, "every other key was updated")


def schema_evolution(kit: Kit) -> None:
    """A column that the source adds is added to the target, with null in older rows; a batch may have rows of both."""
    table = kit.table("evolution")
    kit.write((table, [change("i", 10, id=1, name="a", amount=1.0)]))
    wider = TableSchema(
        table.namespace, (*table.columns, Column("added", types.StringType()), Column("born", types.DateType()))
    )
    kit.write((wider, [change("i", 20, id=2, name="b"), change("i", 21, id=3, added="x", born=date(2026, 5, 6))]))
    kit.expect(wider, "two columns were added")
    kit.restart()
    last = TableSchema(table.namespace, (*wider.columns, Column("more", types.LongType())))
    kit.write((last, [change("u", 30, id=1, name="a2", added="y", more=2**40)]))
    kit.expect(last, "another column was added, after a restart")


def type_widening(kit: Kit) -> None:
    """A column whose type has grown in the source (int to long, float to double) holds the larger values."""
    before = kit.table(
        "widening",
        key_column("id", types.IntegerType()),
        Column("n", types.IntegerType()),
        Column("f", types.FloatType()),
    )
    kit.write((before, [change("i", 10, id=1, n=2**31 - 1, f=0.5)]))
    after = TableSchema(
        before.namespace, (before.columns[0], Column("n", types.LongType()), Column("f", types.DoubleType()))
    )
    kit.write((after, [change("i", 20, id=2, n=2**62, f=0.1)]))
    kit.expect(after)


def unicode_names(kit: Kit) -> None:
    """Names of tables and columns may have any letters, spaces, points and quotes, and keep them."""
    columns = (
        "\u00dcber gr\u00f6\u00dfe",
        "\u5217\u540d",
        "a.b",
        "semi;colon",
        'quote"d',
        "back`tick",
        "it's",
        "dollar$",
        "percent%s",
        "slash/es",
        "UPPER",
        "{brace}",
        "minus-sign",
        "c0",
        "1st",
    )
    table = kit.table(
        "unicode",
        key_column("cl\u00e9 id", types.IntegerType()),
        *(Column(name, types.StringType()) for name in columns),
        name="T\u00e4ble \u8868",
    )
    rows = [
        Change("i", 10 + number, {"cl\u00e9 id": number, **{name: f"{name} {number}" for name in columns}})
        for number in range(2)
    ]
    kit.write((table, [*rows, Change("u", 20, {"cl\u00e9 id": 1, columns[0]: "new"})]))
    kit.expect(table)


def emoji_names(kit: Kit) -> None:
    """Names may have letters beyond Unicode's first 65536."""
    table = kit.table(
        "emoji", key_column("id", types.IntegerType()), Column("\U0001f600", types.StringType()), name="\U0001f4e6"
    )
    kit.write((table, [Change("i", 10, {"id": 1, "\U0001f600": "a"}), Change("u", 11, {"id": 1, "\U0001f600": "b"})]))
    kit.expect(table)


def reserved_words(kit: Kit) -> None:
    """Words that mean something to query languages are names like others, also for keys."""
    columns = (
        "select",
        "from",
        "where",
        "group",
        "order",
        "user",
        "default",
        "index",
        "timestamp",
        "type",
        "value",
        "values",
        "all",
        "null",
        "true",
        "limit",
        "desc",
        "primary",
        "update",
        "row",
        "rows",
        "offset",
        "source",
        "target",
        "s",
        "t",
    )
    table = kit.table(
        "reserved",
        key_column("key", types.IntegerType()),
        *(Column(name, types.StringType()) for name in columns),
        name="select",
    )
    kit.write((table, [Change("i", 10, {"key": 1, **{name: name for name in columns}})]))
    kit.write(
        (table, [Change("u", 20, {"key": 1, **{name: name.upper() for name in columns}}), Change("i", 21, {"key": 2})])
    )
    kit.expect(table)


def large_values(kit: Kit) -> None:
    """Values of 2 MB arrive whole."""
    table = kit.table(
        "large",
        key_column("id", types.IntegerType()),
        Column("text", types.StringType()),
        Column("data", types.BinaryType()),
    )
    kinds = kit.target.unsupported_types
    size = 2 << 20
    long_string = None if "string" in kinds else ("0123456789abcde\u00e9" * (size // 16))
    data = None if "binary" in kinds else bytes(range(256)) * (size // 256)
    kit.write(
        (
            table,
            [
                change("i", 10, id=1, text=long_string, data=data),
                change("i", 11, id=2, text="small", data=data and b"small"),
            ],
        )
    )
    kit.expect(table)


def many_rows(kit: Kit) -> None:
    """A batch of thousands of rows, many of them of the same keys, leaves the newest of each; write says how many it wrote."""
    table = kit.table("many")
    count = 3000
    changes = [change("i" if n < 700 else "u", 10 + n, id=n % 700, name=f"v{n}", amount=n / 4) for n in range(count)]
    data = kit.batch((table, changes))
    written = kit.write_batch(data)
    kit.expect(table)
    if not isinstance(written, int) or not (700 <= written <= count):
        raise RuleBroken(f"write must return the rows written: expected 700 to {count}, actual {written!r}")
