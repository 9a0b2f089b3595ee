"""Statements in MariaDB's words for a real MySQL."""

from __future__ import annotations

import re
from typing import Any

from compose.local.databases.mysql_debian import MySqlServer

#: MariaDB's tables of numbers.
_NUMBERS = re.compile(r"FROM (?:\w+\.)?seq_(\d+)_to_(\d+)")
_WORDS = (
    ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"),
    ("k UUID PRIMARY", "k CHAR(36) PRIMARY"),
    ("ENGINE=Aria", "ENGINE=MyISAM"),
    ("ENGINE = Aria", "ENGINE = MyISAM"),
    ("UNHEX(MD5(seq))", "LEFT(UNHEX(SHA2(seq, 256)), 16)"),
    ("CREATE TABLE empty ", "CREATE TABLE `empty` "),
)


def is_mysql(server: Any) -> bool:
    """Whether it is a real MySQL."""
    return isinstance(server, MySqlServer)


def spoken(statement: str, *, mysql: bool) -> str:
    """The statement as the server takes it."""
    if not mysql:
        return statement
    for mariadb, word in _WORDS:
        statement = statement.replace(mariadb, word)
    return _NUMBERS.sub(
        r"FROM (WITH RECURSIVE numbers AS (SELECT CAST(\1 AS UNSIGNED) AS seq UNION ALL SELECT seq + 1 FROM numbers "
        r"WHERE seq < \2) SELECT seq FROM numbers) AS numbers",
        statement,
    )
