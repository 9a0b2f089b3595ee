"""From rows events to rows: decoders compiled per structure of a table, with ``exec``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.codegen import CodeBuilder
from connectors.errors import Fatal, Skippable
from connectors.mysql.model import BLOCK
from connectors.mysql.position.shards import shard_of_table, split_column
from connectors.mysql.rows.decode_code import Image, ImageWriter
from connectors.mysql.schema import type_codes as codes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.mysql.model import ColumnPlan, MySqlColumn, MySqlTable
    from connectors.mysql.schema.types import ValueOptions

    Rows = Callable[[bytes, int, int], list[Any]]

_BITS: Final = (1 << 64) - 1
_BLOCK_SHIFT: Final = BLOCK.bit_length() - 1


class BadRow(Skippable):
    """Rows of one event can't be decoded; the others can.

    Attributes:
        row: number of the first bad row in its event, from 0.
        column: the column it fails at, "" if unknown.
        reason: why.
        raw: the bad row's bytes (of an update: both images).
        rows: all rows of the event as the decoder gives them, with None for each bad image (for an update: both).
        bad: number, column, reason and bytes of every bad row.
    """

    def __init__(self, table: str, bad: Sequence[tuple[int, str, str, bytes]], rows: list[Any]) -> None:
        self.row, self.column, self.reason, self.raw = bad[0]
        self.rows = rows
        self.bad = tuple(bad)
        suffix = f" ({len(bad) - 1} more rows of the event are bad too)" if len(bad) > 1 else ""
        where = f"column {self.column}" if self.column else "a column"
        super().__init__(f"row {self.row} of a rows event of {table}: {where} can't be decoded: {self.reason}{suffix}")


def compile_rows(
    table: MySqlTable,
    plans: Sequence[ColumnPlan | None],
    options: ValueOptions,
    *,
    kind: str,
    present: bytes,
    present_after: bytes | None = None,
    owner: tuple[int, int] | None = None,
) -> Rows:
    """The decoder of one kind of rows event of one structure. Takes about a millisecond for ten columns.

    It takes the event, and where the rows begin and end in it, and gives a dict per row image: column name to the value after
    the plan's transform, for the columns that have a plan and are in the image. For updates it gives the image before and the
    image after in turn. Images that another shard owns are None (so that rows keep their numbers).

    Args:
        table: the structure.
        plans: by column; None: it is stepped over.
        options: how values look.
        kind: ``write``, ``update``, ``delete``, or ``partial``: an update whose JSON columns may hold changes only.
        present: bitmap of the columns in the image; of an update's image before.
        present_after: bitmap of the columns in an update's image after; None: the same.
        owner: index and count of the shard whose rows are wanted; None: all.

    Returns:
        The decoder. It raises BadRow for values that can't be decoded, and Fatal if the bytes are not rows of this structure.

    Raises:
        Fatal: a column can't be read.
    """
    pairs = kind in ("update", "partial")
    column, owned = owner_condition(table, owner)
    ends = _Ends(table, options, present, (present_after or present) if pairs else None, partial=kind == "partial")
    if owner is not None and column is None and shard_of_table(table.name, owner[1]) != owner[0]:
        return _make_ownerless(ends, 2 if pairs else 1)
    before = image_of(table, plans, present, "b", column)
    after = image_of(table, plans, present_after or present, "a", column) if pairs else None

    def build_code(errors: str) -> tuple[CodeBuilder, Rows]:
        code = CodeBuilder()
        chosen = msgspec.structs.replace(options, charset_errors=errors)
        _write_loop(code, table, chosen, before, after, owned, partial=kind == "partial")
        return code, _compile_rows(table, code)

    # Valid text is decoded faster if nothing is said of invalid one; so the policy is compiled in when the first such is met.
    try:
        code, fast = build_code("strict")
    except (KeyError, ValueError) as error:
        raise Fatal(f"the TABLE_MAP of {table.name} describes a column that there can't be ({error!r})") from error
    strict = options.charset_errors != "strict"

    def rows(event: bytes, start: int, end: int) -> list[Any]:
        nonlocal code, fast, strict
        try:
            return fast(event, start, end)
        except Exception:  # noqa: BLE001 - found out below, row by row
            if strict:
                strict = False
                code, fast = build_code(options.charset_errors)
                return rows(event, start, end)
            return _one_by_one(str(table.name), code, fast, ends, event, start, end, 2 if pairs else 1)

    return rows


def count_rows(
    table: MySqlTable, options: ValueOptions, *, kind: str, present: bytes, present_after: bytes | None = None
) -> Callable[[bytes, int, int], int]:
    """A function that counts an event's rows (an update's pairs) without decoding them.

    It raises Fatal if the bytes are not rows of this structure.
    """
    pairs = kind in ("update", "partial")
    ends = _Ends(table, options, present, (present_after or present) if pairs else None, partial=kind == "partial")

    def count(event: bytes, start: int, end: int) -> int:
        return len(ends(event, start, end))

    return count


def owner_condition(table: MySqlTable, owner: tuple[int, int] | None) -> tuple[str | None, str]:
    """The column that says whose a row is, or None, and the condition of ``decode_code.Writer`` for the shard's own rows.

    Args:
        table: the structure.
        owner: index and count of the shard; None: all rows are its.
    """
    column = split_column(table) if owner is not None else None
    if owner is None or column is None:
        return column, ""
    return column, f"(({{}} & {_BITS}) >> {_BLOCK_SHIFT}) % {owner[1]} == {owner[0]}"


def image_of(
    table: MySqlTable, plans: Sequence[ColumnPlan | None], present: bytes, prefix: str, owner: str | None
) -> Image:
    """A row image, ready to be read.

    Args:
        table: the structure.
        plans: by column; None: it is stepped over.
        present: bitmap of the columns in the image.
        prefix: begins the names of the image's variables.
        owner: the column that says whose the row is, or None.
    """
    bits = int.from_bytes(present, "little")
    indexes = [index for index in range(len(table.columns)) if bits >> index & 1]
    columns = tuple(table.columns[index] for index in indexes)
    names = [column.name for column in columns]
    return Image(
        columns,
        tuple(plans[index] for index in indexes),
        prefix,
        names.index(owner) if owner is not None and owner in names else None,
    )


def _write_loop(
    code: CodeBuilder,
    table: MySqlTable,
    options: ValueOptions,
    before: Image,
    after: Image | None,
    owned: str,
    *,
    partial: bool,
) -> None:
    """Write the function ``rows``."""
    code.names["from_bytes"] = int.from_bytes
    code.add(0, "def rows(event, p, end):")
    code.add(1, "out = []")
    code.add(1, "append = out.append")
    if not before.columns and (after is None or not after.columns):
        # A row without bytes has no end.
        code.add(1, "if p < end: raise ValueError(f'{end - p} bytes of rows without columns')")
    code.add(1, "while p < end:")
    json_columns = [column for column in table.columns if column.type == codes.JSON] if partial else []
    keeps, parts = _plan_partial(json_columns, before)
    ImageWriter(code, before, options, owned=owned, keeps=keeps).write(2)
    code.add(2, "append(brow)")
    if after is not None:
        if partial:
            size = (len(json_columns) + 7) // 8
            code.add(2, "partial = 0")
            code.add(2, "p += 1")
            code.add(2, "if event[p - 1] & 1:")
            code.add(3, f"partial = from_bytes(event[p:p + {size}], 'little')")
            code.add(3, f"p += {size}")
        ImageWriter(code, after, options, owned=owned, parts=parts).write(2)
        if owned and after.owner is None:
            code.add(2, "if brow is None: arow = None")
        code.add(2, "append(arow)")
    code.add(1, "if p != end: raise ValueError(f'the rows end {p - end} bytes behind the event')")
    code.add(1, "return out")


def _plan_partial(
    json_columns: Sequence[MySqlColumn], before: Image
) -> tuple[dict[str, str], dict[str, tuple[int, str]]]:
    """Variables that keep JSON documents of the image before, and what the image after makes of them."""
    shown = {column.name for column, plan in zip(before.columns, before.plans, strict=True) if plan is not None}
    keeps = {column.name: f"kept{number}" for number, column in enumerate(json_columns) if column.name in shown}
    return keeps, {column.name: (number, keeps.get(column.name, "None")) for number, column in enumerate(json_columns)}


def _compile_rows(table: MySqlTable, code: CodeBuilder) -> Rows:
    """The function of the source."""
    return code.function("rows", f"rows of {table.name}")


class _Ends:
    """Finds where each row of an event begins and ends, without decoding any. Compiled when it is first needed."""

    __slots__ = ("_code", "_make", "_name")

    def __init__(
        self, table: MySqlTable, options: ValueOptions, present: bytes, present_after: bytes | None, *, partial: bool
    ) -> None:
        self._name = str(table.name)
        self._code: Rows | None = None

        def make() -> Rows:
            code = CodeBuilder()
            nothing = [None] * len(table.columns)
            before = image_of(table, nothing, present, "b", None)
            after = None if present_after is None else image_of(table, nothing, present_after, "a", None)
            _write_loop(code, table, options, before, after, "", partial=partial)
            last = "append(brow)" if after is None else "append(arow)"
            code.lines = [line.replace(last, "append(p)").replace("append(brow)", "pass") for line in code.lines]
            return _compile_rows(table, code)

        self._make = make

    def __call__(self, event: bytes, start: int, end: int) -> list[tuple[int, int]]:
        """Where each row begins and ends.

        Raises:
            Fatal: the bytes are not rows of the structure.
        """
        if self._code is None:
            self._code = self._make()
        try:
            stops: list[int] = self._code(event, start, end)
        except Exception as error:
            raise Fatal(
                f"a rows event of {self._name} does not have the structure that is known of the table ({error}): the position "
                "lies before a change of the table that was not seen; have the server write binlog_row_metadata=FULL, or start "
                "a new snapshot"
            ) from error
        return list(zip([start, *stops], stops, strict=False))


def _one_by_one(
    name: str, code: CodeBuilder, fast: Rows, ends: _Ends, event: bytes, start: int, end: int, width: int
) -> list[Any]:
    """Decode rows with ``fast``, one at a time; raise BadRow with the decoded rows if some can't be decoded."""
    rows: list[Any] = []
    bad: list[tuple[int, str, str, bytes]] = []
    for number, (first, last) in enumerate(ends(event, start, end)):
        try:
            rows += fast(event, first, last)
        except Exception as error:  # noqa: BLE001 - whatever a conversion raises
            reason = str(error) or type(error).__name__
            bad.append((number, code.find_note(error.__traceback__), reason, event[first:last]))
            rows += [None] * width
    if bad:
        raise BadRow(name, bad, rows)
    return rows


def _make_ownerless(ends: _Ends, width: int) -> Rows:
    """A decoder that owns nothing: None for every image."""

    def rows(event: bytes, start: int, end: int) -> list[Any]:
        return [None] * (width * len(ends(event, start, end)))

    return rows
