"""Writes the Python source of a row decoder: one function per structure and kind of event. Pure.

What makes it fast: neighbours of fixed size are unpacked by one ``struct`` call together with the length of the text after
them, the null bitmap is tested once as one number (rows without nulls take a straight path), and a row is one dict literal.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.codegen import dict_display
from connectors.mysql.rows.decode_columns import ColumnCode, make_column_code, unscaled_decimal
from connectors.mysql.rows.json_diff import apply_diffs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.codegen import CodeBuilder
    from connectors.mysql.model import ColumnPlan, MySqlColumn
    from connectors.mysql.schema.types import ValueOptions

_WORD: Final = re.compile(r"\$(\w)")
_BITMAPS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
#: The largest number of columns with a straight path; for more, it would only make the function longer to compile.
_STRAIGHT: Final = 200


class Image(NamedTuple):
    """The columns to read from a row image.

    Attributes:
        columns: the columns that the image has, in order.
        plans: how each becomes a field; None: it is stepped over.
        prefix: of the names of the image's variables.
        owner: index in ``columns`` of the column that decides which task owns the row, or None.
    """

    columns: tuple[MySqlColumn, ...]
    plans: tuple[ColumnPlan | None, ...]
    prefix: str
    owner: int | None = None


class _Member(NamedTuple):
    """One column of an image, ready to be written."""

    column: MySqlColumn
    plan: ColumnPlan | None
    code: ColumnCode
    target: str
    bit: int
    owner: bool

    @property
    def numbers(self) -> list[str]:
        return [f"{self.target}{letter}" for letter in "ab"[: self.code.numbers]]


def _write_unpack(
    code: CodeBuilder, depth: int, formats: Sequence[str], targets: Sequence[str], size: int, column: str
) -> None:
    """Add the unpacking of neighbours at ``p``, and the step behind them."""
    if targets:
        form = "".join(formats)
        if form == "B":
            code.add(depth, f"{targets[0]} = event[p]", column)
        else:
            unpack = code.bind("unpack", Struct("<" + form).unpack_from)
            code.add(depth, f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {unpack}(event, p)", column)
    if targets or size:
        code.add(depth, f"p += {size}", column)


class ImageWriter:
    """Writes the reading of one row image.

    Args:
        code: where it goes.
        image: what to read.
        options: how values look.
        owned: the condition under which a row is owned, with ``{}`` for the number; "" for all.
        keeps: variables that keep the bytes of JSON columns, by column.
        parts: JSON columns that may hold changes only: by column the bit of ``partial`` that says so, and the variable with the
            bytes to be changed.
        unscaled: DECIMAL columns whose values are the bytes of their unscaled numbers.
        display: makes a row's expression of the variables of its columns; None: a dict.
    """

    def __init__(
        self,
        code: CodeBuilder,
        image: Image,
        options: ValueOptions,
        *,
        owned: str = "",
        keeps: Mapping[str, str] | None = None,
        parts: Mapping[str, tuple[int, str]] | None = None,
        unscaled: frozenset[str] = frozenset(),
        display: Callable[[dict[str, str]], str] | None = None,
    ) -> None:
        self._code = code
        self._unscaled = unscaled
        self._display = display
        self._image = image
        self._owned = owned if image.owner is not None else ""
        self._names: dict[str, dict[str, str]] = {}
        self._keeps = keeps or {}
        self._parts = parts or {}
        self._members = [
            _Member(
                column, plan, self._column_code(column, options), f"{image.prefix}{index}", index, index == image.owner
            )
            for index, (column, plan) in enumerate(zip(image.columns, image.plans, strict=True))
        ]

    def _column_code(self, column: MySqlColumn, options: ValueOptions) -> ColumnCode:
        if column.name in self._unscaled:
            return unscaled_decimal(column)
        column_code = make_column_code(column, options)
        if column.name in self._keeps:
            return column_code._replace(value=column_code.value.replace("$0", f"({self._keeps[column.name]} := $0)"))
        if column.name in self._parts:
            bit, stored = self._parts[column.name]
            return column_code._replace(
                value=f"$j({stored}, $0) if partial & {1 << bit} else {column_code.value}",
                names={**column_code.names, "j": apply_diffs},
            )
        return column_code

    def write(self, depth: int) -> None:
        """The code: ``p`` is at the image and ends behind it; ``{prefix}row`` is the dict, or None for a row of others."""
        row = f"{self._image.prefix}row"
        head = self._write_bitmap(depth)
        self._write_checked(depth, head, self._write_rest, row)

    def literal(self) -> str:
        """The row's expression."""
        targets = {member.column.name: member.target for member in self._members if member.plan is not None}
        return dict_display(targets.items()) if self._display is None else self._display(targets)

    # Reading the bitmap, and with it the columns before the first that can be null.

    def _write_bitmap(self, depth: int) -> int:
        """The null bitmap, unpacked with the columns before the first that can be null; how many those are."""
        members, code, nulls = self._members, self._code, f"{self._image.prefix}nulls"
        size = (len(members) + 7) // 8
        count = 0
        while count < len(members) and not members[count].column.nullable:
            count += 1
            if members[count - 1].owner and self._owned:
                break
        form = _BITMAPS.get(size, f"{size}s")
        target = nulls if size in _BITMAPS else f"{nulls}b"
        if not any(member.column.nullable for member in members):
            form, target = f"{size}x", ""
        self._write_straight(depth, members[:count], skip=False, before=(form, target, size))
        if target and size not in _BITMAPS:
            code.add(depth, f"{nulls} = from_bytes({target}, 'little')")
        return count

    def _write_checked(self, depth: int, start: int, write_members: Any, row: str) -> None:
        """Write the members from ``start`` on; the question of the owner as soon as its number is known."""
        code, members = self._code, self._members
        owner = self._image.owner
        if not self._owned or owner is None:
            write_members(depth, start, len(members), skip=False)
            code.add(depth, f"{row} = {self.literal()}")
            return
        if owner >= start:
            write_members(depth, start, owner + 1, skip=False)
            start = owner + 1
        code.add(depth, f"if {self._owned.format(self._raw_number(members[owner]))}:")
        write_members(depth + 1, start, len(members), skip=False)
        code.add(depth + 1, f"{row} = {self.literal()}")
        code.add(depth, "else:")
        write_members(depth + 1, start, len(members), skip=True)
        code.add(depth + 1, f"{row} = None")

    def _write_rest(self, depth: int, start: int, stop: int, *, skip: bool) -> None:
        """The members from ``start`` to ``stop``: a straight path for rows without nulls, and one that asks for each."""
        code, members = self._code, self._members[start:stop]
        nullable = [member for member in members if member.column.nullable]
        if not nullable:
            self._write_straight(depth, members, skip=skip)
            return
        nulls = f"{self._image.prefix}nulls"
        mask = sum(1 << member.bit for member in nullable)
        if len(self._members) <= _STRAIGHT and len(nullable) > 1:
            code.add(depth, f"if {nulls} & {mask}:")
            self._write_asking(depth + 1, members, skip=skip)
            code.add(depth, "else:")
            self._write_straight(depth + 1, members, skip=skip)
        else:
            self._write_asking(depth, members, skip=skip)

    def _write_asking(self, depth: int, members: Sequence[_Member], *, skip: bool) -> None:
        code, nulls = self._code, f"{self._image.prefix}nulls"
        start = 0
        while start < len(members):
            member = members[start]
            if not member.column.nullable:
                stop = start
                while stop < len(members) and not members[stop].column.nullable:
                    stop += 1
                self._write_straight(depth, members[start:stop], skip=skip)
                start = stop
                continue
            start += 1
            if skip or member.plan is None:
                code.add(depth, f"if not {nulls} & {1 << member.bit}:")
                self._write_straight(depth + 1, [member], skip=skip)
                continue
            code.add(depth, f"if {nulls} & {1 << member.bit}:")
            plan = member.plan
            null = (
                f"{self._code.bind('mask', plan.transform)}(None)"
                if plan.nulls and plan.transform is not None
                else "None"
            )
            code.add(depth + 1, f"{member.target} = {null}", member.column.name)
            if member.column.name in self._keeps:
                code.add(depth + 1, f"{self._keeps[member.column.name]} = None")
            code.add(depth, "else:")
            self._write_straight(depth + 1, [member], skip=skip)

    def _write_straight(
        self, depth: int, members: Sequence[_Member], *, skip: bool, before: tuple[str, str, int] | None = None
    ) -> None:
        """Members none of which is null; ``before``: format, target and size of what is unpacked with the first."""
        start = 0
        while start < len(members) or before is not None:
            stop = start
            while stop < len(members) and not members[stop].code.varying:
                stop += 1
            run = members[start:stop]
            varying = members[stop] if stop < len(members) else None
            self._write_run(depth, run, varying, skip=skip, before=before)
            before = None
            start = stop + 1

    def _write_run(
        self,
        depth: int,
        run: Sequence[_Member],
        varying: _Member | None,
        *,
        skip: bool,
        before: tuple[str, str, int] | None,
    ) -> None:
        """Fixed members and the varying one after them."""
        code = self._code
        formats, targets, size = self._describe_run(run, skip=skip)
        if before is not None:
            formats.insert(0, before[0])
            if before[1]:
                targets.insert(0, before[1])
            size += before[2]
        if varying is not None:
            formats.append(varying.code.format)
            targets += varying.numbers
            size += varying.code.size
        first = run[0] if run else varying
        _write_unpack(code, depth, formats, targets, size, first.column.name if first is not None else "")
        if not skip:
            for member in run:
                self._write_value(depth, member, member.numbers)
        if varying is None:
            return
        length = self._length_expression(varying)
        if skip or varying.plan is None:
            code.add(depth, f"p += {length}", varying.column.name)
        else:
            self._write_value(depth, varying, [f"event[p:(p := p + {length})]"])

    def _describe_run(self, run: Sequence[_Member], *, skip: bool = False) -> tuple[list[str], list[str], int]:
        """Formats, targets and size of fixed neighbours."""
        formats: list[str] = []
        targets: list[str] = []
        for member in run:
            if skip or (member.plan is None and not member.owner):
                formats.append(f"{member.code.size}x")
                continue
            formats.append(member.code.format)
            targets += [member.target] if self._is_same(member) else member.numbers
        return formats, targets, sum(member.code.size for member in run)

    def _is_same(self, member: _Member) -> bool:
        """Whether the unpacked number is the field's value."""
        return member.code.value == "$0" and not member.code.varying and not self._is_changed(member)

    @staticmethod
    def _is_changed(member: _Member) -> bool:
        return member.plan is not None and member.plan.transform is not None

    def _raw_number(self, member: _Member) -> str:
        """The number of the owner's column as it is stored."""
        if self._is_same(member):
            return member.target
        return f"(({member.target}b << 16) + {member.target}a)" if member.code.numbers == 2 else f"{member.target}a"

    @staticmethod
    def _length_expression(member: _Member) -> str:
        return f"({member.target}a | {member.target}b << 16)" if member.code.numbers == 2 else f"{member.target}a"

    def _write_value(self, depth: int, member: _Member, numbers: Sequence[str]) -> None:
        """The field's value from what was unpacked."""
        if member.plan is None or self._is_same(member):
            return
        names = self._names.get(member.target)
        if names is None:
            names = self._names[member.target] = {
                stem: self._code.bind(stem, value) for stem, value in member.code.names.items()
            }
        words = {
            **names,
            "t": member.target + "t",
            "y": member.target + "y",
            **{str(number_index): number for number_index, number in enumerate(numbers)},
        }
        value = _WORD.sub(lambda match: words[match[1]], member.code.value)
        self._code.add(depth, f"{member.target} = {value}", member.column.name)
        if self._is_changed(member):
            transform = self._code.bind("mask", member.plan.transform)
            call = f"{member.target} = {transform}({member.target})"
            # A date can be null without a null bit.
            self._code.add(
                depth, call if member.plan.nulls else f"if {member.target} is not None: {call}", member.column.name
            )
