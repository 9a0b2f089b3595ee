"""Writes the Python source that makes records of a table version: one function without walks over schemas or columns.

Two functions come out. ``feed`` goes over the rows of a run or, with images, over writes with their images. ``snapshot`` makes
the record of one row of the base table. A cell of a row is a local name where there are no images, else an index.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import msgspec

from connectors.api import Header, SourceRecord
from connectors.codegen import CodeBuilder, dict_display, indent_lines
from connectors.cql.java_text import header_text
from connectors.schema import STRING
from connectors.scylla.events.values import UUID_EPOCH, delta_function, event_form
from connectors.scylla.model import INSERT, OPERATION, PARTITION_DELETE, ROW_DELETE, SEQ, TIME, TTL, UPDATE
from connectors.scylla.positions import OFFSET_SEQ, OFFSET_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.scylla.events.contract import ScyllaEventSettings
    from connectors.scylla.events.envelope import ScyllaSchemas
    from connectors.scylla.events.shape import LogColumn, LogShape

#: From an index in a row to the expression for that cell.
Cell = "Callable[[int], str]"


class Functions(msgspec.Struct):
    """The generated functions, and their source.

    Attributes:
        feed: (rows, partition, offset, skip time, skip number, clock, append, special) -> None; the rows are tuples
            (row, old image, new image) with images; ``clock`` is (ms, us, ns) of processing; ``special`` gets each row that is
            no insert, update, delete of one row or image.
        snapshot: (cells, partition, offset, write time in us, clock) -> record.
        source: Python source of all.
    """

    feed: Callable[..., None]
    snapshot: Callable[..., SourceRecord]
    source: str


class SourceWriter:
    """Writes and compiles the functions of one table version."""

    def __init__(
        self,
        shape: LogShape,
        schemas: ScyllaSchemas,
        settings: ScyllaEventSettings,
        constants: Mapping[str, Any],
        topic: str,
    ) -> None:
        self._shape = shape
        self._schemas = schemas
        self._settings = settings
        self._constants = constants
        self._topic = topic
        self.keyed = settings.output_format == "legacy" or "kafka-key" in settings.key_placement
        self._code = CodeBuilder(
            SourceRecord=SourceRecord,
            Header=Header,
            STRING=STRING,
            KEY_SCHEMA=schemas.key if self.keyed else None,
            VALUE_SCHEMA=schemas.value,
            TOPIC=topic,
            time_parts=struct.Struct(">IHH8x").unpack,
        )
        self._headers = settings.output_format == "advanced" and "kafka-headers" in settings.key_placement
        self._payload_key = settings.output_format == "advanced" and "payload-key" in settings.key_placement
        self._pairs_ranges = settings.deletes_mode == "events"
        self._used: set[int] = set()

    def compile(self, *, images: bool) -> tuple[Functions, frozenset[int]]:
        """The functions, and the indexes of the cells (beyond the first six) that events are made of."""
        self._write_feed(joined=images)
        self._write_snapshot()
        functions = self._code.compile(f"events of {self._topic}")
        return (
            Functions(functions["feed"], functions["snapshot"], "\n".join(self._code.lines)),
            frozenset(index for index in self._used if index > TTL),
        )

    # -- expressions

    def _write_value(self, log_column: LogColumn, expression: str, *, base: bool = False) -> str:
        """The expression for a column's value from that of its cell; ``base``: the cell is of the base table."""
        kind = log_column.column.type
        pairs = not base and kind.name == "list" and kind.is_multicell
        form = event_form(kind, self._settings.compat, self._settings.names, pairs=pairs)
        return expression if form is None else f"{self._code.bind('form', form)}({expression})"

    def _write_key(self, cell: Callable[[int], str]) -> str:
        return dict_display(
            (log_column.name, self._write_value(log_column, cell(log_column.value)))
            for log_column in self._schemas.key_columns
        )

    def _source_template(self, snapshot: str) -> str:
        """The source struct without its times."""
        constants = self._constants
        members = [
            ("version", constants["version"]),
            ("connector", "scylla"),
            ("name", constants["name"]),
            ("ts_ms", None),
            ("snapshot", snapshot),
            ("db", constants["keyspace"]),
            ("sequence", None),
            ("ts_us", None),
            ("ts_ns", None),
            ("keyspace_name", constants["keyspace"]),
            ("table_name", constants["table"]),
        ]
        if self._schemas.has_ttl:
            members.append(("ttl", None))
        return self._code.bind("source", dict(members))

    @staticmethod
    def _write_source(template: str) -> list[str]:
        """Statements that make ``source`` from ``us``; like Java's, its nanoseconds are of the milliseconds."""
        return [
            "ms = us // 1000",
            f"source = {template}.copy()",
            "source['ts_ms'] = ms",
            "source['ts_us'] = us",
            "source['ts_ns'] = ms * 1000000",
        ]

    def _legacy_image(self, values: Callable[[int], str], change: Callable[[int], str]) -> str:
        """``before`` or ``after`` of the legacy format: values of one row, null only where the change says so."""
        members = []
        for log_column in self._schemas.columns:
            value = values(log_column.value)
            if log_column.is_key:
                members.append((log_column.name, self._write_value(log_column, value)))
            else:
                wrapped = f"{{'value': {self._write_value(log_column, value)}}}"
                members.append(
                    (log_column.name, f"{wrapped} if {value} is not None or {change(log_column.deleted)} else None")
                )
        return dict_display(members)

    def _write_modified(self, log_column: LogColumn, change: Callable[[int], str]) -> str:
        tests = [f"{change(log_column.value)} is not None", change(log_column.deleted)]
        if log_column.elements >= 0:
            tests.append(f"{change(log_column.elements)} is not None")
        return " or ".join(tests)

    def _write_image(
        self,
        image: Callable[[int], str],
        *,
        with_key: bool,
        change: Callable[[int], str] | None = None,
        otherwise: Callable[[int], str] | None = None,
    ) -> str:
        """``before`` or ``after`` of the advanced format.

        Args:
            image: where values come from.
            with_key: whether it has key columns.
            change: if given, only columns that this row changed come from ``image``.
            otherwise: where the others come from then; None: they are null.
        """
        members = []
        for log_column in self._schemas.columns:
            if log_column.is_key:
                if with_key:
                    members.append(
                        (log_column.name, self._write_value(log_column, (otherwise or image)(log_column.value)))
                    )
                continue
            value = self._write_value(log_column, image(log_column.value))
            if change is not None:
                fallback = "None" if otherwise is None else self._write_value(log_column, otherwise(log_column.value))
                value = f"({value}) if {self._write_modified(log_column, change)} else {fallback}"
            members.append((log_column.name, value))
        return dict_display(members)

    def _write_delta(self, cell: Callable[[int], str]) -> str:
        members = []
        for log_column in self._shape.others:
            value, deleted = cell(log_column.value), cell(log_column.deleted)
            if log_column.column.type.is_multicell:
                function = self._code.bind("delta", delta_function(log_column.column.type, self._settings.names))
                members.append((log_column.name, f"{function}({value}, {deleted}, {cell(log_column.elements)})"))
            else:
                wrapped = f"{{'value': {self._write_value(log_column, value)}}}"
                members.append((log_column.name, f"{wrapped} if {value} is not None or {deleted} else None"))
        return dict_display(members)

    def _headers_text(self, cell: Callable[[int], str]) -> str:
        """The statement that sets ``headers``; a null has none."""
        lines = []
        for log_column in self._schemas.columns:
            if log_column.is_key:
                prefix = "pk." if log_column.column.kind == "partition_key" else "ck."
                formatter = self._code.bind("header", header_text(log_column.column.type))
                lines.append(
                    f"({cell(log_column.value)} is not None, {prefix + log_column.name!r}, {formatter}, "
                    f"{cell(log_column.value)}),"
                )
        return (
            "headers = tuple(Header(name, text(value), STRING) for given, name, text, value in ("
            + " ".join(lines)
            + ") if given)"
        )

    def _write_template(self, op: str, *, clock: bool) -> str:
        """An envelope without what differs from row to row, made once per call; a copy of it costs half of a new one."""
        members = [("source", "None"), ("before", "None"), ("after", "None")]
        if self._payload_key:
            members.append((self._settings.payload_key_name, "None"))
        members += [
            ("op", repr(op)),
            ("ts_ms", "now_ms"),
            ("transaction", "None"),
            ("ts_us", "now_us" if clock else "None"),
            ("ts_ns", "now_ns" if clock else "None"),
        ]
        if self._schemas.has_deletion:
            members.append(("deletion", "None"))
        if self._schemas.has_delta:
            members.append(("delta", "None"))
        return dict_display(members)

    def _write_envelope(
        self, template: str, *, before: str = "None", after: str = "None", delta: str = "None"
    ) -> list[str]:
        """Statements that make ``value``."""
        members = [("before", before), ("after", after), ("delta", delta)]
        if self._payload_key:
            members.append((self._settings.payload_key_name, "key"))
        return [
            f"value = {template}.copy()",
            "value['source'] = source",
            *(f"value[{name!r}] = {expression}" for name, expression in members if expression != "None"),
        ]

    # -- functions

    def _write_record(self, offset: str, value: str, *, schema: str = "VALUE_SCHEMA") -> str:
        key = "key" if self.keyed else "None"
        tail = ", None, headers" if self._headers else ""
        return f"SourceRecord(partition, {offset}, TOPIC, {value}, {schema}, {key}, KEY_SCHEMA{tail})"

    def _write_feed(self, *, joined: bool) -> None:
        legacy = self._schemas.is_legacy
        used: set[int] = {TIME, SEQ, OPERATION}

        def local(index: int) -> str:
            used.add(index)
            return f"r{index}"

        row = self._cells_of("row") if joined else local
        write, delete = self._write_changes(row, joined=joined)
        key = f"key = {self._write_key(row)}"
        headers = [self._headers_text(row)] if self._headers else []
        ttl = row(TTL) if self._schemas.has_ttl else ""
        if not joined:
            self._used |= used
        unpacked = self._write_unpacking({TIME, SEQ, OPERATION} if joined else used, whole=not joined)
        writes, deletes = self._write_tests()
        images = [] if joined else [f"    elif r{OPERATION} == 0 or r{OPERATION} == 9:", "        pass"]
        self._code.define(
            "feed(rows, partition, base, skip_time, skip_seq, clock, append, special)",
            [
                "now_ms, now_us, now_ns = clock",
                *(
                    f"{name} = {self._write_template(op, clock=legacy)}"
                    for name, op in (("created", "c"), ("updated", "u"), ("deleted", "d"))
                ),
                *(
                    f"{name}_over = {self._write_template(op, clock=False)}"
                    for name, op in (("created", "c"), ("updated", "u"))
                    if legacy and joined
                ),
                "last = None",
                f"for {'row, old, new' if joined else 'row'} in rows:",
                f"    {unpacked}",
                f"    if r{TIME} != last:",
                f"        last = r{TIME}",
                *indent_lines(
                    [
                        "low, middle, high = time_parts(last)",
                        f"us = ((high & 4095) << 48 | middle << 32 | low) // 10 - {UUID_EPOCH // 10}",
                        *self._write_source(self._source_template("false")),
                        *(["bare = source"] if ttl else []),
                        "text = last.hex('-', 2)",
                        "time_text = text[:4] + text[5:29] + text[30:34] + text[35:]",
                    ],
                    2,
                ),
                f"    if r{TIME} == skip_time and r{SEQ} <= skip_seq:",
                *(
                    [
                        f"        if r{OPERATION} > 4 and r{OPERATION} < 9:",
                        "            special(row, time_text, source, skipped=True)",
                    ]
                    if self._pairs_ranges
                    else []
                ),
                "        continue",
                *([f"    source = {{**bare, 'ttl': {ttl}}}"] if ttl else []),
                f"    if {writes}:",
                *indent_lines([key, *headers, *write], 2),
                f"    elif {deletes}:",
                *indent_lines([key, *headers, *delete], 2),
                *images,
                "    else:",
                "        special(row, time_text, source)",
            ],
        )

    def _cells_of(self, name: str) -> Callable[[int], str]:
        """The function from an index to the expression for that cell of the row ``name``."""

        def cell(index: int) -> str:
            self._used.add(index)
            return f"{name}[{index}]"

        return cell

    def _write_changes(self, row: Callable[[int], str], *, joined: bool) -> tuple[list[str], list[str]]:
        """Statements for a row that is written, and for one that is deleted."""
        plain = self._legacy_image(row, row) if self._schemas.is_legacy else ""
        if not joined:
            if self._schemas.is_legacy:
                return self._write_change(row, after=plain), self._write_delete(before=plain)
            return self._write_change(row), self._write_delete()
        old = self._cells_of("old")
        if self._schemas.is_legacy:
            return self._legacy_joined(row, old, plain)
        return self._advanced_joined(row, old, self._cells_of("new"))

    def _write_unpacking(self, used: set[int], *, whole: bool) -> str:
        """The statement that gives cells of ``row`` local names; ``whole``: it may unpack the row, where most are used."""
        width = self._shape.width
        if whole and len(used) * 3 > width:
            return f"({', '.join(f'r{index}' if index in used else '_' for index in range(width))},) = row"
        return "; ".join(f"r{index} = row[{index}]" for index in sorted(used))

    def _write_tests(self) -> tuple[str, str]:
        """Expressions for whether a row is written, and whether it is deleted, without operations that are skipped."""
        letters = {INSERT: "c", UPDATE: "u", ROW_DELETE: "d"}
        if not self._shape.clustering:
            letters[PARTITION_DELETE] = "d"
        tests: dict[bool, list[str]] = {False: [], True: []}
        for number, letter in letters.items():
            if letter not in self._settings.skipped_operations:
                tests[letter == "d"].append(f"r{OPERATION} == {number}")
        return " or ".join(tests[False]) or "False", " or ".join(tests[True]) or "False"

    @staticmethod
    def _write_offset(number: str) -> list[str]:
        """Statements that make ``offset``."""
        return ["offset = base.copy()", f"offset[{OFFSET_TIME!r}] = time_text", f"offset[{OFFSET_SEQ!r}] = {number}"]

    def _write_change(
        self, row: Callable[[int], str], *, before: str = "None", after: str = "None", suffix: str = ""
    ) -> list[str]:
        """An insert or update; ``suffix``: of the templates."""
        template = f"(created{suffix} if r{OPERATION} == 2 else updated{suffix})"
        delta = self._write_delta(row) if self._schemas.has_delta else "None"
        return [
            *self._write_envelope(template, before=before, after=after, delta=delta),
            *self._write_offset(f"r{SEQ}"),
            f"append({self._write_record('offset', 'value')})",
        ]

    def _write_delete(self, *, before: str = "None") -> list[str]:
        """A delete and its tombstone. Without a key there is nothing that a tombstone could stand for."""
        tombstone = self._settings.tombstones and self.keyed
        lines = [
            *self._write_envelope("deleted", before=before),
            *self._write_offset(f"r{SEQ} - 1" if tombstone else f"r{SEQ}"),
            f"append({self._write_record('offset', 'value')})",
        ]
        if tombstone:
            lines += [*self._write_offset(f"r{SEQ}"), f"append({self._write_record('offset', 'None', schema='None')})"]
        return lines

    def _legacy_joined(
        self, row: Callable[[int], str], old: Callable[[int], str], plain: str
    ) -> tuple[list[str], list[str]]:
        image = self._legacy_image(old, row)
        without = self._write_change(row, after=plain)
        with_old = self._write_change(row, before=image, after=plain, suffix="_over")
        writes = ["if old is None:", *indent_lines(without), "else:", *indent_lines(with_old)]
        return writes, self._write_delete(before=f"{plain} if old is None else {image}")

    def _advanced_joined(
        self, row: Callable[[int], str], old: Callable[[int], str], new: Callable[[int], str]
    ) -> tuple[list[str], list[str]]:
        settings, schemas = self._settings, self._schemas
        full_old = self._write_image(old, with_key=schemas.before_key)
        full_new = self._write_image(new, with_key=schemas.after_key)
        lines = [
            f"if r{OPERATION} == 2:",
            f"    before = None if old is None else {full_old}",
            f"    after = None if new is None else {full_new}",
            "else:",
        ]
        if settings.include_after == "only-updated":
            lines.append(
                f"    after = None if new is None else {self._write_image(new, with_key=schemas.after_key, change=row)}"
            )
        else:
            lines.append(f"    after = None if new is None else {full_new}")
        if settings.include_before == "only-updated":
            lines.append(
                f"    before = None if old is None else {self._write_image(old, with_key=schemas.before_key, change=row)}"
            )
        else:
            mixed = self._write_image(old, with_key=schemas.before_key, change=row, otherwise=new)
            lines.append(f"    before = None if old is None else {full_old} if new is None else {mixed}")
        lines += self._write_change(row, before="before", after="after")
        return lines, self._write_delete(before=f"None if old is None else {full_old}")

    def _write_snapshot(self) -> None:
        """From cells of the base table, which stand at ``LogColumn.base``."""

        def cell(log_column: LogColumn) -> str:
            return f"cells[{log_column.base}]"

        members = []
        for log_column in self._schemas.columns:
            value = self._write_value(log_column, cell(log_column), base=True)
            if log_column.is_key:
                if self._schemas.after_key:
                    members.append((log_column.name, value))
            elif self._schemas.is_legacy:
                members.append((log_column.name, f"{{'value': {value}}} if {cell(log_column)} is not None else None"))
            else:
                members.append((log_column.name, value))
        key = dict_display(
            (log_column.name, self._write_value(log_column, cell(log_column), base=True))
            for log_column in self._schemas.key_columns
        )
        by_value = {log_column.value: log_column for log_column in self._schemas.columns}
        headers = [self._headers_text(lambda index: cell(by_value[index]))] if self._headers else []
        self._code.define(
            "snapshot(cells, partition, offset, us, clock)",
            [
                "now_ms, now_us, now_ns = clock",
                *self._write_source(self._source_template("true")),
                f"key = {key}",
                *headers,
                *self._write_envelope(
                    self._write_template("r", clock=self._schemas.is_legacy), after=dict_display(members)
                ),
                f"return {self._write_record('offset', 'value')}",
            ],
        )
