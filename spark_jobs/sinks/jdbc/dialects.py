"""Which dialects there are. A new one is a class with what ``model.Dialect`` asks for, and a line here and in ``address``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.sinks.jdbc.model import Dialect


def dialect(name: str) -> Dialect:
    """The dialect of that name; imports its driver only now.

    Raises:
        KeyError: there is none.
    """
    if name == "postgresql":
        from spark_jobs.sinks.jdbc.postgresql import PostgreSql

        return PostgreSql()
    from spark_jobs.sinks.jdbc import mysql

    return {"mariadb": mysql.MARIADB, "mysql": mysql.MYSQL}[name]
