"""Prints the answer of a preview as tables. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Characters of a value that are shown.
_WIDEST: Final = 40


def preview_lines(answer: Mapping[str, Any]) -> list[str]:
    """The lines of ``millrace job preview`` for an answer (``FlowPreview`` of the REST API)."""
    source = "given rows" if answer["source"] == "given" else "the newest records"
    speed = "" if answer["warm"] else ", which had to start"
    title = (
        f"flow {answer['name']}: {answer['records']} of {source}, in {answer['duration_ms'] / 1000:.1f} s by the Spark "
    )
    lines = [f"{title}application {answer['application']}{speed}"]
    lines += _indent_lines(line for table in answer["inputs"] for line in table_lines(table))
    lines += _format_records("can't be decoded", answer["errors"], len(answer["errors"]))
    for step in answer["steps"]:
        lines += ["", f"step {step['name']} ({step['type']}): {step['rows_in']} rows in, {step['rows_out']} out"]
        if "error" in step:
            lines.append(f"  FAILED: {step['error']}")
        lines += _indent_lines(line for table in step["tables"] for line in table_lines(table))
        for title, name in (("left out", "dropped"), ("changed", "changed"), ("failing", "errors")):
            lines += _format_records(
                title, step[name], step[f"{name.removesuffix('s') if name == 'errors' else name}_count"]
            )
    if "error" in answer:
        lines += ["", f"FAILED: {answer['error']}"]
    return lines + [f"note: {warning}" for warning in answer["warnings"]]


def table_lines(table: Mapping[str, Any]) -> list[str]:
    """A table with its rows, columns aligned; key columns have a star."""
    columns = table["columns"]
    header = ["op", *(f"{column['name']}{'*' if column['key'] else ''}" for column in columns), "record"]
    types = ["", *(column["type"] or "?" for column in columns), ""]
    body = [
        [row["op"], *(format_cell(row["values"].get(column["name"])) for column in columns), row["record"]]
        for row in table["rows"]
    ]
    hidden_rows = table["count"] - len(table["rows"])
    lines = [f"{table['table']}: {table['count']} rows", *_indent_lines(align_cells([header, types, *body]))]
    return lines + ([f"  and {hidden_rows} more"] if hidden_rows else [])


def align_cells(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, each column as wide as its widest cell."""
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    return [
        "  ".join(cell_text.ljust(width) for cell_text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def format_cell(value: Any) -> str:
    """A value on one line, cut off where it is long."""
    cell_text = "null" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    cell_text = " ".join(cell_text.split())
    return cell_text if len(cell_text) <= _WIDEST else f"{cell_text[: _WIDEST - 3]}..."


def _format_records(title: str, records: Sequence[Mapping[str, Any]], count: int) -> list[str]:
    if not count:
        return []
    lines = [f"  {title}: {count}"]
    for record in records:
        table = f", table {record['table']}" if "table" in record else ""
        operation = f", {record['op']}" if "op" in record else ""
        lines.append(f"    {record['record']}{table}{operation}: {record['reason']}")
        if record.get("values"):
            values = ", ".join(f"{name}={format_cell(value)}" for name, value in record["values"].items())
            lines.append(f"      {values}")
    return lines + ([f"    and {count - len(records)} more"] if count > len(records) else [])


def _indent_lines(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
