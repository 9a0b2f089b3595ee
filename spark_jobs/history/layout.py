"""Where a row goes: ``sink.files.partition.by``, parsed. No I/O.

Levels are separated by ``/``. The first ones name the table's directory, from its namespace: the words ``namespace``,
``exact`` or text with ``{placeholders}``. The rest are partition directories ``name=value`` of the time: ``date``, ``hour``,
``month``, ``year``, ``name={a pattern of Java's DateTimeFormatter}`` or ``name={column:a column of the table}``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from pyspark.sql import Column

#: UMS's seven parts of a namespace.
PARTS: Final = ("datastore", "instance", "database", "table", "version", "database_partition", "table_partition")
#: Words for time levels: directory name and pattern.
_TIMES: Final = {
    "year": ("ums_year_", "yyyy"),
    "month": ("ums_month_", "yyyy-MM"),
    "date": ("ums_date_", "yyyy-MM-dd"),
    "hour": ("ums_hour_", "HH"),
}
_TABLE_WORDS: Final = {"namespace": "{namespace}", "exact": "{exact}"}
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_PATTERN: Final = re.compile(r"(?:[yMdHmswuDEe\-_.]|'[^'/]*')+\Z")


@dataclass(frozen=True, slots=True)
class Level:
    """One partition level: a directory ``name=value``; value by a time ``pattern`` or from a ``column``."""

    name: str
    pattern: str = ""
    column: str = ""


@dataclass(frozen=True, slots=True)
class HistoryLayout:
    """A parsed ``sink.files.partition.by``: templates of the table's directory, one per level; then the partition levels."""

    table: tuple[str, ...]
    levels: tuple[Level, ...]

    @property
    def by_shard(self) -> bool:
        """Whether the table's directory names the shard."""
        return any(f"{{{name}}}" in level for level in self.table for name in PARTS[5:])

    def directory(self, namespace: str, shard: tuple[int, int] | None = None) -> str:
        """The table's directory for ``namespace``, relative to the sink's path; ``shard`` replaces that of the namespace."""
        values = name_parts(namespace) | ({} if shard is None else dict(zip(PARTS[5:], map(str, shard), strict=True)))
        return "/".join(_PLACEHOLDER.sub(lambda match: _escape_name(values[match[1]]), level) for level in self.table)

    def bucket_columns(self, time: Column) -> list[tuple[str, Column]]:
        """Name and Spark expression of each partition level; ``time`` is the timestamp that counts."""
        from pyspark.sql import functions as f

        from spark_jobs.spark.frames import get_column

        return [
            (level.name, f.date_format(time, level.pattern) if level.pattern else get_column(level.column))
            for level in self.levels
        ]


def name_parts(namespace: str) -> dict[str, str]:
    """The placeholders' values: a name of seven parts is UMS's, of others the last part is the table.

    ``namespace`` leaves UMS's table version out, so that a table keeps its directory when its structure changes.
    """
    parts = namespace.split(".")
    if len(parts) == len(PARTS):
        part_values = dict(zip(PARTS, parts, strict=True))
        return {**part_values, "exact": namespace, "namespace": ".".join(parts[:4] + parts[5:])}
    return {
        **dict.fromkeys(PARTS, ""),
        "table": parts[-1],
        "database": ".".join(parts[:-1]),
        "exact": namespace,
        "namespace": namespace,
    }


def parse_layout(layout_text: str) -> HistoryLayout:
    """A layout from its text form.

    Raises:
        ConfigInvalid: the text is not one; the message says which level and what is allowed.
    """
    table: list[str] = []
    levels: list[Level] = []
    for raw in layout_text.split("/"):
        level = raw.strip()
        template = _TABLE_WORDS.get(level, level)
        names = _PLACEHOLDER.findall(template)
        known_names = {*PARTS, "namespace", "exact"}
        if names and all(name in known_names for name in names) and "=" not in template:
            if levels:
                raise _make_layout_error(
                    layout_text, level, "levels of the table's directory come before those of time"
                )
            table.append(template)
        elif level in _TIMES:
            levels.append(Level(*_TIMES[level]))
        else:
            levels.append(_parse_level(layout_text, level))
    if not any(placeholder in level for level in table for placeholder in ("{namespace}", "{exact}", "{table}")):
        raise _make_layout_error(
            layout_text,
            layout_text,
            "the first level has to say which table: namespace, exact, or a string with {table}",
        )
    if len({level.name for level in levels}) < len(levels):
        raise _make_layout_error(layout_text, layout_text, "two levels have one name")
    return HistoryLayout(tuple(table), tuple(levels))


def _parse_level(layout_text: str, level: str) -> Level:
    name, equals, value = level.partition("=")
    match = _PLACEHOLDER.fullmatch(value)
    if not equals or not _NAME.fullmatch(name) or match is None:
        raise _make_layout_error(
            layout_text,
            level,
            "a level is one of namespace, exact, year, month, date, hour, text with {database} and the "
            "like for the table's directory, name={yyyyMMdd} or name={column:country}",
        )
    inner = match[1]
    if inner.startswith("column:") and inner != "column:":
        return Level(name, column=inner.removeprefix("column:"))
    if not _PATTERN.fullmatch(inner):
        raise _make_layout_error(
            layout_text,
            level,
            f"{inner!r} is not a time pattern (letters y M d H m s, and - _ . or 'text' between them)",
        )
    return Level(name, pattern=inner)


def _make_layout_error(layout_text: str, level: str, reason: str) -> ConfigInvalid:
    return ConfigInvalid(f"sink.files.partition.by={layout_text!r}: level {level!r}: {reason}")


def _escape_name(name: str) -> str:
    """A directory name without anything that a file system or a glob would take for more than a letter."""
    quoted = quote(name, safe="-_.~ ")
    if quoted in ("", ".", ".."):
        return quoted.replace(".", "%2E") or "%"
    # Names that begin so are out of sight for most readers.
    return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted[0] in "_." else quoted
