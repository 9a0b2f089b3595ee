"""Finds the kind and the tables of a statement in the binlog. Pure; a statement that is not understood is no error.

Structures come from the binlog's own metadata, so statements are not parsed for them. Only the first words are looked at: which
kind of change it is, and which tables it names.
"""

from __future__ import annotations

import functools
import re
from typing import Final, Literal, NamedTuple

from connectors.mysql.model import TableName

Kind = Literal["create", "alter", "drop", "rename", "truncate", "index", "database", "user", "rows", "other"]

#: Bits of ``sql_mode``, which decides how a statement is to be read; MSSQL is MariaDB's.
ANSI_QUOTES: Final = 1 << 2
MSSQL: Final = 1 << 10
NO_BACKSLASH_ESCAPES: Final = 1 << 20
_QUOTED_NAME: Final = r"`(?:[^`]|``)*`"
_BRACKETED_NAME: Final = r"\[(?:[^\]]|\]\])*\]"
#: Between double and single quotes, without and with escapes by backslashes.
_DOUBLE: Final = r'"(?:[^"]|"")*"', r'"(?:[^"\\]|""|\\.)*"'
_SINGLE: Final = r"'(?:[^']|'')*'", r"'(?:[^'\\]|''|\\.)*'"
#: Tokens that are looked at where all that matters is in the head.
_MOST: Final = 2_000
#: First words of statements that may name tables at their end.
_READ_WHOLE: Final = frozenset({"ALTER", "DROP", "RENAME", "SET"})
_OPTIONAL: Final = frozenset(
    {
        "IF",
        "NOT",
        "EXISTS",
        "OR",
        "REPLACE",
        "TEMPORARY",
        "ONLINE",
        "OFFLINE",
        "IGNORE",
        "UNIQUE",
        "FULLTEXT",
        "SPATIAL",
        "WAIT",
        "NOWAIT",
        "LOW_PRIORITY",
        "QUICK",
        "DELAYED",
        "HIGH_PRIORITY",
    }
)
#: What may be before a table's name; others of ``_OPTIONAL`` may be the name itself.
_BEFORE_NAME: Final = frozenset({"IF", "NOT", "EXISTS", "."})
#: What may be behind one that is not the last, with the number of tokens that belong to it: ``WAIT 5``.
_AFTER_NAME: Final = {",": 1, "TO": 1, "WAIT": 2, "NOWAIT": 1}
#: ``SELECT * FROM a.b [AS] c WHERE ...``: the one form of statement that can be read in chunks.
_SELECT: Final = re.compile(
    r"\s*SELECT\s+(?:\w+\.)?\*\s+FROM\s+(?P<name>[`\w$.]+)(?:\s+(?:AS\s+)?(?!WHERE\b|ORDER\b)(?P<alias>\w+))?"
    r"(?:\s+WHERE\s+(?P<condition>.*?))?(?:\s+ORDER\s+BY\s+[^()]+?)?\s*;?\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
_NOT_ROWS: Final = re.compile(r"\b(LIMIT|GROUP\s+BY|HAVING|UNION|PROCEDURE|INTO|FOR\s+UPDATE|WINDOW)\b", re.IGNORECASE)
_SQL_LITERALS: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`", re.DOTALL)
_ROWS: Final = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"})
#: Behind ANALYZE where it is about statistics.
_TABLE_WORDS: Final = frozenset({"TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG"})


class SqlStatement(NamedTuple):
    """A statement's head.

    Attributes:
        text: the statement.
        kind: ``rows`` for one that changes rows itself (statement format); ``other`` if it is nothing of the rest.
        database: the database that it is about, or in which it ran.
        tables: tables that it names, in order; of a rename old and new ones in turn.
        temporary: whether it is about a temporary table.
        if_absent: whether it says IF NOT EXISTS.
        drops_database: whether all tables of ``database`` are gone with it.
        partition_out: whether a partition of its first table becomes the second one (MariaDB), with rows that no event has.
        partition_in: whether the second table becomes a partition of the first one (MariaDB).
    """

    text: str
    kind: Kind
    database: str
    tables: tuple[TableName, ...] = ()
    temporary: bool = False
    if_absent: bool = False
    drops_database: bool = False
    partition_out: bool = False
    partition_in: bool = False

    @property
    def changes_structure(self) -> bool:
        """Whether a definition that was read before may be wrong now."""
        return self.kind in {"create", "alter", "drop", "rename", "index", "database"} and not self.temporary

    @property
    def folded(self) -> SqlStatement:
        """The same with names in lower case, as a server with ``lower_case_table_names=1`` stores them."""
        return self._replace(database=self.database.lower(), tables=tuple(name.folded for name in self.tables))

    @property
    def gone(self) -> tuple[TableName, ...]:
        """Tables that are no longer there under these names."""
        if self.temporary:
            return ()
        if self.partition_in:
            return self.tables[1:]
        return self.tables if self.kind == "drop" else self.tables[::2] if self.kind == "rename" else ()


def classify_statement(sql: str, schema: str, sql_mode: int = 0) -> SqlStatement:
    """The head of a statement that ran with this ``sql_mode`` in the database ``schema``, or is about that one."""
    tokens = _split_tokens(sql, sql_mode)
    upper = [token.upper() for token in tokens]
    if upper[:2] == ["SET", "STATEMENT"] and "FOR" in upper:  # MariaDB: variables for one statement
        tokens = tokens[upper.index("FOR") + 1 :]
    if not tokens:
        return SqlStatement(sql, "other", schema)
    first = tokens[0].upper()
    remainder = tokens[1:]
    temporary = False
    while remainder and remainder[0].upper() in _OPTIONAL and first != "TRUNCATE":
        temporary = temporary or remainder[0].upper() == "TEMPORARY"
        remainder = remainder[1:]
    object_type = remainder[0].upper() if remainder else ""
    if first == "TRUNCATE":
        return SqlStatement(
            sql, "truncate", schema, _read_names(remainder[1:] if object_type == "TABLE" else remainder, schema, 1)
        )
    if first == "RENAME" and object_type in {"TABLE", "TABLES"}:
        return SqlStatement(sql, "rename", schema, _read_names(remainder[1:], schema))
    if first in {"CREATE", "ALTER", "DROP"}:
        return _classify_definition(first, object_type, remainder, sql, schema, temporary=temporary)
    if first in _ROWS:
        return SqlStatement(sql, "rows", schema, _read_changed_table(first, remainder, schema))
    if first == "SELECT":
        # A stored function that changes rows, whatever statement has called it: ``SELECT `database`.`function`()``.
        return SqlStatement(sql, "rows", next((name.database for name in _read_names(remainder, schema, 1)), schema))
    if first == "WITH" or (first == "ANALYZE" and object_type not in _TABLE_WORDS):
        changes = _find_change(tokens)
        if changes:
            names = _read_changed_table(changes[0].upper(), changes[1:], schema)
            return SqlStatement(sql, "rows", schema, names)
    if first in {"GRANT", "REVOKE"} or (first in {"SET", "RENAME"} and object_type in {"PASSWORD", "USER"}):
        return SqlStatement(sql, "user", schema)
    return SqlStatement(sql, "other", schema)


def _read_changed_table(first: str, remainder: list[str], schema: str) -> tuple[TableName, ...]:
    """The first table of a statement that changes rows: the only one that an INSERT changes."""
    before = {"DELETE": "FROM", "LOAD": "TABLE"}.get(first, "INTO")
    upper = [word.upper() for word in remainder]
    after = remainder[upper.index(before) + 1 :] if before in upper else remainder if first != "LOAD" else []
    return _read_names(after, schema, 1)


def _find_change(tokens: list[str]) -> list[str]:
    """The part that changes rows, behind the common table expressions or MariaDB's ANALYZE; [] of one without it."""
    depth = 0
    for number, word in enumerate(tokens):
        depth += (word == "(") - (word == ")")
        if not depth and word.upper() in _ROWS:
            return tokens[number:]
    return []


def _classify_definition(
    first: str, object_type: str, remainder: list[str], sql: str, schema: str, *, temporary: bool
) -> SqlStatement:
    if object_type in {"TABLE", "TABLES"}:
        kind: Kind = "create" if first == "CREATE" else "alter" if first == "ALTER" else "drop"
        names = _read_names(remainder[1:], schema, None if kind == "drop" else 1)
        if kind == "alter":
            renamed = _new_name(remainder, schema)
            if renamed is not None:
                return SqlStatement(sql, "rename", schema, (*names, renamed), temporary)
            return _name_second_table(SqlStatement(sql, kind, schema, names, temporary), remainder)
        absent = [word.upper() for word in remainder[1:4]] == ["IF", "NOT", "EXISTS"]
        return SqlStatement(sql, kind, schema, names, temporary, absent)
    if object_type in {"DATABASE", "SCHEMA"}:
        # It need not name the database, and the event does.
        return SqlStatement(sql, "database", schema, drops_database=first == "DROP")
    if object_type == "INDEX":
        words = [word.upper() for word in remainder]
        after = remainder[words.index("ON") + 1 :] if "ON" in words else []
        return SqlStatement(sql, "index", schema, _read_names(after, schema, 1))
    if object_type in {"USER", "ROLE"}:
        return SqlStatement(sql, "user", schema)
    return SqlStatement(sql, "other", schema)


def _new_name(words_left: list[str], schema: str) -> TableName | None:
    words = [word.upper() for word in words_left]
    for number, word in enumerate(words[:-1]):
        if word == "RENAME" and words[number + 1] not in {"COLUMN", "INDEX", "KEY"}:
            start = number + 2 if words[number + 1] in {"TO", "AS", "="} else number + 1
            return next(iter(_read_names(words_left[start:], schema, 1)), None)
    return None


def _name_second_table(statement: SqlStatement, words_left: list[str]) -> SqlStatement:
    """The ALTER TABLE, with the table that a partition is exchanged with, becomes, or is made of (MariaDB's CONVERT)."""
    words = [word.upper() for word in words_left]
    for number, word in enumerate(words[:-2]):
        if word == "EXCHANGE" and words[number + 1] == "PARTITION" and "WITH" in words[number + 3 :]:
            start = words.index("WITH", number + 3) + 2
            return statement._replace(
                tables=(*statement.tables, *_read_names(words_left[start:], statement.database, 1))
            )
        if word == "CONVERT" and words[number + 1] in {"PARTITION", "TABLE"} and "TO" in words[number + 3 :]:
            out = words[number + 1] == "PARTITION"
            start = words.index("TO", number + 3) + 2 if out else number + 2
            names = (*statement.tables, *_read_names(words_left[start:], statement.database, 1))
            return statement._replace(tables=names, partition_out=out, partition_in=not out)
    return statement


def _split_tokens(sql: str, sql_mode: int) -> list[str]:
    tokens: list[str] = []
    for match in _token_pattern(sql_mode & (ANSI_QUOTES | MSSQL | NO_BACKSLASH_ESCAPES)).finditer(sql):
        if match.lastgroup != "space":
            tokens.append(match.group())
            if len(tokens) >= _MOST and tokens[0].upper() not in _READ_WHOLE:
                break
    return tokens


@functools.cache
def _token_pattern(sql_mode: int) -> re.Pattern[str]:
    escapes = not sql_mode & NO_BACKSLASH_ESCAPES
    names = [_QUOTED_NAME, _DOUBLE[escapes and not sql_mode & ANSI_QUOTES]]
    if sql_mode & MSSQL:
        names.append(_BRACKETED_NAME)
    return re.compile(
        rf"""
    (?P<space>\s+|--(?=[\0-\x20\x7f]|\Z)[^\n]*|\#[^\n]*|/\*(?!M?!).*?\*/|/\*M?!\d*|\*/)
  | (?P<quoted>{"|".join(names)})
  | (?P<text>{_SINGLE[escapes]})
  | (?P<word>[\w$\x80-\U0010ffff]+)
  | (?P<mark>.)
""",
        re.VERBOSE | re.DOTALL | re.ASCII,
    )


def _read_names(tokens: list[str], schema: str, max_names: int | None = None) -> tuple[TableName, ...]:
    """Names of tables at the beginning of ``tokens``; between two of them a comma or TO."""
    names: list[TableName] = []
    at = 0
    expected = True
    while at < len(tokens) and (max_names is None or len(names) < max_names):
        word = tokens[at].upper()
        if not expected and word in _AFTER_NAME:
            at += _AFTER_NAME[word]
            expected = word in {",", "TO"}
        elif expected and word in _BEFORE_NAME:
            at += 1
        elif not expected or word in {"(", ")", ";", ".", ","}:
            break
        else:
            expected = False
            if at + 2 < len(tokens) and tokens[at + 1] == ".":
                names.append(TableName(_unquote_name(tokens[at]), _unquote_name(tokens[at + 2])))
                at += 3
            else:
                names.append(TableName(schema, _unquote_name(tokens[at])))
                at += 1
    return tuple(names)


def _unquote_name(name: str) -> str:
    if name[:1] in {"`", '"', "["} and len(name) > 1:
        return name[1:-1].replace(name[-1] * 2, name[-1])
    return name


def select_condition(table: str, statement: str) -> str | None:
    """The condition of a plain statement over one table, "" without one; None: it is no such statement."""
    match = _SELECT.match(statement)
    if match is None or match["name"].replace("`", "") not in (table, table.partition(".")[2]):
        return None
    condition = (match["condition"] or "").strip()
    bare = _SQL_LITERALS.sub("''", condition)
    if _NOT_ROWS.search(bare) is not None or (condition and not is_condition(condition)):
        return None
    alias = match["alias"]
    if alias and re.search(rf"(?<![\w.]){re.escape(alias)}\s*\.", bare):
        return None
    return condition


def is_condition(sql: str) -> bool:
    """Whether it can be one SQL condition: something, parentheses in pairs, no comments, no second statement."""
    bare = _SQL_LITERALS.sub("''", sql)
    depth = 0
    for char in bare:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return bool(sql.strip()) and depth == 0 and not any(forbidden in bare for forbidden in (";", "--", "/*", "#"))
